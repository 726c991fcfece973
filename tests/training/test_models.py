"""The configs of dense models: sizes, refusals, TOML."""

from typing import Any

import pytest

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.training.models import MLP, DenseModel, Linear, Logistic

KINDS: dict[str, type[DenseModel]] = {"linear": Linear, "logistic": Logistic, "mlp": MLP}


@pytest.mark.parametrize("model", [Linear(), Logistic(), MLP(), MLP(hidden=(32, 16))])
def test_round_trip(model: DenseModel) -> None:
    assert named(KINDS, to_table(model), key=("model",), what="model") == model


def test_widths_follow_from_the_data() -> None:
    assert Linear().widths(5, 0) == (5, 1)
    assert Logistic().widths(5, 3) == (5, 3)
    assert MLP().widths(784, 10) == (784, 64, 10)
    assert MLP(hidden=(32, 16)).widths(784, 0) == (784, 32, 16, 1)


def test_models_refuse_data_of_the_other_kind() -> None:
    with pytest.raises(ConfigError, match=r'3 classes.*"logistic"') as caught:
        Linear().widths(5, 3)
    assert caught.value.key == ("model",)
    with pytest.raises(ConfigError, match=r'regression.*"linear"'):
        Logistic().widths(5, 0)


@pytest.mark.parametrize("hidden", [(), (64, 0), (-1,), (1.5,), [64]])
def test_hidden_layers_must_have_units(hidden: Any) -> None:
    with pytest.raises(ConfigError, match="MLP: hidden"):
        MLP(hidden=hidden)

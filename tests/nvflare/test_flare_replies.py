"""What a client of FLARE sends, judged."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare.apis")  # "nvflare" is also the name of this folder

from fedmuster.core.errors import StateError
from fedmuster.nvflare.plain_values import NotPlainError, pack, unpack
from fedmuster.nvflare.replies import (
    numbers_of,
    parameters_fault,
    signals_of,
    steps_of,
    update_vector,
)

MODEL = {"w": np.zeros((2, 2)), "b": np.zeros(2)}


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        {},
        [np.zeros(2)],
        {"w": np.full((2, 2), np.nan), "b": np.zeros(2)},
        {"w": np.full((2, 2), np.inf)},
        {"w": np.zeros(4)},
        {"w": np.zeros((2, 2)), "other": np.zeros(2)},
        {"w": np.array([["a", "b"], ["c", "d"]])},
        {"w": np.array([[object(), 1], [2, 3]], dtype=object)},
        {"w": [[1.0, 2.0], [3.0]]},
        {"w": "text"},
        {"w": None},
        {7: np.zeros(2)},
    ],
)
def test_no_use(parameters: Any) -> None:
    assert parameters_fault(parameters, MODEL) is not None


@pytest.mark.parametrize(
    "parameters",
    [
        {name: value + 1 for name, value in MODEL.items()},
        {"b": np.ones(2)},  # FLARE lets clients send some of the parameters
        {"w": [[1, 2], [3, 4]]},
    ],
)
def test_of_use(parameters: Any) -> None:
    assert parameters_fault(parameters, MODEL) is None


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    model = {"w": torch.zeros(3, dtype=torch.bfloat16)}
    assert parameters_fault({"w": torch.ones(3)}, model) is None
    assert parameters_fault({"w": torch.full((3,), float("nan"))}, model) is not None
    assert parameters_fault({"w": torch.ones(4)}, model) is not None
    numbers = numbers_of(model["w"])
    assert numbers is not None
    assert numbers.shape == (3,)


def test_signals_are_finite_numbers_with_usual_names() -> None:
    metrics = {"val_loss": 0.5, "acc": 1, "nan": np.nan, "text": "0.5", "list": [1.0], 3: 1.0}
    metrics["x" * 500] = 1.0
    assert signals_of(metrics) == {"val_loss": 0.5, "acc": 1.0, "loss": 0.5, "accuracy": 1.0}
    assert signals_of(None) == {}
    assert len(signals_of({f"m{number}": 1.0 for number in range(10_000)})) <= 66


@pytest.mark.parametrize(
    ("claimed", "steps"),
    [
        (10, 10.0),
        (2.5, 2.5),
        (0, 1.0),
        (-1, 1.0),
        (np.inf, 1.0),
        (np.nan, 1.0),
        ("9", 1.0),
        (True, 1.0),
    ],
)
def test_steps(claimed: Any, steps: float) -> None:
    assert steps_of(claimed) == steps


def test_update_vectors_of_models_and_differences_agree() -> None:
    change = {"w": np.arange(4.0).reshape(2, 2), "b": np.array([5.0, 6.0])}
    model = {"w": np.ones((2, 2)), "b": np.ones(2)}
    trained = {name: model[name] + change[name] for name in model}
    whole = update_vector(trained, model, is_difference=False)
    assert whole == pytest.approx(update_vector(change, model, is_difference=True))
    assert whole == pytest.approx([0, 1, 2, 3, 5, 6])
    part = update_vector({"b": trained["b"]}, model, is_difference=False)
    assert part == pytest.approx([0, 0, 0, 0, 5, 6])


def test_plain_values_come_back() -> None:
    torch = pytest.importorskip("torch")
    value: dict[str, Any] = {
        "state": {0: {"step": torch.tensor(3.0), "bf16": torch.ones(2, dtype=torch.bfloat16) / 3}},
        "groups": [{"lr": 0.1, "betas": (0.9, 0.999), "foreach": None}],
        "count": np.int64(7),
        "weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    }
    back = unpack(*pack(value))
    assert torch.equal(back["state"][0]["bf16"], value["state"][0]["bf16"])
    assert back["state"][0]["step"].item() == 3.0
    assert back["groups"] == value["groups"]
    assert isinstance(back["groups"][0]["betas"], tuple)
    assert back["count"] == 7
    assert back["weights"].dtype == np.float32
    np.testing.assert_array_equal(back["weights"], value["weights"])


@pytest.mark.parametrize("value", [object(), {"a": lambda: 1}, np.array([object()]), {1, 2}])
def test_what_is_not_plain(value: Any) -> None:
    with pytest.raises(NotPlainError):
        pack(value)


def test_a_bent_tree() -> None:
    for tree in (["pickle", "x"], ["array", "7"], ["dict", [[1]]]):
        with pytest.raises(StateError):
            unpack(tree, {})

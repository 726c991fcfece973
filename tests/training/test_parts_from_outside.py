"""Models, data sets, partitions, server rules and rate schedules of somebody else's file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training.toy_federation import play_round

from fedmuster.core.config import from_table, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Feedback
from fedmuster.training.aggregation import SERVERS
from fedmuster.training.data import DATASETS
from fedmuster.training.local_sgd import RATE_SCHEDULES
from fedmuster.training.models import MODELS
from fedmuster.training.partition import PARTITIONS
from fedmuster.training.training import Training

PARTS = """
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmuster.training.aggregation import FedAvg
from fedmuster.training.data import Data
from fedmuster.training.local_sgd import RateSchedule
from fedmuster.training.models import DenseModel
from fedmuster.training.partition import Partition
from fedmuster.training.training_records import DataSet, Shares


@dataclass(frozen=True, kw_only=True, slots=True)
class Line(Data):
    name: ClassVar[str] = "line"
    num_samples: int = 12

    def load(self, seed):
        x = np.linspace(0, 1, self.num_samples, dtype=np.float32)[:, None]
        return DataSet(
            train_inputs=x, train_targets=2 * x[:, 0], test_inputs=x, test_targets=2 * x[:, 0],
            num_classes=0,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks(Partition):
    name: ClassVar[str] = "blocks"

    def split(self, data, num_clients, rng):
        size = len(data.train_targets)
        offsets = np.linspace(0, size, num_clients + 1).astype(np.int64)
        return Shares(rows=np.arange(size), offsets=offsets)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wide(DenseModel):
    name: ClassVar[str] = "wide"

    def widths(self, num_inputs, num_classes):
        return num_inputs, 7, num_classes or 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Halved(FedAvg):
    name: ClassVar[str] = "halved"

    def _step(self, model, delta, memory):
        model += delta / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Harmonic(RateSchedule):
    name: ClassVar[str] = "harmonic"

    def factor(self, round_number):
        return 1 / round_number
"""


@pytest.fixture
def table(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "parts.py"
    file.write_text(PARTS)
    return {
        "data": {"name": f"{file}:Line", "num_samples": 20},
        "partition": f"{file}:Blocks",
        "model": f"{file}:Wide",
        "server": {"name": f"{file}:Halved", "clip_norm": 5.0},
        "local": {"schedule": f"{file}:Harmonic"},
    }


def test_they_train_and_round_trip(table: dict[str, Any]) -> None:
    training = from_table(Training, table)
    assert from_table(Training, to_table(training)) == training
    trainer = training.start(num_clients=4, seed=1)
    before = trainer.parameters
    assert len(before) == (1 + 1) * 7 + 7 + 1
    feedback = Feedback(
        round=2, clients=np.array([1, 3]), latency_seconds=np.ones(2), completed=None
    )
    update = trainer.engine.train(before, np.array([1, 3]), 2)
    play_round(trainer, feedback)
    mean = update.deltas.mean(axis=0)
    np.testing.assert_allclose(trainer.parameters, before + mean / 2, atol=1e-6)


@pytest.mark.parametrize("part", ["data", "partition", "model", "server"])
def test_another_kind_is_refused(table: dict[str, Any], part: str) -> None:
    other = table["local"]["schedule"]
    with pytest.raises(ConfigError) as caught:
        from_table(Training, {part: other})
    assert caught.value.key == (part, "name")
    text: Any = {part: "iid"}
    with pytest.raises(ConfigError) as caught:
        Training(**text)
    assert caught.value.key == (part,)


def test_the_registries_hold_every_built_in_class() -> None:
    averages = ["fedavg", "median", "trimmed-mean", "fedavgm", "fedasync"]
    optimisers = ["fedadagrad", "fedadam", "fedyogi"]
    robust = ["krum", "multi-krum", "geometric-median"]
    assert list(SERVERS) == sorted([*averages, *optimisers, *robust])
    assert len(MODELS) == 12
    assert len(DATASETS) == 9
    assert len(PARTITIONS) == 8
    assert list(RATE_SCHEDULES) == ["constant", "cosine", "step"]
    for registry in (SERVERS, MODELS, DATASETS, PARTITIONS, RATE_SCHEDULES):
        assert all(kind.name == name for name, kind in registry.items())

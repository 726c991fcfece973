"""What makes of the answers of a round what a server combines; usually, who is late is lost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from fedmuster.core.records import BoolArray, FloatArray, IntArray, Late
from fedmuster.core.state import Array
from fedmuster.learning.engine import Engine
from fedmuster.learning.records import Parameters, Updates


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Answers:
    """What the server receives of a round, now or later.

    Args:
        round: t.
        asked: everybody who was asked, whether or not an answer ever comes.
        updates: of those who answered in time; finite ones.
        used: bool[n], which of these may enter this round's model.
        late: of those who answer afterwards; finite ones.
        arrives_at_seconds: when each of these will be there.
        ends_at_seconds: when this round ended.
    """

    round: int
    asked: IntArray
    updates: Updates
    used: BoolArray
    late: Updates
    arrives_at_seconds: FloatArray
    ends_at_seconds: float


NOBODY = Late(clients=np.empty(0, dtype=np.int64), arrives_at_seconds=np.empty(0))


class ToCombine(NamedTuple):
    """What a server shall combine: rows and their weights, which stand for so many answers."""

    updates: Updates
    weights: FloatArray
    num_answers: int


class Merger(Protocol):
    """From the answers of a round to what the server combines."""

    keeps_late: ClassVar[bool]
    """Whether late answers are wanted at all."""

    @property
    def busy(self) -> Late:
        """Whose late answers are on their way."""
        ...

    def train(
        self, engine: Engine, model: Parameters, clients: IntArray, round_number: int
    ) -> Updates:
        """Train each of these clients from the model that it holds. Pure."""
        ...

    def merge(self, model: Parameters, answers: Answers) -> ToCombine:
        """Take the answers of a round in; the only place that changes anything."""
        ...

    def arrays(self) -> dict[str, Array]:
        """All that is remembered from round to round."""
        ...

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`arrays`, of the same names."""
        ...


def some(updates: Updates, rows: BoolArray) -> Updates:
    """The updates of these rows; no copy where that is all of them."""
    if rows.all():
        return updates
    return Updates(
        clients=updates.clients[rows],
        deltas=updates.deltas[rows],
        signals={name: values[rows] for name, values in updates.signals.items()},
    )


class DiscardingMerger:
    """Every round stands for itself: late answers are lost.

    Args:
        weights: [K], how much data each client has.
    """

    keeps_late: ClassVar[bool] = False

    def __init__(self, weights: FloatArray) -> None:
        self._weights = weights

    @property
    def busy(self) -> Late:
        """Nobody: whoever is late might as well stop."""
        return NOBODY

    def train(
        self, engine: Engine, model: Parameters, clients: IntArray, round_number: int
    ) -> Updates:
        """All from the global model."""
        return engine.train(model, clients, round_number)

    def merge(self, model: Parameters, answers: Answers) -> ToCombine:
        """The answers that count, weighted by data."""
        del model
        fresh = some(answers.updates, answers.used)
        return ToCombine(fresh, self._weights[fresh.clients], len(fresh.clients))

    def arrays(self) -> dict[str, Array]:
        """Nothing."""
        return {}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Nothing to load."""

"""The server of flat learning, or one of several edge servers: a model that updates change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from fedmuster.core import state as states
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import StateError
from fedmuster.core.late_answers import Discard, LateAnswers
from fedmuster.core.records import Late
from fedmuster.core.state import Array
from fedmuster.training.aggregation import Aggregation
from fedmuster.training.combine import Combine
from fedmuster.training.training_records import Engine, Parameters, Updates

NOBODY = Late(clients=np.empty(0, dtype=np.int64), arrives_at_seconds=np.empty(0))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Answers:
    """The answers to one round, in time and late.

    ``asked`` are all clients of the cohort, even those that never answer. ``updates`` came in time
    and are finite, and ``used`` says which of them may enter the model of this round; ``late``
    updates, finite too, arrive after the round ended.
    """

    round: int
    asked: IntArray
    updates: Updates
    used: BoolArray
    late: Updates
    arrives_at_seconds: FloatArray
    ends_at_seconds: float


class ToCombine(NamedTuple):
    """Updates to combine, their weights, and the number of answers that they represent."""

    updates: Updates
    weights: FloatArray
    num_answers: int


def some(updates: Updates, rows: BoolArray) -> Updates:
    """The updates of these rows; no copy where ``rows`` selects all of them."""
    if rows.all():
        return updates
    return Updates(
        clients=updates.clients[rows],
        deltas=updates.deltas[rows],
        signals={name: values[rows] for name, values in updates.signals.items()},
    )


@dataclass(kw_only=True, eq=False)
class EdgeServer:
    """A model, and a server rule with its memory. Late answers are lost.

    Args:
        model: before the first round. Edge servers may share one vector: none writes into it.
        rule: makes one model of many updates.
        sizes: [K], the number of samples of each client.
        num_trainable: the number of trained parameters, which come first.
        min_answers: with fewer usable updates than this the model stays as it is.
        late_answers: what becomes of late answers; must fit the class.
    """

    keeps_late: ClassVar[bool] = False
    """Whether late answers can enter the model of a later round."""

    combining: ClassVar[Combine | None] = None
    """How updates are combined, where the rule does not decide it."""

    model: Parameters
    rule: Aggregation
    sizes: IntArray
    num_trainable: int
    min_answers: int = 1
    late_answers: LateAnswers = field(default_factory=Discard)

    def __post_init__(self) -> None:
        self._memory = self.rule.init(len(self.model))
        self._weights: FloatArray = self.sizes.astype(np.float64)

    @property
    def busy(self) -> Late:
        """Clients whose late answers are still on their way."""
        return NOBODY

    def train(self, engine: Engine, clients: IntArray, round_number: int) -> Updates:
        """The updates of these clients, trained from this server's model. Changes nothing."""
        return engine.train(self.model, clients, round_number)  # COCS Eq. 2

    def aggregate(self, answers: Answers) -> int:
        """Update the model, and return the number of answers that entered it."""
        merged = self.merge(answers)
        if merged.num_answers == 0 or merged.num_answers < self.min_answers:
            return 0
        updates, weights, count = merged
        self.model = self.rule.apply(  # COCS Eq. 3, 6 with FedAvg(weights="uniform")
            self._memory, self.model, updates, weights, self.num_trainable, rule=self.combining
        )
        return count

    def merge(self, answers: Answers) -> ToCombine:
        """The updates of a round that enter the model, weighted by data."""
        fresh = some(answers.updates, answers.used)
        return ToCombine(fresh, self._weights[fresh.clients], len(fresh.clients))

    def arrays(self) -> dict[str, Array]:
        """The model, the memory of the rule, and late answers."""
        arrays = {f"server.{k}": a for k, a in states.to_arrays(self._memory).items()}
        arrays |= {f"late.{k}": a for k, a in self.late_arrays().items()}
        return {"parameters": self.model, **arrays}

    def load(self, arrays: Mapping[str, Array], *, source: str) -> None:
        """Continue from :meth:`arrays`."""
        if arrays["parameters"].shape != self.model.shape:
            raise StateError(f"{source} holds another model than this training's")
        late = states.under("late.", arrays)
        if late.keys() != self.late_arrays().keys():
            raise StateError(f"{source} was written with another treatment of late answers")
        states.load_arrays(self._memory, states.under("server.", arrays))
        self.load_late(late)
        self.model = arrays["parameters"]

    def late_arrays(self) -> dict[str, Array]:
        """What is kept of late answers."""
        return {}

    def load_late(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`late_arrays`, with the same names."""

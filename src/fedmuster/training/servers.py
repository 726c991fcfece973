"""The server of flat learning, or one of several edge servers: a model that updates change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import numpy as np

from fedmuster.core import state as states
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.staleness import Discard, Staleness
from fedmuster.core.state import Array
from fedmuster.training.aggregation import Aggregation
from fedmuster.training.combine import Combine, WeightedSum
from fedmuster.training.training_records import Parameters, Updates

Starts = Sequence[Parameters]
"""The model from which each of some clients trains or trained."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Answers:
    """The answers that a server aggregates at once.

    Args:
        round: the number of this aggregation: 1, 2, …
        updates: the answers; all are finite.
        starts: the model that each of them was trained from.
        ages: int64[n], how often the server has aggregated since each client was asked.
        used: bool[n], which of them may enter the model.
        asked: the clients of the cohort, even those that never answer; in rounds.
        inclusion: [n], the probability with which each client was chosen, where answers are
            weighted by it. Without rounds it is multiplied by the number of these answers, and
            divided by the number of clients that were chosen together.
    """

    round: int
    updates: Updates
    starts: Starts
    ages: IntArray
    used: BoolArray
    asked: IntArray
    inclusion: FloatArray | None = None

    def some(self, rows: BoolArray) -> "Answers":
        """These answers alone."""
        if rows.all():
            return self
        starts = [self.starts[row] for row in np.flatnonzero(rows).tolist()]
        part = replace(self, ages=self.ages[rows], used=self.used[rows], starts=starts)
        inclusion = None if self.inclusion is None else self.inclusion[rows]
        return replace(part, updates=some(self.updates, rows), inclusion=inclusion)


class ToCombine(NamedTuple):
    """Updates to combine, their weights, and the number of answers that they represent.

    ``scale`` [n] multiplies updates without a change of their weights; None for 1.
    """

    updates: Updates
    weights: FloatArray
    num_answers: int
    scale: FloatArray | None = None


def some(updates: Updates, rows: BoolArray) -> Updates:
    """The updates of these rows; no copy where ``rows`` selects all of them."""
    if rows.all():
        return updates
    return Updates(
        clients=updates.clients[rows],
        deltas=updates.deltas[rows],
        signals={name: values[rows] for name, values in updates.signals.items()},
    )


class LateUpdates:
    """Vectors of ``num_parameters`` numbers of clients that missed the end of their round.

    At most one of each client. ``rounds`` holds the round in which each client was asked.
    """

    def __init__(self, num_parameters: int) -> None:
        self.clients: IntArray = np.empty(0, dtype=np.int64)
        self.rounds: IntArray = np.empty(0, dtype=np.int64)
        self.arrives_at_seconds: FloatArray = np.empty(0)
        self.vectors: Array = np.empty((0, num_parameters), dtype=np.float32)
        self.now_seconds = 0.0

    @property
    def arrived(self) -> BoolArray:
        """bool[n], which vectors have arrived by the time of the last aggregation."""
        return self.arrives_at_seconds <= self.now_seconds

    def add(
        self, clients: IntArray, vectors: Array, arrives_at_seconds: FloatArray, *, round_: int
    ) -> None:
        """Wait for vectors of a round; older ones of the same clients are dropped."""
        if len(clients) == 0:
            return
        self.drop(np.isin(self.clients, clients))
        new: dict[str, Array] = {
            "clients": clients,
            "rounds": np.full(len(clients), round_, dtype=np.int64),
            "arrives_at_seconds": arrives_at_seconds,
            "vectors": vectors,
        }
        for name, rows in new.items():
            setattr(self, name, np.concatenate([getattr(self, name), rows]))

    def drop(self, rows: BoolArray) -> None:
        """Forget these rows."""
        if rows.any():
            self.load({name: a if a.ndim == 0 else a[~rows] for name, a in self.arrays().items()})

    def arrays(self) -> dict[str, Array]:
        """All attributes as arrays, by name."""
        return {name: np.asarray(value) for name, value in vars(self).items()}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`arrays`."""
        vars(self).update(arrays, now_seconds=float(arrays["now_seconds"]))


def _with_late(
    updates: Updates, ages: IntArray, late: LateUpdates, round_number: int
) -> tuple[Updates, IntArray]:
    """Updates and their ages, with late ones that have arrived, which are taken out of ``late``."""
    due = late.arrived
    both = Updates(
        clients=np.concatenate([updates.clients, late.clients[due]]),
        deltas=np.concatenate([updates.deltas, late.vectors[due]])
        if len(updates.clients) > 0
        else late.vectors[due],
        signals={},
    )
    ages = np.concatenate([ages, round_number - late.rounds[due]])
    late.drop(due)
    return both, ages


@dataclass(kw_only=True, eq=False)
class EdgeServer:
    """A model, and a server rule with its memory.

    Answers that miss the end of their round are lost, unless ``keeps_late`` is set and the
    staleness rule gives them any worth.

    Args:
        model: before the first round. Edge servers may share one vector: none writes into it.
        rule: makes one model of many updates.
        sizes: [K], the number of samples of each client.
        num_trainable: the number of trained parameters, which come first.
        min_answers: with fewer usable updates than this the model stays as it is.
        staleness: what old answers are worth; must fit the class.
        keeps_late: whether answers that miss the end of their round may enter a later model.
    """

    combining: ClassVar[Combine | WeightedSum | None] = None
    """How updates are combined, where the rule does not decide it."""

    model: Parameters
    rule: Aggregation
    sizes: IntArray
    num_trainable: int
    min_answers: int = 1
    staleness: Staleness = field(default_factory=Discard)
    keeps_late: bool = False

    def __post_init__(self) -> None:
        self._memory = self.rule.init(len(self.model))
        self._weights: FloatArray = self.sizes.astype(np.float64)
        self.late: LateUpdates | None = None
        """The answers that missed the end of their round and may enter a later model."""
        if self.keeps_late and not isinstance(self.staleness, Discard):
            self.late = LateUpdates(len(self.model))
            if self.rule.mixes_models:
                raise ConfigError(
                    f"{self.rule.name} needs the model that an answer was trained from, which is "
                    "not kept when the answer misses its round: write staleness = "
                    '{ name = "discard" }, or work without rounds',
                    key=("server",),
                )

    def starts(self, clients: IntArray, round_number: int) -> Starts:
        """The models from which these clients train if they are asked now."""
        return [self.model] * len(clients)  # COCS Eq. 2

    def aggregate(self, answers: Answers) -> int:
        """Update the model, and return the number of answers that entered it."""
        merged = self.merge(answers)
        if merged.num_answers == 0 or merged.num_answers < self.min_answers:
            return 0
        self.model = self.rule.apply(  # COCS Eq. 3, 6 with FedAvg(weights="uniform")
            self._memory,
            self.model,
            merged.updates,
            merged.weights,
            self.num_trainable,
            rule=self.combining,
            scale=merged.scale,
        )
        return merged.num_answers

    def merge(self, answers: Answers) -> ToCombine:
        """The updates to combine; takes late answers that have arrived out of :attr:`late`.

        They are weighted by data, and shortened where they are old.
        """
        entering = self.entering(answers)
        updates, ages = entering.updates, entering.ages
        if self.late is not None:
            self.late.drop(self.lost(self.late, answers.round, self.late.now_seconds))
            if self.late.arrived.any():
                updates, ages = _with_late(updates, ages, self.late, answers.round)
        if self.rule.mixes_models and len(ages) > 0:
            # The client's model minus the server's, in place of what training has changed.
            moved = np.stack(entering.starts) - self.model
            updates = replace(updates, deltas=updates.deltas + moved)
        factors = self.staleness.factors(ages)
        scale = None if np.all(factors == 1.0) else factors
        return ToCombine(updates, self._weights[updates.clients], len(ages), scale)

    def entering(self, answers: Answers) -> Answers:
        """The answers that may be used and are not too old."""
        return answers.some(answers.used & (self.staleness.factors(answers.ages) > 0))

    def lost(self, late: LateUpdates, round_number: int, now_seconds: float) -> BoolArray:
        """bool[n], the late answers that the aggregation of this round drops.

        They have arrived and are too old.
        """
        worthless = self.staleness.factors(round_number - late.rounds) == 0
        return np.asarray(worthless & (late.arrives_at_seconds <= now_seconds))

    def held(self, updates: Updates, starts: Starts) -> Array:
        """[n, P], what is kept of updates that will be late."""
        return updates.deltas

    def arrays(self) -> dict[str, Array]:
        """The model, the memory of the rule, and late answers."""
        arrays = {f"server.{k}": a for k, a in states.to_arrays(self._memory).items()}
        arrays |= {f"late.{k}": a for k, a in self.late_arrays().items()}
        return {"parameters": self.model, **arrays}

    def load(self, arrays: Mapping[str, Array], *, source: str) -> None:
        """Continue from :meth:`arrays`."""
        if arrays["parameters"].shape != self.model.shape:
            raise StateError(f"{source} holds another model than this training's")
        late = states.with_prefix("late.", arrays)
        if late.keys() != self.late_arrays().keys():
            raise StateError(f"{source} was written with another treatment of late answers")
        states.load_arrays(self._memory, states.with_prefix("server.", arrays))
        self.load_late(late)
        self.model = arrays["parameters"]

    def late_arrays(self) -> dict[str, Array]:
        """What is kept of late answers."""
        return {} if self.late is None else self.late.arrays()

    def load_late(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`late_arrays`, with the same names."""
        if self.late is not None:
            self.late.load(arrays)

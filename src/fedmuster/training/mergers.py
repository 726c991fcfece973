"""What is on its way to the server, or waits there to be used."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Late
from fedmuster.core.state import Array
from fedmuster.training.aggregation import FedAvg, FedMedian, FedTrimmedMean, Server
from fedmuster.training.combine import UniformMean, WeightedMean
from fedmuster.training.training_records import Engine, Parameters, Updates


class Pending:
    """Late vectors of parameters, at most one of each client.

    Args:
        num_parameters: the length of each.
    """

    def __init__(self, num_parameters: int) -> None:
        self.clients: IntArray = np.empty(0, dtype=np.int64)
        self.rounds: IntArray = np.empty(0, dtype=np.int64)
        """In which each was asked for."""
        self.arrives_at_seconds: FloatArray = np.empty(0)
        self.vectors: NDArray[np.float32] = np.empty((0, num_parameters), dtype=np.float32)
        self.now_seconds = 0.0

    @property
    def arrived(self) -> BoolArray:
        """bool[n], which of them are there by now."""
        return self.arrives_at_seconds <= self.now_seconds

    @property
    def on_their_way(self) -> Late:
        """The others."""
        away = ~self.arrived
        return Late(clients=self.clients[away], arrives_at_seconds=self.arrives_at_seconds[away])

    def add(
        self,
        clients: IntArray,
        round_number: int,
        arrives_at_seconds: FloatArray,
        vectors: NDArray[np.float32],
    ) -> None:
        """Wait for these too; what waits of the same clients is out of date."""
        if len(clients) == 0:
            return
        self.drop(np.isin(self.clients, clients))
        rounds = np.full(len(clients), round_number, dtype=np.int64)
        self.clients = np.concatenate([self.clients, clients])
        self.rounds = np.concatenate([self.rounds, rounds])
        self.arrives_at_seconds = np.concatenate([self.arrives_at_seconds, arrives_at_seconds])
        self.vectors = np.concatenate([self.vectors, vectors])

    def drop(self, rows: BoolArray) -> None:
        """Wait for these no longer."""
        if rows.any():
            self.clients = self.clients[~rows]
            self.rounds = self.rounds[~rows]
            self.arrives_at_seconds = self.arrives_at_seconds[~rows]
            self.vectors = self.vectors[~rows]

    def arrays(self) -> dict[str, Array]:
        """All of it."""
        return {
            "clients": self.clients,
            "rounds": self.rounds,
            "arrives_at_seconds": self.arrives_at_seconds,
            "vectors": self.vectors,
            "now_seconds": np.array(self.now_seconds),
        }

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`arrays`."""
        self.clients = arrays["clients"]
        self.rounds = arrays["rounds"]
        self.arrives_at_seconds = arrays["arrives_at_seconds"]
        self.vectors = arrays["vectors"]
        self.now_seconds = float(arrays["now_seconds"])


# Servers whose mean can be told how much each update weighs.


def weighted_server(
    server: Server, data: FloatArray, *, clips: bool = True
) -> tuple[Server, FloatArray]:
    """The same server, but one that heeds any weights, and [K] what clients weigh in its mean.

    Args:
        server: which means by data, or uniformly. Medians and trimmed means weigh nobody.
        data: [K], how much each client has.
        clips: whether single updates reach the server, so that it can clip them.
    """
    if not clips and server.clip_norm is not None:
        raise ConfigError(
            f"{type(server).__name__}: clip_norm = {server.clip_norm!r} shortens single updates, "
            "but this policy (SAFA) averages the last models of all clients; leave clip_norm out",
            key=("server", "clip_norm"),
        )
    alike = np.ones(len(data))
    if isinstance(server, FedAvg):
        if server.weights == "uniform":
            return replace(server, weights="data"), alike
        return server, data
    if not isinstance(server, FedMedian | FedTrimmedMean):
        if isinstance(server.combine, UniformMean):
            return replace(server, combine=WeightedMean()), alike
        if isinstance(server.combine, WeightedMean):
            return server, data
    raise ConfigError(
        f"{type(server).__name__}: this policy says how much late updates weigh, which a median or "
        "trimmed mean cannot heed; choose a server that averages, for example fedavg",
        key=("server",),
    )


# What makes of the answers of a round what a server combines; usually, who is late is lost.


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

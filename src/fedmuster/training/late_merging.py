"""Servers that use answers after the end of their round: REFL's stale updates and SAFA's cache."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray, blocks
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.late_answers import Cached, LateAnswers, Stale
from fedmuster.core.records import Late
from fedmuster.core.state import Array, under
from fedmuster.training.combine import Combine, Deltas, UniformMean, WeightedMean
from fedmuster.training.servers import Answers, EdgeServer, ToCombine
from fedmuster.training.training_records import Engine, Parameters, Updates, joined


class Pending:
    """Late vectors of ``num_parameters`` numbers, at most one of each client.

    ``rounds`` holds the round in which each client was asked.
    """

    def __init__(self, num_parameters: int) -> None:
        self.clients: IntArray = np.empty(0, dtype=np.int64)
        self.rounds: IntArray = np.empty(0, dtype=np.int64)
        self.arrives_at_seconds: FloatArray = np.empty(0)
        self.vectors: NDArray[np.float32] = np.empty((0, num_parameters), dtype=np.float32)
        self.now_seconds = 0.0

    @property
    def arrived(self) -> BoolArray:
        """bool[n], which vectors have arrived."""
        return self.arrives_at_seconds <= self.now_seconds

    @property
    def on_their_way(self) -> Late:
        """The clients whose vectors have not arrived."""
        away = ~self.arrived
        return Late(clients=self.clients[away], arrives_at_seconds=self.arrives_at_seconds[away])

    def add(self, answers: Answers, vectors: NDArray[np.float32]) -> None:
        """Wait for the late ``vectors`` of a round; older ones of the same clients are dropped."""
        clients = answers.late.clients
        if len(clients) == 0:
            return
        self.drop(np.isin(self.clients, clients))
        new: dict[str, Array] = {
            "clients": clients,
            "rounds": np.full(len(clients), answers.round, dtype=np.int64),
            "arrives_at_seconds": answers.arrives_at_seconds,
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


class LateServer(EdgeServer):
    """A server that waits for late answers. Its rule must average, uniformly or by data."""

    keeps_late: ClassVar[bool] = True
    combining: ClassVar[Combine | None] = WeightedMean()

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = self.rule.rule
        if not isinstance(rule, WeightedMean | UniformMean):
            raise ConfigError(
                f"{type(self.rule).__name__}: this policy says how much late updates weigh, which "
                "a median or trimmed mean ignores; choose a server that averages, for example "
                "fedavg",
                key=("server",),
            )
        if isinstance(rule, UniformMean):
            self._weights = np.ones(len(self.sizes))
        self._pending = Pending(len(self.model))

    @property
    def busy(self) -> Late:
        """Clients whose late answers are still on their way."""
        return self._pending.on_their_way

    def late_arrays(self) -> dict[str, Array]:
        """Late answers."""
        return self._pending.arrays()

    def load_late(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`late_arrays`."""
        self._pending.load(arrays)


@dataclass(kw_only=True, eq=False)
class StaleServer(LateServer):
    """REFL: late updates weigh less the older they are, and more the more they differ.

    A late client trains from the model of the round t0 in which it was asked. Its update enters
    the mean of the first round t that ends after its arrival. A fresh update weighs 1, a late one
    ``(1 - b) / (tau + 1) + b (1 - exp(-L / Lmax))``: tau = t - t0, L is how far the update would
    move the mean of the fresh updates, ``||(u + n m) / (n + 1) - m||² / ||m||²``, and Lmax is the
    largest L of the round.

    - These weights multiply those of the server's mean: a server with uniform weights is REFL's.
      With weights by data, L takes the data of the fresh and of the late clients in place of n + 1.
    - Without fresh updates there is nothing to compare with: late updates wait for a round that
      has some, as in the authors' code. They also wait while there are too few answers.
    - Updates are merged, as the paper has it; the authors' code merges whole models.

    References:
        A. M. Abdelmoniem, A. N. Sahu, M. Canini, S. A. Fahmy, REFL: Resource-Efficient Federated
        Learning, EuroSys 2023, section on staleness-aware aggregation; ``update_importance`` in
        the authors' code.
    """

    late_answers: Stale = field(default_factory=Stale)

    def merge(self, answers: Answers) -> ToCombine:
        """The fresh updates, and the late ones that have arrived."""
        pending, oldest = self._pending, self.late_answers.max_rounds
        pending.now_seconds = answers.ends_at_seconds
        if oldest is not None:
            pending.drop(pending.arrived & (answers.round - pending.rounds > oldest))
        merged = super().merge(answers)
        due = pending.arrived
        count = merged.num_answers + int(np.count_nonzero(due))
        if count > merged.num_answers > 0 and count >= self.min_answers:
            merged = self._with_late(merged, due, answers.round)
            pending.drop(due)
        # Added last: an update can arrive only in a round after the one that asked for it.
        pending.add(answers, answers.late.deltas)
        return merged

    def _with_late(self, fresh: ToCombine, due: BoolArray, round_number: int) -> ToCombine:
        pending, beta = self._pending, self.late_answers.beta
        clients, deltas = pending.clients[due], pending.vectors[due]
        weights, trained = self._weights[clients], slice(self.num_trainable)
        change = _change(
            fresh.updates.deltas[:, trained], fresh.weights, deltas[:, trained], weights
        )
        tau = round_number - pending.rounds[due]
        share = np.divide(change, change.max(), out=np.zeros(len(change)), where=change.max() > 0)
        # REFL's weight of a late update: (1 - b) / (tau + 1) + b (1 - exp(-L / Lmax))
        factor = (1 - beta) / (tau + 1) + beta * (1 - np.exp(-share))
        both = Updates(
            clients=np.concatenate([fresh.updates.clients, clients]),
            deltas=np.concatenate([fresh.updates.deltas, deltas]),
            signals={},
        )
        return ToCombine(both, np.concatenate([fresh.weights, weights * factor]), len(both.clients))


def _change(
    fresh: Deltas, fresh_weights: FloatArray, late: Deltas, late_weights: FloatArray
) -> FloatArray:
    """[s], how far each late update would move the fresh mean m, squared.

    ``(b u + B m) / (b + B) - m = b / (b + B) (u - m)``. Without the ``||m||²`` that all L have
    in common, for only their ratios count.
    """
    mean = WeightedMean().combine(fresh, fresh_weights)
    squares = [
        sum(float(np.square(row[b] - mean[b], dtype=np.float64).sum()) for b in blocks(len(row)))
        for row in late
    ]
    moved = late_weights / (late_weights + fresh_weights.sum())
    return np.asarray(moved**2 * np.array(squares))


_MOST_BYTES = 4 * 2**30
_NOTHING, _TRAINED, _GLOBAL = 0, 1, 2

Starts = list[tuple[IntArray, Parameters]]
"""Positions among some clients, and the model from which those train."""


@dataclass(kw_only=True, eq=False)
class CacheServer(LateServer):
    """SAFA: lag-tolerant distribution, and an average of the last models of all clients.

    W(t) is the model after round t, v is the round in which a client last answered or was last
    made to synchronise, and tau is the lag tolerance. A client that is asked in round t

    - starts from W(t - 1) if it is up to date (v = t - 1) or deprecated (v < t - 1 - tau);
    - is tolerable otherwise, and continues from the model that it holds: the one that it trained
      last, or a global model that it was sent since and did not answer.

    Then (1) the models of used clients enter the cache, and W(t - 1) replaces those of deprecated
    clients; (2) W(t) is the mean of the cache, weighted by data; (3) the models of clients that
    answered and were not used enter the cache. The server rule is given the change W(t) -
    W(t - 1), so FedAvg is plain SAFA, and other rules take the change for a gradient.

    - Lag is counted from t - 1, as in the authors' code; their formula counts it from t, so its
      tau is one more than this.
    - A client that does not answer has made no progress, as in the authors' code.
    - A late client continues to train. Its model enters the cache before the mean of the round
      in which it arrives, which makes the client up to date; the authors' code has no clock and
      puts all models that were not picked into the cache before the mean of the next round. If
      the client becomes deprecated before it arrives, it must synchronise, and its work is lost.
    - A client that was not asked cannot synchronise: it stays deprecated, and its cached model
      follows the global one. In the authors' code all clients are asked in every round.
    - The cache starts with the initial model; the authors' code first trains all clients for an
      epoch. A client that is asked for the first time starts from the global model.
    - With fewer used answers and late arrivals than ``min_answers`` (at least 1) the model stays.
    - In a private run a client continues from what it has sent.

    References:
        W. Wu, L. He, W. Lin, R. Mao, C. Maple, S. Jarvis, SAFA: A Semi-Asynchronous Protocol for
        Fast Federated Learning with Low Overhead, IEEE Transactions on Computers 70(5), 2021,
        arXiv:1910.01355: lag-tolerant distribution, three-step discriminative aggregation.
    """

    late_answers: Cached = field(default_factory=Cached)

    def __post_init__(self) -> None:
        super().__post_init__()
        num_clients, model, clip_norm = len(self.sizes), self.model, self.rule.clip_norm
        if clip_norm is not None:
            raise ConfigError(
                f"{type(self.rule).__name__}: clip_norm = {clip_norm!r} shortens single updates, "
                "but this policy (SAFA) averages the last models of all clients; leave clip_norm "
                "out",
                key=("server", "clip_norm"),
            )
        needed = num_clients * model.nbytes
        if needed > _MOST_BYTES:
            raise ConfigError(
                f"SAFA keeps the last model of every client: {num_clients:,} clients with "
                f"{len(model):,} parameters need {needed / 2**30:.1f} GiB, more than the limit of "
                f"{_MOST_BYTES / 2**30:.0f} GiB; choose fewer clients, a smaller model or another "
                "policy"
            )
        self._cache: NDArray[np.float32] = np.tile(model, (num_clients, 1))
        self._version = np.zeros(num_clients, dtype=np.int64)
        self._holds = np.full(num_clients, _NOTHING, dtype=np.int8)
        self._past: dict[int, Parameters] = {}
        """W(v) for every v from which a tolerable client may continue."""

    def train(self, engine: Engine, clients: IntArray, round_number: int) -> Updates:
        """Each client trains from the global model, or from the model that it holds."""
        parts = (
            (positions, engine.train(start, clients[positions], round_number))
            for positions, start in self._starts(clients, round_number)
        )
        return joined(clients, parts)

    def merge(self, answers: Answers) -> ToCombine:
        """Distribution, and SAFA's three steps of aggregation."""
        t, pending, updates, model = answers.round, self._pending, answers.updates, self.model
        late = self._trained(answers.late, t)
        starts = self._starts(updates.clients, t)
        deprecated = t - 1 - self._version > self.late_answers.lag_tolerance
        synchronised = answers.asked[~self._goes_on(answers.asked, t)]
        self._version[synchronised], self._holds[synchronised] = t - 1, _GLOBAL

        pending.drop(deprecated[pending.clients])
        pending.now_seconds = answers.ends_at_seconds
        due = pending.arrived
        self._cache[deprecated] = model  # step 1
        self._cache[pending.clients[due]] = pending.vectors[due]
        self._enter(updates, answers.used, starts)
        after = WeightedMean().combine(self._cache, self._weights)  # step 2
        self._enter(updates, ~answers.used, starts)  # step 3

        arrived = np.concatenate([updates.clients, pending.clients[due]])
        self._version[arrived], self._holds[arrived] = t, _TRAINED
        count = int(np.count_nonzero(answers.used)) + int(np.count_nonzero(due))
        pending.drop(due)
        pending.add(answers, late)
        self._remember(t)
        change = Updates(clients=np.array([-1]), deltas=(after - model)[np.newaxis], signals={})
        return ToCombine(change, np.ones(1), count)

    def late_arrays(self) -> dict[str, Array]:
        """The cache, the model that each client holds, and late models."""
        past = [np.empty((0, self._cache.shape[1]), dtype=np.float32)]
        past += [model[np.newaxis] for model in self._past.values()]
        return {
            "cache": self._cache,
            "version": self._version,
            "holds": self._holds,
            "past_rounds": np.array(list(self._past), dtype=np.int64),
            "past_models": np.concatenate(past),
            **{f"pending.{name}": array for name, array in super().late_arrays().items()},
        }

    def load_late(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`late_arrays`."""
        if arrays["cache"].shape != self._cache.shape:
            raise StateError(
                f"saved cache has shape {arrays['cache'].shape}, expected {self._cache.shape}: it "
                "was saved with another model or other clients"
            )
        self._cache = arrays["cache"]
        self._version = arrays["version"]
        self._holds = arrays["holds"]
        self._past = dict(zip(arrays["past_rounds"].tolist(), arrays["past_models"], strict=True))
        super().load_late(under("pending.", arrays))

    def _goes_on(self, clients: IntArray, round_number: int) -> BoolArray:
        """bool[n], the tolerable clients that hold a model to continue from."""
        lag = round_number - 1 - self._version[clients]
        goes_on: BoolArray = (lag > 0) & (lag <= self.late_answers.lag_tolerance)
        goes_on &= self._holds[clients] != _NOTHING
        return goes_on

    def _starts(self, clients: IntArray, round_number: int) -> Starts:
        goes_on = self._goes_on(clients, round_number)
        anew = np.flatnonzero(~goes_on)
        starts = [(anew, self.model)] if len(anew) > 0 or len(clients) == 0 else []
        sent = goes_on & (self._holds[clients] == _GLOBAL)
        for version in np.unique(self._version[clients[sent]]).tolist():
            here = np.flatnonzero(sent & (self._version[clients] == version))
            starts.append((here, self._past[version]))
        own = np.flatnonzero(goes_on & (self._holds[clients] == _TRAINED))
        starts += [(own[i : i + 1], self._cache[clients[own[i]]]) for i in range(len(own))]
        return starts

    def _enter(self, updates: Updates, rows: BoolArray, starts: Starts) -> None:
        """Put the trained models of these rows into the cache."""
        for positions, start in starts:
            here = positions[rows[positions]]
            self._cache[updates.clients[here]] = start + updates.deltas[here]

    def _trained(self, updates: Updates, round_number: int) -> Array:
        """[n, P], the trained models of these updates."""
        models = np.empty_like(updates.deltas)
        for positions, start in self._starts(updates.clients, round_number):
            models[positions] = start + updates.deltas[positions]
        return models

    def _remember(self, round_number: int) -> None:
        """Keep the global models from which a client may continue in the next round."""
        self._past[round_number - 1] = self.model
        lag = round_number - self._version
        needed = (self._holds == _GLOBAL) & (lag <= self.late_answers.lag_tolerance)
        self._past = {v: self._past[v] for v in np.unique(self._version[needed]).tolist()}


def server_kind(late_answers: LateAnswers) -> type[EdgeServer]:
    """The class of server that treats late answers in this way."""
    kinds: dict[type[LateAnswers], type[EdgeServer]] = {Stale: StaleServer, Cached: CacheServer}
    return kinds.get(type(late_answers), EdgeServer)

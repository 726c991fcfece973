"""Servers whose staleness rule needs the updates themselves.

REFL's age and novelty, and SAFA's cache.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray, blocks
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.staleness import AgeAndNovelty, CachedModels, Staleness
from fedmuster.core.state import Array, with_prefix
from fedmuster.training.combine import Combine, Deltas, UniformMean, WeightedMean, WeightedSum
from fedmuster.training.servers import Answers, EdgeServer, LateUpdates, Starts, ToCombine, some
from fedmuster.training.training_records import Parameters, Updates


class LateServer(EdgeServer):
    """A server that says how much old answers weigh. Its rule must average, uniformly or by data.

    In rounds it waits for answers that miss the end of their round.
    """

    combining: ClassVar[Combine | WeightedSum | None] = WeightedMean()
    late: LateUpdates

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = self.rule.rule
        if not isinstance(rule, WeightedMean | UniformMean) or self.rule.mixes_models:
            raise ConfigError(
                f"{type(self.rule).__name__}: the staleness rule {self.staleness.name!r} weighs "
                "old updates itself, which a median, a trimmed mean or FedAsync ignores; choose a "
                "server that averages updates, for example fedavg",
                key=("server",),
            )
        if isinstance(rule, UniformMean):
            self._weights = np.ones(len(self.sizes))
        self.late = LateUpdates(len(self.model))


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
    - Without rounds, the youngest answers of a buffer take the place of the fresh ones.

    References:
        A. M. Abdelmoniem, A. N. Sahu, M. Canini, S. A. Fahmy, REFL: Resource-Efficient Federated
        Learning, EuroSys 2023, section on staleness-aware aggregation; ``update_importance`` in
        the authors' code.
    """

    staleness: AgeAndNovelty = field(default_factory=AgeAndNovelty)

    def merge(self, answers: Answers) -> ToCombine:
        """The updates to combine; takes late answers that have arrived out of :attr:`late`."""
        late, entering = self.late, self.entering(answers)
        late.drop(self.lost(late, answers.round, late.now_seconds))
        fresh = entering.ages == (entering.ages.min() if len(entering.ages) > 0 else 0)
        due, old = late.arrived, entering.some(~fresh)
        num_fresh, num_old = int(fresh.sum()), int(due.sum()) + len(old.ages)
        updates = some(entering.updates, fresh)
        merged = ToCombine(updates, self._weights[updates.clients], num_fresh)
        if num_fresh == 0 or num_old == 0 or num_fresh + num_old < self.min_answers:
            return merged
        clients = np.concatenate([late.clients[due], old.updates.clients])
        deltas = np.concatenate([late.vectors[due], old.updates.deltas])
        ages = np.concatenate([answers.round - late.rounds[due], old.ages])
        late.drop(due)
        return self._with_old(merged, clients, deltas, ages)

    def _with_old(
        self, fresh: ToCombine, clients: IntArray, deltas: Deltas, ages: IntArray
    ) -> ToCombine:
        beta, weights = self.staleness.beta, self._weights[clients]
        trained = slice(self.num_trainable)
        change = _change(
            fresh.updates.deltas[:, trained], fresh.weights, deltas[:, trained], weights
        )
        share = np.divide(change, change.max(), out=np.zeros(len(change)), where=change.max() > 0)
        # REFL's weight of a late update: (1 - b) / (tau + 1) + b (1 - exp(-L / Lmax))
        factor = (1 - beta) / (ages + 1) + beta * (1 - np.exp(-share))
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

    staleness: CachedModels = field(default_factory=CachedModels)

    def __post_init__(self) -> None:
        super().__post_init__()
        num_clients, model, clip_norm = len(self.sizes), self.model, self.rule.clip_norm
        if clip_norm is not None:
            raise ConfigError(
                f"{type(self.rule).__name__}: clip_norm = {clip_norm!r} shortens single updates, "
                f"but the staleness rule {self.staleness.name!r} averages the last models of all "
                "clients; leave clip_norm out",
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

    def starts(self, clients: IntArray, round_number: int) -> Starts:
        """The global model, or the model that a client holds and may continue from."""
        goes_on = self._goes_on(clients, round_number)
        sent = self._holds[clients] == _GLOBAL
        return [
            self.model
            if not goes_on[row]
            else self._past[int(self._version[client])]
            if sent[row]
            else self._cache[client].copy()
            for row, client in enumerate(clients.tolist())
        ]

    def merge(self, answers: Answers) -> ToCombine:
        """The updates to combine; takes late answers that have arrived out of :attr:`late`.

        Here it is one update, W(t) - W(t - 1), after distribution and SAFA's three steps.
        """
        t, late, updates, model = answers.round, self.late, answers.updates, self.model
        trained = self.held(updates, answers.starts)
        deprecated = self._deprecated(t)
        late.drop(self.lost(late, t, late.now_seconds))
        synchronised = answers.asked[~self._goes_on(answers.asked, t)]
        self._version[synchronised], self._holds[synchronised] = t - 1, _GLOBAL

        due, used, unused = late.arrived, answers.used, ~answers.used
        self._cache[deprecated] = model  # step 1
        self._cache[late.clients[due]] = late.vectors[due]
        self._cache[updates.clients[used]] = trained[used]
        after = WeightedMean().combine(self._cache, self._weights)  # step 2
        self._cache[updates.clients[unused]] = trained[unused]  # step 3

        arrived = np.concatenate([updates.clients, late.clients[due]])
        self._version[arrived], self._holds[arrived] = t, _TRAINED
        count = int(np.count_nonzero(used)) + int(np.count_nonzero(due))
        late.drop(due)
        self._remember(t)
        change = Updates(clients=np.array([-1]), deltas=(after - model)[np.newaxis], signals={})
        return ToCombine(change, np.ones(1), count)

    def lost(self, late: LateUpdates, round_number: int, now_seconds: float) -> BoolArray:
        """bool[n], the late answers of deprecated clients, also before they arrive."""
        return self._deprecated(round_number)[late.clients]

    def held(self, updates: Updates, starts: Starts) -> Array:
        """[n, P], the trained models."""
        models = np.empty((len(updates.clients), len(self.model)), dtype=np.float32)
        for model, start, delta in zip(models, starts, updates.deltas, strict=True):
            np.add(start, delta, out=model)
        return models

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
        super().load_late(with_prefix("pending.", arrays))

    def _deprecated(self, round_number: int) -> BoolArray:
        """bool[K], the clients that are too far behind."""
        return np.asarray(round_number - 1 - self._version > self.staleness.lag_tolerance)

    def _goes_on(self, clients: IntArray, round_number: int) -> BoolArray:
        """bool[n], the tolerable clients that hold a model to continue from."""
        lag = round_number - 1 - self._version[clients]
        goes_on: BoolArray = (lag > 0) & (lag <= self.staleness.lag_tolerance)
        goes_on &= self._holds[clients] != _NOTHING
        return goes_on

    def _remember(self, round_number: int) -> None:
        """Keep the global models from which a client may continue in the next round."""
        self._past[round_number - 1] = self.model
        lag = round_number - self._version
        needed = (self._holds == _GLOBAL) & (lag <= self.staleness.lag_tolerance)
        self._past = {v: self._past[v] for v in np.unique(self._version[needed]).tolist()}


def server_kind(staleness: Staleness) -> type[EdgeServer]:
    """The class of server that treats old answers in this way."""
    kinds: dict[type[Staleness], type[EdgeServer]] = {
        AgeAndNovelty: StaleServer,
        CachedModels: CacheServer,
    }
    return kinds.get(type(staleness), EdgeServer)

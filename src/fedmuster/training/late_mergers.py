"""REFL's staleness-aware aggregation: late updates count in the round in which they come."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray, blocks
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.policy import Cached, LateAnswers, Stale
from fedmuster.core.records import Late
from fedmuster.core.state import Array
from fedmuster.training.aggregation import Server
from fedmuster.training.combine import Deltas, WeightedMean
from fedmuster.training.mergers import (
    Answers,
    DiscardingMerger,
    Merger,
    Pending,
    ToCombine,
    some,
    weighted_server,
)
from fedmuster.training.training_records import Engine, Parameters, Updates, joined


class StaleMerger:
    """Late updates weigh the less the older they are, and the more the more they differ.

    A client that is late trains from the model of the round t0 in which it was asked. In the first
    round t whose end finds its update arrived, the update enters the mean with, for a fresh
    one's 1, the weight ``(1 - b) / (tau + 1) + b (1 - exp(-L / Lmax))``: tau = t - t0, L is by how
    much it would move the mean of the fresh updates, ``||(u + n m) / (n + 1) - m||² / ||m||²``,
    and Lmax is the largest L of the round.

    - These weights multiply those of the server's mean: a server with uniform weights is REFL's.
      With weights by data, L takes n + 1 for the data of the fresh and of the late one.
    - Without fresh updates there is nothing to compare with: what has arrived waits for a round
      that has some, as in the authors' code. It also waits while there are too few answers.
    - Updates are merged, as the paper has it; the authors' code merges whole models.

    References:
        A. M. Abdelmoniem, A. N. Sahu, M. Canini, S. A. Fahmy, REFL: Resource-Efficient Federated
        Learning, EuroSys 2023, section on staleness-aware aggregation; ``update_importance`` in
        the authors' code.

    Args:
        config: the policy's.
        weights: [K], what clients weigh in the server's mean.
        num_parameters: of the model.
        num_trainable: only these make up L.
        min_answers: with fewer, fresh and late, the model stays as it is.
    """

    keeps_late: ClassVar[bool] = True

    def __init__(
        self,
        config: Stale,
        weights: FloatArray,
        *,
        num_parameters: int,
        num_trainable: int,
        min_answers: int,
    ) -> None:
        self._config = config
        self._weights = weights
        self._num_trainable = num_trainable
        self._min_answers = min_answers
        self._pending = Pending(num_parameters)

    @property
    def busy(self) -> Late:
        """Whose update is on its way."""
        return self._pending.on_their_way

    def train(
        self, engine: Engine, model: Parameters, clients: IntArray, round_number: int
    ) -> Updates:
        """All from the global model."""
        return engine.train(model, clients, round_number)

    def merge(self, model: Parameters, answers: Answers) -> ToCombine:
        """The fresh updates, and the late ones that have arrived."""
        del model
        pending, oldest = self._pending, self._config.max_rounds
        pending.now_seconds = answers.ends_at_seconds
        if oldest is not None:
            pending.drop(pending.arrived & (answers.round - pending.rounds > oldest))
        fresh = some(answers.updates, answers.used)
        merged = ToCombine(fresh, self._weights[fresh.clients], len(fresh.clients))
        due = pending.arrived
        count = merged.num_answers + int(np.count_nonzero(due))
        if count > merged.num_answers > 0 and count >= self._min_answers:
            merged = self._with_late(merged, due, answers.round)
            pending.drop(due)
        # Added last: what arrives in a round can have been asked for in an earlier one only.
        late = answers.late
        pending.add(late.clients, answers.round, answers.arrives_at_seconds, late.deltas)
        return merged

    def arrays(self) -> dict[str, Array]:
        """What is pending."""
        return self._pending.arrays()

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`arrays`."""
        self._pending.load(arrays)

    def _with_late(self, fresh: ToCombine, due: BoolArray, round_number: int) -> ToCombine:
        pending, beta = self._pending, self._config.beta
        clients, deltas = pending.clients[due], pending.vectors[due]
        weights, trained = self._weights[clients], slice(self._num_trainable)
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


# SAFA's cache: the last model of every client, and the mean of them all.

_MOST_BYTES = 4 * 2**30
_NOTHING, _TRAINED, _GLOBAL = 0, 1, 2

Starts = list[tuple[IntArray, Parameters]]
"""Positions among some clients, and the model from which those train."""


class CacheMerger:
    """SAFA: lag-tolerant distribution, and an average of the last models of all clients.

    With W(t) the model after round t, v the round in which a client last answered or was last
    made to synchronise, and tau the lag tolerance, a client that is asked in round t

    - starts from W(t - 1) if it is up to date (v = t - 1) or deprecated (v < t - 1 - tau);
    - in between is tolerable and goes on from the model that it holds: what it trained last, or,
      if it was sent a global model since and did not answer, that one.

    Then (1) the cached models of used clients become theirs, and those of deprecated clients
    W(t - 1); (2) W(t) is the mean of the cache, weighted by data; (3) the models of clients that
    answered and were not used enter the cache. What the server is given is the change W(t) -
    W(t - 1), so FedAvg is plain SAFA, and other servers take it for a gradient.

    - Lag is counted from t - 1, as in the authors' code; their formula counts it from t, so its
      tau is one more than this.
    - A client that does not answer has made no progress, as in the authors' code.
    - One that is late goes on training. Its model enters the cache before the mean of the round
      in which it comes, which makes it up to date; the authors' code, which knows no clock, has
      all models that are not picked in the cache before the mean of the next round. If the client
      becomes deprecated on the way, its work is lost, for it is forced to synchronise.
    - A client that was not asked cannot synchronise: it stays deprecated, and its cached model
      follows the global one. In the authors' code everybody is asked in every round.
    - The cache starts with the initial model; the authors' code first trains everybody for an
      epoch. Whoever is asked for the first time starts from the global model.
    - With fewer used answers and late arrivals than ``min_answers`` (at least 1) the model stays.
    - In a private run a client goes on from what it has sent.

    References:
        W. Wu, L. He, W. Lin, R. Mao, C. Maple, S. Jarvis, SAFA: A Semi-Asynchronous Protocol for
        Fast Federated Learning with Low Overhead, IEEE Transactions on Computers 70(5), 2021,
        arXiv:1910.01355: lag-tolerant distribution, three-step discriminative aggregation.

    Args:
        config: the policy's.
        weights: [K], what clients weigh in the mean.
        model: W(0).
    """

    keeps_late: ClassVar[bool] = True

    def __init__(self, config: Cached, weights: FloatArray, model: Parameters) -> None:
        needed = len(weights) * model.nbytes
        if needed > _MOST_BYTES:
            raise ConfigError(
                f"SAFA keeps the last model of every client: {len(weights):,} clients with "
                f"{len(model):,} parameters need {needed / 2**30:.1f} GiB, and at most "
                f"{_MOST_BYTES / 2**30:.0f} are taken; choose fewer clients, a smaller model or "
                "another policy"
            )
        self._config = config
        self._weights = weights
        self._cache: NDArray[np.float32] = np.tile(model, (len(weights), 1))
        self._version = np.zeros(len(weights), dtype=np.int64)
        self._holds = np.full(len(weights), _NOTHING, dtype=np.int8)
        self._past: dict[int, Parameters] = {}
        """W(v) for every v that a tolerable client may go on from."""
        self._pending = Pending(len(model))

    @property
    def busy(self) -> Late:
        """Whose model is on its way."""
        return self._pending.on_their_way

    def train(
        self, engine: Engine, model: Parameters, clients: IntArray, round_number: int
    ) -> Updates:
        """Each from the global model, or from the one that it holds."""
        starts = self._starts(model, clients, round_number)
        return joined(
            clients,
            (
                (positions, engine.train(start, clients[positions], round_number))
                for positions, start in starts
            ),
        )

    def merge(self, model: Parameters, answers: Answers) -> ToCombine:
        """Distribution, and SAFA's three steps of aggregation."""
        t, pending, updates = answers.round, self._pending, answers.updates
        late = self._trained(model, answers.late, t)
        starts = self._starts(model, updates.clients, t)
        deprecated = t - 1 - self._version > self._config.lag_tolerance
        synchronised = answers.asked[~self._goes_on(answers.asked, t)]
        self._version[synchronised] = t - 1
        self._holds[synchronised] = _GLOBAL

        pending.drop(deprecated[pending.clients])
        pending.now_seconds = answers.ends_at_seconds
        due = pending.arrived
        self._cache[deprecated] = model  # step 1
        self._cache[pending.clients[due]] = pending.vectors[due]
        self._enter(updates, answers.used, starts)
        after = WeightedMean().combine(self._cache, self._weights)  # step 2
        self._enter(updates, ~answers.used, starts)  # step 3

        arrived = np.concatenate([updates.clients, pending.clients[due]])
        self._version[arrived] = t
        self._holds[arrived] = _TRAINED
        count = int(np.count_nonzero(answers.used)) + int(np.count_nonzero(due))
        pending.drop(due)
        pending.add(answers.late.clients, t, answers.arrives_at_seconds, late)
        self._remember(model, t)
        change = Updates(clients=np.array([-1]), deltas=(after - model)[np.newaxis], signals={})
        return ToCombine(change, np.ones(1), count)

    def arrays(self) -> dict[str, Array]:
        """The cache, who holds what, and what is pending."""
        past = [np.empty((0, self._cache.shape[1]), dtype=np.float32)]
        past += [model[np.newaxis] for model in self._past.values()]
        return {
            "cache": self._cache,
            "version": self._version,
            "holds": self._holds,
            "past_rounds": np.array(list(self._past), dtype=np.int64),
            "past_models": np.concatenate(past),
            **{f"pending.{name}": array for name, array in self._pending.arrays().items()},
        }

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`arrays`."""
        if arrays["cache"].shape != self._cache.shape:
            raise StateError(
                f"saved cache has shape {arrays['cache'].shape}, expected {self._cache.shape}: it "
                "was saved with another model or other clients"
            )
        self._cache = arrays["cache"]
        self._version = arrays["version"]
        self._holds = arrays["holds"]
        self._past = dict(zip(arrays["past_rounds"].tolist(), arrays["past_models"], strict=True))
        prefix = "pending."
        self._pending.load(
            {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
        )

    def _goes_on(self, clients: IntArray, round_number: int) -> BoolArray:
        """bool[n], who is tolerable and has something to go on from."""
        lag = round_number - 1 - self._version[clients]
        goes_on: BoolArray = (lag > 0) & (lag <= self._config.lag_tolerance)
        goes_on &= self._holds[clients] != _NOTHING
        return goes_on

    def _starts(self, model: Parameters, clients: IntArray, round_number: int) -> Starts:
        goes_on = self._goes_on(clients, round_number)
        anew = np.flatnonzero(~goes_on)
        starts = [(anew, model)] if len(anew) > 0 or len(clients) == 0 else []
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

    def _trained(self, model: Parameters, updates: Updates, round_number: int) -> Array:
        """[n, P], the models that these updates lead to."""
        models = np.empty_like(updates.deltas)
        for positions, start in self._starts(model, updates.clients, round_number):
            models[positions] = start + updates.deltas[positions]
        return models

    def _remember(self, model: Parameters, round_number: int) -> None:
        """Keep the global models from which somebody may go on in the next round."""
        self._past[round_number - 1] = model
        lag = round_number - self._version
        needed = (self._holds == _GLOBAL) & (lag <= self._config.lag_tolerance)
        self._past = {v: self._past[v] for v in np.unique(self._version[needed]).tolist()}


# What a server makes of the answers of a round, those that come late among them.


def merger_for(
    late_answers: LateAnswers,
    server: Server,
    sizes: IntArray,
    model: Parameters,
    *,
    num_trainable: int,
    min_answers: int,
) -> tuple[Merger, Server]:
    """Who merges answers as ``late_answers`` says, and the server that this needs.

    Args:
        late_answers: what becomes of late answers.
        server: the user's.
        sizes: [K], how much data each client has.
        model: the initial one.
        num_trainable: of its first so many parameters.
        min_answers: with fewer the model stays as it is.
    """
    data = sizes.astype(np.float64)
    if isinstance(late_answers, Stale):
        server, weights = weighted_server(server, data)
        stale = StaleMerger(
            late_answers,
            weights,
            num_parameters=len(model),
            num_trainable=num_trainable,
            min_answers=min_answers,
        )
        return stale, server
    if isinstance(late_answers, Cached):
        server, weights = weighted_server(server, data, clips=False)
        return CacheMerger(late_answers, weights, model), server
    return DiscardingMerger(data), server

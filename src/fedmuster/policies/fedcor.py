"""FedCor: clients whose training lowers the losses of all, by how losses change together."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.failures import Failures
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.state import given, shared
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.explaining.one_by_one import OneByOne
from fedmuster.policies.score_columns import of_some
from fedmuster.solvers.top_k import filled_up, top_k


@dataclass(slots=True)
class LossChanges:
    """How the losses of all clients changed in each of the last M rounds of random cohorts.

    Attributes:
        values: [K, M], a ring.
        told: bool[K, M], which of them are known.
        rounds: int64[M], the round of each; 0 for none.
        count: how many there were so far.
    """

    values: FloatArray
    told: BoolArray
    rounds: IntArray = shared()
    count: IntArray = shared()

    @classmethod
    def none(cls, num_clients: int, length: int) -> "LossChanges":
        """No change seen yet."""
        return cls(
            values=np.zeros((num_clients, length)),
            told=np.zeros((num_clients, length), dtype=np.bool_),
            rounds=np.zeros(length, dtype=np.int64),
            count=np.array(0),
        )

    def add(self, changes: FloatArray, round_: int) -> None:
        """Enter the changes [K] of a round, in place of the oldest; not finite where unknown."""
        place = int(self.count) % len(self.rounds)
        told = np.isfinite(changes)
        self.values[:, place] = np.where(told, changes, 0.0)
        self.told[:, place] = told
        self.rounds[place] = round_
        self.count += 1

    def embedding(self, dimension: int, *, memory: float, noise: float) -> FloatArray:
        """[K, d], the X of the most likely Gaussian with the covariance ``X X' + noise^2 I``.

        A round that is e rounds older than the last counts ``memory^e``. The maximum is that of
        probabilistic principal components (Tipping and Bishop 1999): the d first axes of the
        weighted covariance, with their variances less that of the noise.
        """
        seen = np.flatnonzero(self.rounds)
        weight = memory ** (self.rounds[seen].max(initial=0) - self.rounds[seen]).astype(np.float64)
        told = self.told[:, seen] * weight
        known = np.maximum(told.sum(axis=1, keepdims=True), 1e-300)
        mean = (self.values[:, seen] * told).sum(axis=1, keepdims=True) / known
        # An unknown change is replaced by the client's mean, and its known ones are scaled up.
        away = np.where(self.told[:, seen], self.values[:, seen] - mean, 0.0)
        away *= np.sqrt(weight / known)
        variance, axes = np.linalg.eigh(away.T @ away)
        variance, axes = variance[::-1][:dimension], axes[:, ::-1][:, :dimension]
        shrink = np.sqrt(np.maximum(variance - noise**2, 0.0) / np.maximum(variance, noise**2))
        found = np.zeros((len(away), dimension))
        found[:, : len(variance)] = away @ (axes * shrink)
        return found


class Sequence(NamedTuple):
    """Clients in the order in which they are chosen; ``gains`` [K], what each client adds to the
    expected reduction of the loss: a chosen one in its turn, another on top of all chosen."""

    picks: IntArray
    gains: FloatArray


def in_sequence(
    embedding: FloatArray,
    weights: FloatArray,
    discount: FloatArray,
    candidates: BoolArray,
    count: int,
    rng: Generator,
    *,
    noise: float,
) -> Sequence:
    """``count`` candidates, in each turn that of the largest ``a_k sum_i p_i S_ik / sqrt(S_kk)``.

    S is the covariance ``X X' + noise^2 I``, after each turn given the loss of the chosen client.
    It is never written down: only its columns of the chosen are, so that time and memory grow with
    K alone.

    Args:
        embedding: X, [K, d].
        weights: p, [K], the clients' shares in the global loss.
        discount: a, [K].
        candidates: bool[K], the clients that may be chosen.
        count: at most as many as there are candidates.
        rng: breaks ties.
        noise: the standard deviation of the noise, > 0.

    Example:
        >>> x = np.array([[2.0, 0.0], [1.9, 0.0], [0.0, 1.0]])
        >>> everybody, alike = np.ones(3, dtype=bool), np.full(3, 1 / 3)
        >>> rng = np.random.default_rng(0)
        >>> found = in_sequence(x, alike, np.ones(3), everybody, 2, rng, noise=0.01)
        >>> found.picks, found.gains.round(2)  # the second says hardly more than the first
        (array([0, 2]), array([1.3 , 0.  , 0.33]))
    """
    total = embedding @ (embedding.T @ weights) + noise**2 * weights  # sum_i p_i S_ik
    variance = np.einsum("ij,ij->i", embedding, embedding) + noise**2
    free, picks = candidates.copy(), np.empty(count, dtype=np.int64)
    gains = np.zeros(len(embedding))
    explained = np.empty((count, len(embedding)))
    for turn in range(count):
        value = np.where(free, discount * total / np.sqrt(variance), -np.inf)
        pick = int(top_k(value, 1, rng)[0])
        column = embedding @ embedding[pick]
        column[pick] += noise**2
        column -= explained[:turn, pick] @ explained[:turn]
        np.divide(column, np.sqrt(variance[pick]), out=explained[turn])
        picks[turn], gains[pick], free[pick] = pick, value[pick], False
        total = total - explained[turn] * (explained[turn] @ weights)
        # What is left is at least the noise; rounding may say less.
        variance = np.maximum(variance - explained[turn] ** 2, noise**2)
    gains[free] = (discount * total / np.sqrt(variance))[free]
    return Sequence(picks, gains)


_LARGEST_CHANGE: Final = 1e6
"""Changes of losses are clipped to this: beyond it the rounding errors of their squares exceed the
noise."""


@dataclass(slots=True)
class CorrelationState:
    """What is known of losses, and what follows from it.

    Attributes:
        losses: [K], the last loss that each client told; infinite for none.
        asked_in: the last round in which clients were asked for their losses; 0 for none.
        changes: of losses, in rounds of random cohorts.
        embedding: [K, d], X.
        chosen: int64[K], how often each client was chosen since X was fitted.
        tried: bool[K], the clients that were ever chosen.
        failures: of each client.
        weights: p, [K].
    """

    losses: FloatArray
    changes: LossChanges
    embedding: FloatArray
    chosen: IntArray
    tried: BoolArray
    failures: Failures
    asked_in: IntArray = shared()
    weights: FloatArray = given()


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedCor(PolicyTraits):
    """Clients whose training is expected to lower the loss of all clients most, one by one.

    The changes of the clients' losses in a round are taken for Gaussian, with a covariance
    ``S = X X' + s^2 I`` that stays for long: clients of similar data have similar rows in X, and
    their losses fall together. If training lowers the loss of client k by ``a_k sqrt(S_kk)``, the
    global loss is expected to fall by ``a_k sum_i p_i S_ik / sqrt(S_kk)``, where ``p_i`` is a
    client's share of the data. The client of the largest such number is taken, S is conditioned on
    its loss, and the next is taken, m times. ``a_k = beta^c``, c the number of times that client k
    was chosen since X was fitted, so that others have their turn.

    X is fitted to the changes of all losses in rounds with random cohorts: the first ``warmup``
    rounds, and then every ``interval``-th. Before and after such a round all available clients are
    asked for the loss of the global model.

    It needs rounds, because it predicts what a round changes. A round costs ``K m (d + m)``, a fit
    ``K M^2``, and the state holds ``K (M + d)`` numbers: no matrix of all pairs is ever made. Where
    clients cannot be asked (in private runs, or without a model), the losses that they report when
    they train take the place of the answers; where they report none, cohorts are random.

    Args:
        warmup: after how many rounds X is first fitted. Authors' runs: 15, 20.
        interval: rounds between random cohorts later on. Authors' runs: 10, 50.
        discount: beta. Authors' runs: 0.95, 0.9.
        dimension: d. Authors' code: 15.
        memory: the weight of a round relative to the next one. Authors' runs: 0.95, 0.99.
        noise: s. Authors' code: 0.01.
        history: M, how many rounds X is fitted to at most.

    State:
        Of each client the last loss, the last changes, its row of X, how often it was chosen, and
        its failures.

    Deviations:
        1. The authors climb to X by 1,000 steps of Adam from a random start. For their kernel, the
           scalar product, the maximum is known in closed form (probabilistic principal components),
           so X is exact, and the same in every run.
        2. In every ``interval``-th round the authors train a random cohort beside the chosen one,
           for its loss changes alone. A policy cannot: here the cohort of that round is random.
        3. A change is known when clients are asked again, a round later, and X is fitted then.
           So ``warmup + 1`` cohorts are random at first, as in the authors' code.
        4. Only available clients are asked. An unknown change is replaced by the client's mean
           change, and the weights of its known changes are scaled up to a sum of 1.
        5. A client that was never chosen and of which no change is known, because it has just
           joined, comes first. The paper's clients are all there from the start.
        6. A client that fails f times in a row rests for ``2^f - 1`` rounds: it is chosen only to
           fill up a cohort.

    References:
        M. Tang, X. Ning, Y. Wang, J. Sun, Y. Wang, H. Li, Y. Chen, FedCor: Correlation-Based Active
        Client Selection Strategy for Heterogeneous Federated Learning, CVPR 2022. M. E. Tipping,
        C. M. Bishop, Probabilistic Principal Component Analysis, J. R. Stat. Soc. B 61, 1999.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> problem = Problem(num_clients=4, cohort_size=1)
        >>> selector = Selector(FedCor(warmup=6, interval=100), problem)
        >>> def ask_loss(clients, *, batch_size=None):  # client 2 alone differs from round to round
        ...     return np.where(clients == 2, 1.0 + selector.round % 3, 1.0)
        >>> for _ in range(8):
        ...     cohort = selector.select(ask_loss=ask_loss)
        ...     answer = Feedback(
        ...         round=cohort.round, clients=cohort.clients, latency_seconds=np.ones(1)
        ...     )
        ...     report = selector.observe(answer)
        >>> cohort.clients
        array([2])
    """

    name: ClassVar[str] = "fedcor"
    rounds_only: ClassVar[str | None] = (
        "it predicts how a round of a whole cohort changes the losses of all clients, and without "
        "rounds there is no such change"
    )
    terms: ClassVar[Mapping[str, str]] = {
        "gain": "by how much the global loss is expected to fall, in its turn or on top of the "
        "cohort",
        "turn": "the turn in which it is chosen",
        "discount": "the factor for how often it was chosen lately",
    }

    warmup: int = 15
    interval: int = 10
    discount: float = 0.95
    dimension: int = 15
    memory: float = 0.95
    noise: float = 0.01
    history: int = 50

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("warmup", "interval", "dimension"):
            require(getattr(self, name) >= 1, self, name, "an integer >= 1")
        require(self.history >= 2, self, "history", "an integer >= 2")
        for name in ("discount", "memory"):
            require(0 < getattr(self, name) <= 1, self, name, "a number in (0, 1]")
        require(0 < self.noise < np.inf, self, "noise", "a number > 0")

    def init(self, problem: Problem) -> CorrelationState:
        """No loss known yet."""
        clients, samples = problem.num_clients, problem.num_samples
        data = np.ones(clients) if samples is None else samples.astype(np.float64)
        return CorrelationState(
            losses=np.full(clients, np.inf),
            changes=LossChanges.none(clients, self.history),
            embedding=np.zeros((clients, self.dimension)),
            chosen=np.zeros(clients, dtype=np.int64),
            tried=np.zeros(clients, dtype=np.bool_),
            failures=Failures.none(clients),
            asked_in=np.array(0),
            weights=data / data.sum(),
        )

    def select(self, state: CorrelationState, view: RoundView, rng: Generator) -> Selection:
        """A random cohort, or one by one; clients that failed lately fill up."""
        fit, count = view.available & ~state.failures.resting(view.round), view.num_to_choose
        chosen = np.empty(0, dtype=np.int64)
        if not self._is_random(view.round) and state.embedding.any():
            new = np.flatnonzero(fit & self._new(state))
            chosen = new[top_k(np.zeros(len(new)), min(count, len(new)), rng)]
            chosen = np.append(chosen, self._sequence(state, fit, count - len(chosen), rng).picks)
        selection = filled_up(view, chosen, fit, rng)
        if view.ask_loss is None or not self._asks(view.round):
            return selection
        asked, losses = np.flatnonzero(view.available), np.full(len(fit), np.inf)
        answers = view.ask_loss(asked) if len(asked) > 0 else np.empty(0)
        losses[asked] = np.where(np.isfinite(answers), answers, np.inf)
        return replace(selection, losses=losses)

    def observe(self, state: CorrelationState, selection: Selection, feedback: Feedback) -> None:
        """Remember how losses changed; fit X after a random cohort."""
        round_, clients = selection.round, feedback.clients
        state.failures.observe(feedback)
        state.tried[clients] = True
        if not self._is_random(round_):
            state.chosen[clients] += 1
        if self._asks(round_):
            self._learn(state, round_, selection.losses, feedback)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return OneByOne(
            formula=f"cohorts are random up to round {self.warmup + 1:,} and every "
            f"{self.interval:,} rounds; else one by one the client from which the global loss is "
            "expected to fall most, by how losses change together",
            unseen="the cohort of this round was random, or it is new, or it fills up the cohort",
        )

    def scores(self, state: CorrelationState, view: RoundView) -> Mapping[str, FloatArray]:
        """Gain, turn and discount of each client, in rounds whose cohort is not random."""
        fit, new = view.available & ~state.failures.resting(view.round), self._new(state)
        candidates, turn = np.flatnonzero(fit & ~new), np.full(len(fit), np.nan)
        if self._is_random(view.round) or not state.embedding.any():
            candidates = candidates[:0]
        missing = view.num_to_choose - int(np.count_nonzero(fit & new))
        count = min(max(missing, 0), len(candidates))
        found = self._sequence(state, fit, count, stream(0, POLICY, view.round))
        turn[found.picks] = 1.0 + np.arange(count)
        discount = self.discount ** state.chosen[candidates].astype(np.float64)
        return of_some(
            candidates,
            len(fit),
            gain=found.gains[candidates],
            turn=turn[candidates],
            discount=discount,
        )

    def _is_random(self, round_: int) -> bool:
        """Whether the cohort of a round is random."""
        return round_ <= self.warmup + 1 or round_ % self.interval == 0

    def _tells(self, round_: int) -> bool:
        """Whether X is fitted to what a round changes."""
        return round_ <= self.warmup or round_ % self.interval == 0

    def _asks(self, round_: int) -> bool:
        """Whether clients are asked for their losses before a round."""
        return self._tells(round_) or self._tells(round_ - 1)

    def _new(self, state: CorrelationState) -> BoolArray:
        return np.asarray(~state.tried & ~state.changes.told.any(axis=1))

    def _sequence(
        self, state: CorrelationState, fit: BoolArray, count: int, rng: Generator
    ) -> Sequence:
        candidates = fit & ~self._new(state)
        return in_sequence(
            state.embedding,
            state.weights,
            self.discount ** state.chosen.astype(np.float64),
            candidates,
            min(count, int(np.count_nonzero(candidates))),
            rng,
            noise=self.noise,
        )

    def _learn(
        self, state: CorrelationState, round_: int, asked: FloatArray | None, feedback: Feedback
    ) -> None:
        now = np.full(len(state.losses), np.inf)
        if asked is not None:
            now[: len(asked)] = asked  # clients may have joined since
            changed = int(state.asked_in) == round_ - 1 and self._tells(round_ - 1)
            state.asked_in[...] = round_
        else:
            loss = feedback.signals.get("loss", np.full(len(feedback.clients), np.nan))
            told = feedback.answered & np.isfinite(loss)
            now[feedback.clients[told]] = loss[told]
            changed = self._is_random(round_)
        if changed:
            with np.errstate(invalid="ignore"):
                changes = now - state.losses
            known = np.isfinite(changes)
            changes[known] = np.clip(changes[known], -_LARGEST_CHANGE, _LARGEST_CHANGE)
            if known.any():
                self._fit(state, changes, round_)
        state.losses[:] = now if asked is not None else np.where(np.isinf(now), state.losses, now)

    def _fit(self, state: CorrelationState, changes: FloatArray, round_: int) -> None:
        state.changes.add(changes, round_)
        if round_ > self.warmup:
            state.embedding[:] = state.changes.embedding(
                self.dimension, memory=self.memory, noise=self.noise
            )
            state.chosen[:] = 0

"""Pisces: clients whose data teach the model most, and whose answers are not too old."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.utility import known_utility, reported_loss
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection, of_rows
from fedmuster.core.state import derived, given, shared
from fedmuster.policies.pisces.explain import ByStaleUtility
from fedmuster.policies.pisces.outliers import RecentLosses
from fedmuster.solvers.tournament import Tournament

_MEMORY = 0.9
"""How much of the usual utility is old, when a client has answered."""
_AFTER_FAILURE = 0.5


@dataclass(slots=True)
class PiscesState:
    """What is known of each client, what all have in common, and an index of the best clients.

    Attributes:
        utility: [K], n times the root mean square loss of the last answer.
        stalenesses: [K, w], the stalenesses of the last w answers, a ring.
        answers: int64[K], how often each client has answered.
        tried: bool[K], the clients that were asked and came back, or failed to.
        credits: int64[K], how many outlying losses a client may still report.
        recent: the losses of the last answers.
        usual_utility: an average of the last utilities.
        lessons: how often the policy has learned.
        best: the tried clients that may be chosen, by score.
        untried: the others, all alike.
        indexed: how many lessons ``best`` and ``untried`` include.
        samples: n of each client; 0-d where all have alike.
    """

    utility: FloatArray
    stalenesses: FloatArray
    answers: IntArray
    tried: BoolArray
    credits: IntArray
    recent: RecentLosses
    best: Tournament
    untried: Tournament
    usual_utility: FloatArray = shared()
    lessons: IntArray = shared()
    indexed: IntArray = derived()
    samples: FloatArray = given()


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Pisces(PolicyTraits):
    """Clients of high statistical utility whose answers are not too stale; some never tried before.

    A client that has answered scores ``n · rms loss / (s + 1)^0.5``: n its samples, the loss that
    of its last training, s the mean of its last 5 stalenesses. The staleness of an answer is the
    number of aggregations since its client was asked.

    Of the free slots ``Binomial(slots, eps)`` go to clients that were never tried, uniformly, and
    the others to the highest scores. Slots that one kind cannot fill go to the other. eps is 0.9
    at first; each time the policy learns it is multiplied by 0.98, and it is never below 0.3.

    In an experiment it works without rounds, as published: a slot is refilled as soon as its client
    has answered, and the server aggregates by the trigger ``pace``. A table ``federation`` of the
    policy's own replaces any of these settings. In rounds all stalenesses are 0.

    With ``robust``, clients whose losses are outliers are excluded in the end: of the last answers
    of different clients, DBSCAN finds the losses that are in no cluster. A client whose answer is
    one of them loses a credit, and a client without credits is never asked again.

    Args:
        exploration: eps at first. Authors' runs: 0.9.
        exploration_decay: its factor each time. Authors' runs: 0.98.
        exploration_floor: the least eps. Authors' runs: 0.3.
        staleness_power: how much staleness counts. Authors' runs: 0.5; 0.2 and 0.8 for comparison.
        window: of how many answers the staleness is averaged. Authors' code: 5.
        robust: whether outliers are excluded. Authors' runs: only where clients are corrupted.
        credits: how many outlying losses exclude a client. Authors' code: 5.
        outlier_radius: up to which distance losses are neighbours. Authors' code: 0.5.
        outlier_rounds: outliers are sought among the last ``outlier_rounds · m`` answers, m the
            cohort size or the concurrency. Authors' code: the answers to the last 5 models.

    State:
        Of each client the utility, the last stalenesses, answers, credits; eps; the last losses.

    Deviations:
        1. Root mean square loss, as in the paper; the authors' code takes the root of a moving
           average of mean losses. Without losses (in private runs, or without a model) the utility
           is the number of samples.
        2. A client that fails is tried, and keeps half of its utility; half of the usual utility if
           it has never answered. The paper does not say what a failure means.
        3. eps falls each time the policy learns: in rounds with each round, without with each
           message, which holds one answer or several. The authors' server decides every five
           seconds, and eps falls with each decision that follows an answer.
        4. The last answers stand for the answers to the last models, because a policy is not told
           the number of a model. In rounds that is the same.
        5. A client loses a credit for an outlying answer of its own, once. In the authors' code all
           recent outliers lose one whenever any client answers, so that a single answer can exclude
           a client.
        6. While no losses are near each other, nobody is an outlier; in the authors' code all are.
        7. The policy does not choose the server rule. The authors' server mixes the models of
           clients into its own: ``server = {name = "fedasync", mixing = 1.0}`` of a training. The
           default server adds updates, as FedBuff does; a pace that aggregates few answers then
           needs a smaller learning rate, or the model diverges.

    References:
        Z. Jiang, W. Wang, B. Li, B. Li, Pisces: Efficient Federated Learning via Guided
        Asynchronous Training, SoCC 2022.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> selector = Selector(Pisces(), Problem(num_clients=50, cohort_size=5))
        >>> first = selector.select(count=5)
        >>> selector.give_up(first.tickets[:2]).not_completed.shape
        (2,)
        >>> selector.select(count=2).clients.shape
        (2,)
    """

    name: ClassVar[str] = "pisces"
    cohort_rule: ClassVar[Any] = property(lambda self: "at most" if self.robust else "exact")
    published_federation: ClassVar[Mapping[str, Any]] = {
        "refill": 1,
        "trigger": {"name": "pace"},
        "staleness": {"name": "polynomial", "power": 0.5},
    }
    terms: ClassVar[Mapping[str, str]] = {
        "utility": "samples times root mean square loss when it last trained",
        "mean_staleness": "the mean age of its last answers, in aggregations",
        "exploration": "eps, the share of slots that goes to clients never tried",
        "credits": "how many outlying losses it may still report",
    }

    exploration: float = 0.9
    exploration_decay: float = 0.98
    exploration_floor: float = 0.3
    staleness_power: float = 0.5
    window: int = 5
    robust: bool = False
    credits: int = 5
    outlier_radius: float = 0.5
    outlier_rounds: int = 5

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("exploration", "exploration_decay", "exploration_floor"):
            require(0 <= getattr(self, name) <= 1, self, name, "a number in [0, 1]")
        for name in ("staleness_power", "outlier_radius"):
            require(0 <= getattr(self, name) < np.inf, self, name, "a number >= 0")
        for name in ("window", "credits", "outlier_rounds"):
            require(getattr(self, name) >= 1, self, name, "an integer >= 1")

    def init(self, problem: Problem) -> PiscesState:
        """No client tried yet."""
        clients, samples = problem.num_clients, problem.num_samples
        return PiscesState(
            utility=np.zeros(clients),
            stalenesses=np.zeros((clients, self.window)),
            answers=np.zeros(clients, dtype=np.int64),
            tried=np.zeros(clients, dtype=np.bool_),
            credits=np.full(clients, self.credits),
            recent=RecentLosses.of_last(
                self.outlier_rounds * problem.cohort_size if self.robust else 0
            ),
            best=Tournament.of(np.full(clients, -np.inf)),
            untried=Tournament.of(np.zeros(clients)),
            usual_utility=np.array(0.0),
            lessons=np.array(0, dtype=np.int64),
            indexed=np.array(0, dtype=np.int64),
            samples=np.array(1.0) if samples is None else samples.astype(np.float64),
        )

    def select(self, state: PiscesState, view: RoundView, rng: Generator) -> Selection:
        """Explore and exploit; what one cannot fill, the other does."""
        slots, (best, untried) = view.cohort_size, self._index(state)
        tries = int(rng.binomial(slots, self._exploration(state)))
        explored = untried.best(tries, view.available, rng)
        exploited = best.best(slots - len(explored), view.available, rng)
        if len(explored) + len(exploited) < slots:
            explored = untried.best(slots - len(exploited), view.available, rng)
        return Selection.of(view, slice(None), np.concatenate([exploited, explored]))

    def observe(self, state: PiscesState, selection: Selection, feedback: Feedback) -> None:
        """Remember utility and staleness of answers; failures cost half of the utility."""
        clients = feedback.clients
        if len(clients) == 0:
            return
        self._learn_utility(state, feedback)
        if self.robust:
            self._judge_losses(state, feedback)
        state.tried[clients] = True
        current = int(state.indexed) == int(state.lessons)
        state.lessons += 1
        state.indexed[...] = state.lessons
        if current:
            state.best.update(clients, self._score(state, clients))
            state.untried.update(clients, np.full(len(clients), -np.inf))
        else:  # clients have joined
            state.best, state.untried = self._build_index(state)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return ByStaleUtility(robust=self.robust)

    def scores(self, state: PiscesState, view: RoundView) -> Mapping[str, FloatArray]:
        """Score and terms of the clients that were tried; eps."""
        everybody, tried = np.arange(len(state.tried)), state.tried
        score = self._score(state, everybody)
        columns = {
            "score": np.where(score > -np.inf, score, np.nan),
            "utility": np.where(tried, state.utility, np.nan),
            "mean_staleness": np.where(tried, _mean_staleness(state, everybody), np.nan),
            "exploration": np.full(len(tried), self._exploration(state)),
        }
        return {**columns, "credits": state.credits.astype(np.float64)} if self.robust else columns

    def _exploration(self, state: PiscesState) -> float:
        """eps, which falls with every lesson."""
        decayed = self.exploration * self.exploration_decay ** int(state.lessons)
        return max(decayed, self.exploration_floor)

    def _learn_utility(self, state: PiscesState, feedback: Feedback) -> None:
        clients, answered = feedback.clients, feedback.answered
        samples = of_rows(state.samples, clients)
        utility = known_utility(feedback, samples)
        here = clients[answered]
        state.utility[here] = utility[answered]
        told = feedback.signals.get("staleness", np.zeros(len(clients)))[answered]
        staleness = np.maximum(np.nan_to_num(told), 0.0)
        state.stalenesses[here, state.answers[here] % self.window] = staleness
        state.answers[here] += 1
        if len(here) > 0:
            mean = np.sort(utility[answered]).mean()  # in one order, whatever that of the rows is
            memory = _MEMORY if state.usual_utility > 0 else 0.0
            state.usual_utility[...] = memory * state.usual_utility + (1.0 - memory) * mean
        failed = clients[~answered]
        guess = np.where(state.usual_utility > 0, state.usual_utility, samples)
        before = np.where(state.tried[clients], state.utility[clients], guess)
        state.utility[failed] = _AFTER_FAILURE * before[~answered]

    def _judge_losses(self, state: PiscesState, feedback: Feedback) -> None:
        """Take a credit from each client whose answer is an outlier among the last answers."""
        loss = reported_loss(feedback)
        rows = np.flatnonzero(np.isfinite(loss))
        if len(rows) == 0:
            return
        rows = rows[np.argsort(feedback.clients[rows])]
        state.recent.add(feedback.clients[rows], loss[rows])
        cohort_size = len(state.recent.clients) // self.outlier_rounds
        outliers = state.recent.outliers(
            radius=self.outlier_radius, neighbours=max(cohort_size // 2, 1), enough=cohort_size
        )
        own = np.intersect1d(outliers, feedback.clients[rows])
        state.credits[own] = np.maximum(state.credits[own] - 1, 0)

    def _score(self, state: PiscesState, rows: IntArray) -> FloatArray:
        """[n], of tried clients with credits; -inf of others."""
        score = state.utility[rows] * (_mean_staleness(state, rows) + 1.0) ** -self.staleness_power
        score[~state.tried[rows] | (state.credits[rows] == 0)] = -np.inf
        return score

    def _index(self, state: PiscesState) -> tuple[Tournament, Tournament]:
        """The tried clients by score, and the untried; after clients have joined, built anew."""
        if int(state.indexed) == int(state.lessons):
            return state.best, state.untried
        return self._build_index(state)

    def _build_index(self, state: PiscesState) -> tuple[Tournament, Tournament]:
        score = self._score(state, np.arange(len(state.tried)))
        return Tournament.of(score), Tournament.of(np.where(state.tried, -np.inf, 0.0))


def _mean_staleness(state: PiscesState, rows: IntArray) -> FloatArray:
    """[n], of the last answers; 0 for clients that have never answered."""
    known = np.minimum(state.answers[rows], state.stalenesses.shape[1])
    return np.asarray(state.stalenesses[rows].sum(axis=1) / np.maximum(known, 1))

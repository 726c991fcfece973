"""REFL: prefers clients that are about to leave, and merges late updates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.staleness import AgeAndNovelty, Staleness
from fedmuster.core.state import given, shared
from fedmuster.policies.explaining.simple_rules import Highest
from fedmuster.solvers.top_k import highest


@dataclass(slots=True)
class REFLState:
    """When each client last took part (0 for never), and how long a round takes (0: unknown).

    And the cohort size.
    """

    last_round: IntArray
    window_seconds: FloatArray = shared()
    cohort_size: IntArray = given()


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class REFL(PolicyTraits):
    """Takes the least available clients first: they may not come back for long.

    A round is expected to take ``w``, a moving average ``w <- (1 - a) D + a w`` of how long rounds
    took. Clients say whether they will be available in all of the next w seconds, and in all of
    the w seconds after that. Whoever expects to stay for the first and not for the second comes
    first; the rest of the cohort is drawn uniformly from all others. Who took part in one of the
    last rounds rests. Where clients do not say, and before a round was ever timed, all are alike.

    Late updates are not lost: they enter the model of the round in which they come, weighted by
    age and novelty, see :class:`~fedmuster.core.staleness.AgeAndNovelty`.

    Args:
        memory: a, how much of the average of past rounds stays. Authors' code: 0.25.
        rest_rounds: who took part in round t is not chosen before round t + rest_rounds, unless
            too few others are there. Authors' code: 5; 1 for no rest.
        beta: how much the novelty of a late update weighs against its age. Paper: 0.35.
        max_staleness: after how many rounds a late update is lost; None for never, as in the paper.

    State:
        Of each client the last round it took part in; the moving average.

    Deviations:
        1. In the paper clients answer with a probability of being available in the second window,
           and are sorted by it; here, as in the authors' code, with yes or no for both windows.
        2. Clients that rest fill a cohort that would be too small without them. In the paper they
           do not check in; in the authors' code random others that are online take their places.
        3. The window begins with the first timed round, not with 1,000 s. A round that nobody timed
           counts as long as its slowest answer.
        4. The cohort is not made smaller by the late updates that are expected (the paper's
           optional adaptive target): a policy does not hear of them before they come.
        5. Faults of the public code that are not repeated: fewer clients than there are places for,
           and resting clients that are skipped by a loop over a list that it shortens.
        6. Without rounds, as many clients as a cohort has make up a round. A client rests from the
           round in which it answered. w is how long a job takes: a moving average of latencies in
           which each answer weighs as one of m, so that m answers keep the share a of the past.
        7. In the paper a client rests when it has answered, so that a client that never answers
           does not. Behind a Selector a silent client rests after 5 jobs in a row without an answer
           (fedmuster.core.liveness); rest_after = 0 is the published rule.

    References:
        A. M. Abdelmoniem, A. N. Sahu, M. Canini, S. A. Fahmy, REFL: Resource-Efficient Federated
        Learning, EuroSys 2023, arXiv:2111.01108.

    Example:
        >>> from fedmuster import Feedback, Problem, Selector
        >>> selector = Selector(REFL(), Problem(num_clients=5, cohort_size=2))
        >>> first = selector.select()
        >>> _ = selector.observe(
        ...     Feedback(round=1, clients=np.array([0, 1]), latency_seconds=np.ones(2))
        ... )
        >>> def forecast(window_seconds):
        ...     return np.ones(5, dtype=bool), np.array([True, True, False, True, False])
        >>> selector.select(forecast=forecast).clients
        array([2, 4])
    """

    name: ClassVar[str] = "refl"
    terms: ClassVar[Mapping[str, str]] = {
        "priority": "3 rested and about to leave, 2 rested, 1 and 0 the same while it rests",
        "rested": "whether it has not taken part for long enough",
        "leaving": "whether it expects to be gone in the next window",
        "rounds_since": "rounds since it last took part",
    }

    memory: float = 0.25
    rest_rounds: int = 5
    beta: float = 0.35
    max_staleness: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.memory < 1, self, "memory", "a number in [0, 1)")
        require(self.rest_rounds >= 1, self, "rest_rounds", "an integer >= 1")
        require(0 <= self.beta <= 1, self, "beta", "a number in [0, 1]")
        oldest = self.max_staleness
        require(oldest is None or oldest >= 1, self, "max_staleness", "an integer >= 1")

    @property
    def stale_answers(self) -> Staleness:
        """They enter later rounds."""
        return AgeAndNovelty(beta=self.beta, max_age=self.max_staleness)

    def init(self, problem: Problem) -> REFLState:
        """No client took part yet."""
        return REFLState(
            last_round=np.zeros(problem.num_clients, dtype=np.int64),
            window_seconds=np.array(0.0),
            cohort_size=np.array(problem.cohort_size),
        )

    def select(self, state: REFLState, view: RoundView, rng: Generator) -> Selection:
        """The highest priorities; among equals chance decides."""
        rows = view.candidates()
        return highest(view, rows, _priority(*self._situation(state, view))[rows], rng)

    def observe(self, state: REFLState, selection: Selection, feedback: Feedback) -> None:
        """Note who took part, and how long it took."""
        answered = feedback.answered
        state.last_round[feedback.clients[answered]] = feedback.round
        seconds, memory = feedback.lasted_seconds, self.memory
        if selection.tickets is not None:
            jobs = np.sort(feedback.latency_seconds[answered])
            seconds = float(jobs.mean()) if len(jobs) else 0.0
            memory **= len(jobs) / int(state.cohort_size)
        if seconds > 0:
            memory = memory if state.window_seconds > 0 else 0.0
            state.window_seconds *= memory
            state.window_seconds += (1 - memory) * seconds

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return Highest(
            term="priority",
            formula="the highest priority: clients that are about to leave first, resting clients "
            "last",
        )

    def scores(self, state: REFLState, view: RoundView) -> Mapping[str, FloatArray]:
        """3 for rested clients that are about to leave, 2 for others; 1 and 0 if they rest."""
        rested, leaving = self._situation(state, view)
        columns = {"priority": _priority(rested, leaving), "rested": rested, "leaving": leaving}
        told = {name: np.where(view.available, of, np.nan) for name, of in columns.items()}
        since = np.where(state.last_round > 0, view.round - state.last_round, np.nan)
        return {**told, "rounds_since": since}

    def _situation(self, state: REFLState, view: RoundView) -> tuple[BoolArray, BoolArray]:
        """The clients that have rested, and the clients that are about to leave."""
        rested = (state.last_round == 0) | (view.round - state.last_round >= self.rest_rounds)
        if view.forecast is None or state.window_seconds == 0:
            return rested, np.zeros_like(rested)
        this_window, next_window = view.forecast(float(state.window_seconds))
        return rested, this_window & ~next_window


def _priority(rested: BoolArray, leaving: BoolArray) -> FloatArray:
    return np.asarray(2.0 * rested + leaving, dtype=np.float64)

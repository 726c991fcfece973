"""A policy as a stranger would write it, in one file."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster import Feedback, PolicyTraits, Problem, RoundView, Selection
from fedmuster.core.arrays import FloatArray, IntArray


@dataclass(slots=True)
class MeanSeconds:
    """The seconds that each client has taken in all, and how often it was asked."""

    seconds: FloatArray
    asked: IntArray


@dataclass(frozen=True, kw_only=True, slots=True)
class EpsGreedy(PolicyTraits):
    """The clients with the shortest mean latency, and now and then anybody.

    Args:
        epsilon: the share of clients that count as promising, whatever is known of them.
        failure_seconds: what counts as the latency of a client that does not answer.
    """

    name: ClassVar[str] = "eps-greedy"
    terms: ClassVar[dict[str, str]] = {"score": "minus the mean latency so far"}

    epsilon: float = 0.1
    failure_seconds: float = 10.0

    def init(self, problem: Problem) -> MeanSeconds:
        """Nobody was asked yet."""
        clients = problem.num_clients
        return MeanSeconds(seconds=np.zeros(clients), asked=np.zeros(clients, dtype=np.int64))

    def select(self, state: MeanSeconds, view: RoundView, rng: Generator) -> Selection:
        """The highest scores; a lucky client counts as unseen, and the unseen come first."""
        rows = np.flatnonzero(view.available)
        lucky = rng.random(len(rows)) < self.epsilon
        score = np.where(lucky | (state.asked[rows] == 0), np.inf, self._score(state)[rows])
        best = np.lexsort((rng.random(len(rows)), -score))[: view.num_to_choose]
        return Selection.of(view, rows, best)

    def observe(self, state: MeanSeconds, selection: Selection, feedback: Feedback) -> None:
        """Add up the latencies of the cohort."""
        seconds = np.where(feedback.answered, feedback.latency_seconds, self.failure_seconds)
        state.seconds[feedback.clients] += seconds
        state.asked[feedback.clients] += 1

    def scores(self, state: MeanSeconds, view: RoundView) -> dict[str, FloatArray]:
        """Minus the mean latency."""
        return {"score": np.where(state.asked > 0, self._score(state), np.nan)}

    def _score(self, state: MeanSeconds) -> FloatArray:
        return -state.seconds / np.maximum(state.asked, 1)

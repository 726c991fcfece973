"""CS-UCB: the fastest clients."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import check_types, require
from fedmuster.core.policy import PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView, Selection
from fedmuster.estimators.confidence import confidence_radius, log_rounds
from fedmuster.estimators.latency import LatencyReward, LatencyState
from fedmuster.policies.published import EVERYBODY, published
from fedmuster.solvers.cohort import highest


@dataclass(frozen=True, kw_only=True, slots=True)
class CSUCB(PolicyTraits):
    """The m fastest clients, found by UCB: each once, then the highest index.

    The reward of an answer is ``1 - tau / tau_max``, the index
    ``mean + sqrt((m+1) ln t / z_k)``, ``z_k`` the times the client was asked.

    Args:
        tau_max_seconds: the longest conceivable latency; None for the longest seen so far.

    State:
        Of each client the times asked and answered and the summed latency; the longest latency.

    Deviations:
        1. A client that was asked and did not complete earns reward 0.
        2. Without ``tau_max_seconds`` the running maximum takes its place.

    References:
        W. Xia, T. Quek, K. Guo, W. Wen, H. Yang, H. Zhu, Multi-Armed Bandit-Based Client
        Scheduling for Federated Learning, IEEE Trans. Wireless Commun. 19(11), 2020.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> Selector(CSUCB(), Problem(num_clients=20, cohort_size=5)).select().clients.shape
        (5,)
    """

    name: ClassVar[str] = "cs-ucb"

    tau_max_seconds: float | None = None

    def __post_init__(self) -> None:
        check_types(self)
        given = self.tau_max_seconds
        require(given is None or 0 < given < math.inf, self, "tau_max_seconds", "seconds > 0")

    @property
    def _reward(self) -> LatencyReward:
        return LatencyReward(tau_max_seconds=self.tau_max_seconds)

    def init(self, problem: Problem) -> LatencyState:
        """Nobody observed yet."""
        return self._reward.init(problem.num_clients)

    def select(self, state: LatencyState, view: RoundView, rng: Generator) -> Selection:
        """The m highest upper confidence bounds."""
        rows = view.candidates()
        mean, bonus = self._terms(state, view, rows)
        bonus += mean
        return highest(view, rows, bonus, rng)

    def observe(self, state: LatencyState, selection: Selection, feedback: Feedback) -> None:
        """Update counts and sums of the cohort."""
        self._reward.update(state, feedback)

    def scores(self, state: LatencyState, view: RoundView) -> Mapping[str, FloatArray]:
        """The index of each client: mean reward and confidence bonus."""
        mean, bonus = self._terms(state, view, EVERYBODY)
        index = published(bonus + mean, mean_reward=mean, confidence_bonus=bonus)
        return {**index, "times_asked": state.asked.astype(np.float64)}

    def _terms(
        self, state: LatencyState, view: RoundView, rows: IntArray | slice
    ) -> tuple[FloatArray, FloatArray]:
        log_term = (view.cohort_size + 1) * log_rounds(view.round)
        return self._reward.mean(state, rows), confidence_radius(state.asked[rows], log_term)

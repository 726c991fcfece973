"""Speed ``tau_min / tau`` (BSFL, PAUSE) and reward ``1 - tau / tau_max`` (CS-UCB) of clients."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedmuster.bandits.means import MeanEstimator, MeanState, confidence_radius, log_rounds
from fedmuster.core.arrays import FloatArray, IntArray, blocks, tabulate
from fedmuster.core.config import require, shared_settings
from fedmuster.core.records import Feedback
from fedmuster.core.state import shared


@dataclass(slots=True)
class SpeedState:
    """Mean of ``1/tau`` of each client, and the smallest latency that anybody ever had."""

    inverse: MeanState
    fastest_seconds: FloatArray = shared()


def check_seconds(config: object, name: str) -> None:
    """Check a hyper-parameter that is a number of seconds > 0, or None."""
    given = getattr(config, name)
    require(given is None or 0 < given < np.inf, config, name, "seconds > 0")


def check_speed(config: object) -> None:
    """Check the hyper-parameters of a :class:`SpeedEstimator` that ``config`` has."""
    check_seconds(config, "tau_min_seconds")
    require(0 < getattr(config, "zeta", 1) < np.inf, config, "zeta", "a number > 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedEstimator:
    """Mean and upper confidence bound of the speed ``s = tau_min / tau`` (BSFL Eq. 8–12).

    ``tau_min`` is rarely known. It is kept outside the mean, so that a new running minimum
    re-scales the past for free. A client that did not complete had speed 0: if failures were not
    counted, a client that never answers would stay unseen, and be chosen for ever.

    Args:
        estimator: which samples count.
        tau_min_seconds: the shortest conceivable latency; None for the shortest seen so far.
        zeta: factor on the mean, > 1 to exploit more (PAUSE section V.D).
    """

    estimator: MeanEstimator
    tau_min_seconds: float | None
    zeta: float = 1.0

    def __post_init__(self) -> None:
        check_speed(self)

    @classmethod
    def of(cls, config: object) -> Self:
        """The estimator with the hyper-parameters of a policy, where the policy has them."""
        return cls(**shared_settings(cls, config))

    def init(self, num_clients: int) -> SpeedState:
        """No client observed yet."""
        return SpeedState(
            inverse=self.estimator.init(num_clients), fastest_seconds=np.array(np.inf)
        )

    def update(self, state: SpeedState, feedback: Feedback) -> None:
        """Count the answers, and the missing ones, of a round."""
        answered = feedback.answered
        inverse = np.zeros(len(answered))
        np.divide(1.0, feedback.latency_seconds, out=inverse, where=answered)
        self.estimator.update(state.inverse, feedback.clients, inverse, round_=feedback.round)
        if answered.any():
            fastest = feedback.latency_seconds[answered].min()
            np.minimum(state.fastest_seconds, fastest, out=state.fastest_seconds)

    def upper_bound(
        self,
        state: SpeedState,
        rows: IntArray | slice,
        *,
        round_: int,
        cohort_size: int,
        out: FloatArray | None = None,
    ) -> FloatArray:
        """``ucb(k, t-1)``, with which round t chooses; ``+inf`` for the unseen (BSFL Eq. 9, 13)."""
        # PAUSE Eq. 13 is the same index; its large networks multiply the mean by zeta.
        bound = self._radius(state, rows, round_, cohort_size, out)
        mean, scale = state.inverse.mean[rows], self.zeta * self._tau_min(state)
        for block in blocks(len(bound)):
            bound[block] += mean[block] * scale  # BSFL Eq. 12
        return bound

    def terms(
        self, state: SpeedState, rows: IntArray | slice, *, round_: int, cohort_size: int
    ) -> tuple[FloatArray, FloatArray]:
        """Mean speed (times zeta) and confidence radius, whose sum is the upper bound."""
        mean = state.inverse.mean[rows] * (self.zeta * self._tau_min(state))
        return mean, self._radius(state, rows, round_, cohort_size)

    def _radius(
        self,
        state: SpeedState,
        rows: IntArray | slice,
        round_: int,
        cohort_size: int,
        out: FloatArray | None = None,
    ) -> FloatArray:
        log_term = (cohort_size + 1) * log_rounds(self.estimator.horizon(round_ - 1))
        count = self.estimator.effective_count(state.inverse, rows, round_=round_ - 1)
        if np.issubdtype(count.dtype, np.integer):
            whole = count.astype(np.int64, copy=False)
            return tabulate(whole, lambda c: confidence_radius(c, log_term), out)
        return confidence_radius(count, log_term)

    def _tau_min(self, state: SpeedState) -> float:
        if self.tau_min_seconds is not None:
            return self.tau_min_seconds
        fastest = float(state.fastest_seconds)
        return fastest if fastest < np.inf else 0.0  # nobody answered yet: all means are 0


@dataclass(slots=True)
class LatencyState:
    """Times each client was asked and answered, its summed latency, and the longest of all."""

    asked: IntArray
    answered: IntArray
    latency_sum: FloatArray
    slowest_seconds: FloatArray = shared()


@dataclass(frozen=True, kw_only=True, slots=True)
class LatencyReward:
    """Kept as counts and sums, so that a new ``tau_max`` re-scales the past for free.

    Args:
        tau_max_seconds: the longest conceivable latency; None for the longest seen so far.
    """

    tau_max_seconds: float | None

    def init(self, num_clients: int) -> LatencyState:
        """No client observed yet."""
        return LatencyState(
            asked=np.zeros(num_clients, dtype=np.int64),
            answered=np.zeros(num_clients, dtype=np.int64),
            latency_sum=np.zeros(num_clients),
            slowest_seconds=np.array(0.0),
        )

    def update(self, state: LatencyState, feedback: Feedback) -> None:
        """Count the answers, and the missing ones, of a round."""
        answered = feedback.answered
        state.asked[feedback.clients] += 1
        clients, latency = feedback.clients[answered], feedback.latency_seconds[answered]
        if self.tau_max_seconds is not None:
            latency = np.minimum(latency, self.tau_max_seconds)  # a reward is never below 0
        state.answered[clients] += 1
        state.latency_sum[clients] += latency
        slowest = latency.max(initial=0.0)
        np.maximum(state.slowest_seconds, slowest, out=state.slowest_seconds)

    def mean(self, state: LatencyState, rows: IntArray | slice) -> FloatArray:
        """Mean of ``1 - tau / tau_max``; no answer earns 0, and so does a client never asked."""
        slowest = self._longest_seconds(state) or 1.0
        reward = state.answered[rows] - state.latency_sum[rows] / slowest
        return np.asarray(reward / np.maximum(state.asked[rows], 1))

    def mean_seconds(self, state: LatencyState, rows: IntArray | slice) -> FloatArray:
        """Mean of ``tau``; no answer took ``tau_max``, and a client never asked has 0."""
        asked = state.asked[rows]
        missing = (asked - state.answered[rows]) * self._longest_seconds(state)
        return np.asarray((state.latency_sum[rows] + missing) / np.maximum(asked, 1))

    def _longest_seconds(self, state: LatencyState) -> float:
        """``tau_max``; 0 before it is known."""
        return self.tau_max_seconds or float(state.slowest_seconds)

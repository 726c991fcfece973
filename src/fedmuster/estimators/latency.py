"""The mean latency of each client, and its reward ``1 - tau / tau_max``, as CS-UCB has it."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import Feedback, FloatArray, IntArray
from fedmuster.core.state import shared


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
        """Nobody observed yet."""
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

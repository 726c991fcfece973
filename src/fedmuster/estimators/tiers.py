"""Tiers of clients that are about as fast as each other."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import Feedback, FloatArray, IntArray
from fedmuster.core.state import shared
from fedmuster.estimators.latency import LatencyReward, LatencyState


@dataclass(slots=True)
class TierState:
    """Latencies of each client, and the longest mean latency of each tier but the last."""

    latency: LatencyState
    bounds_seconds: FloatArray = shared()

    @property
    def asked(self) -> IntArray:
        """[K], how often each client was asked."""
        return self.latency.asked


@dataclass(frozen=True, kw_only=True, slots=True)
class LatencyTiers:
    """``num_tiers`` tiers of equal size by mean latency, 0 the fastest.

    Who did not answer took the longest latency that anybody had, or the timeout where there is
    one; who never answered is in the last tier. Bounds are set by :meth:`divide`; in between
    clients change tiers as their means do.

    Args:
        num_tiers: T.
        timeout_seconds: nothing counts as longer; None for the longest seen so far.
    """

    num_tiers: int
    timeout_seconds: float | None = None

    def init(self, num_clients: int) -> TierState:
        """Nobody observed yet: all are in tier 0."""
        return TierState(
            latency=self._latency.init(num_clients),
            bounds_seconds=np.full(self.num_tiers - 1, np.inf),
        )

    def update(self, state: TierState, feedback: Feedback) -> None:
        """Count the answers, and the missing ones, of a round."""
        self._latency.update(state.latency, feedback)

    def mean_seconds(self, state: TierState, rows: IntArray | slice) -> FloatArray:
        """Mean latency; 0 of a client that was never asked."""
        return self._latency.mean_seconds(state.latency, rows)

    def divide(self, state: TierState) -> None:
        """Set the bounds so that all tiers have as many of the clients that ever answered.

        Clients of the same mean are in the same tier.
        """
        means = self.mean_seconds(state, np.flatnonzero(state.latency.answered))
        if len(means) > 0:
            ends = -(-len(means) * np.arange(1, self.num_tiers) // self.num_tiers) - 1
            state.bounds_seconds[:] = np.partition(means, ends)[ends]

    def tier(self, state: TierState, rows: IntArray | slice) -> IntArray:
        """The tier of each client: how many bounds its mean exceeds; 0 if it was never asked."""
        tier = np.searchsorted(state.bounds_seconds, self.mean_seconds(state, rows))
        silent = (state.latency.answered[rows] == 0) & (state.asked[rows] > 0)
        tier[silent] = self.num_tiers - 1
        return tier

    def columns(self, state: TierState) -> dict[str, FloatArray | IntArray]:
        """Mean latency, tier and times asked of each client, for reports."""
        everybody = slice(None)
        return {
            "mean_seconds": self.mean_seconds(state, everybody),
            "tier": self.tier(state, everybody),
            "times_asked": state.asked,
        }

    def means(self, state: TierState, values: FloatArray) -> FloatArray:
        """[T], the mean in each tier of those ``values`` ([K]) that are finite; -inf of none."""
        rows = np.flatnonzero(np.isfinite(values))
        tier = self.tier(state, rows)
        members = np.bincount(tier, minlength=self.num_tiers)
        total = np.bincount(tier, weights=values[rows], minlength=self.num_tiers)
        means = np.full(self.num_tiers, -np.inf)
        np.divide(total, members, out=means, where=members > 0)
        return means

    @property
    def _latency(self) -> LatencyReward:
        return LatencyReward(tau_max_seconds=self.timeout_seconds)

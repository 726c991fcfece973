"""The world in which PAUSE was tried."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmuster.core.config import require
from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds.latency import NormalLatency
from fedmuster.worlds.layout import shuffled_groups
from fedmuster.worlds.setting import Setting
from fedmuster.worlds.world import WorldRun

_CLUSTER_KEY = 2
"""Clusters have a layout stream of their own: with and without them, the same clients are fast."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PauseGroups(Setting):
    """A fast half and a slow half, in clusters that share an access point where wanted.

    Latencies ``max(tau_min, N(mean, 0.05²))``; the fast have the means ``0.05 + 0.15 i/n`` and
    the slow ``0.7 + 0.2 j/n`` with i, j = 1 … n (PAUSE V.A; the numbers are in the authors' code).

    Args:
        num_clients: K; with an odd K the slow are one more. Paper: 30 and 300.
        num_clusters: R, of equal size up to one client, at random; None for none. Paper: none for
            R1; 6 (K = 30) and 20 (K = 300) for R2.
        cluster_delay_seconds: δ_τ, added to the round for each client beyond the first of its
            cluster. Paper: 0.05 (K = 30) and 0.01 (K = 300).

    References:
        O. Peleg, N. Lang, D. Ben Ami, S. Rini, N. Shlezinger, K. Cohen, PAUSE: Low-Latency and
        Privacy-Aware Active User Selection for Federated Learning.

    Example:
        >>> run = PauseGroups(num_clusters=6).start(seed=1)
        >>> np.bincount(run.groups), np.bincount(run.problem.clusters)
        (array([15, 15]), array([5, 5, 5, 5, 5, 5]))
    """

    name: ClassVar[str] = "pause-groups"

    num_clients: int = 30
    cohort_size: int = 5
    num_clusters: int | None = None
    cluster_delay_seconds: float = 0.05

    _TAU_MIN: ClassVar[float] = 0.05
    _SD: ClassVar[float] = 0.05

    def __post_init__(self) -> None:
        Setting.__post_init__(self)
        self.require_count("num_clients")
        if self.num_clusters is not None:
            self.require_count("num_clusters")
        fits = 0 <= self.cluster_delay_seconds < np.inf
        require(fits, self, "cluster_delay_seconds", "a number >= 0")

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        K, fast = self.num_clients, self.num_clients // 2
        rank = stream(seed, LAYOUT).permutation(K)
        ladder = np.concatenate(
            [
                self._TAU_MIN + 0.15 * np.arange(1, fast + 1) / max(fast, 1),
                0.7 + 0.2 * np.arange(1, K - fast + 1) / (K - fast),
            ]
        )
        clusters = None
        if self.num_clusters is not None:
            clusters = shuffled_groups(K, self.num_clusters, stream(seed, LAYOUT, _CLUSTER_KEY))
        law = NormalLatency(mean=ladder[rank], sd=np.full(K, self._SD), floor=self._TAU_MIN)
        return self.begin(
            seed,
            self.stationary(law, self._TAU_MIN),
            tau_min_seconds=self._TAU_MIN,
            groups=(rank >= fast).astype(np.int64),
            clusters=clusters,
            cluster_delay_seconds=self.cluster_delay_seconds,
        )

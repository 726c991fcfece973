"""The two worlds in which BSFL was tried."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedmuster.core.config import require
from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds.laws.latency import NormalLatency, RateLatency
from fedmuster.worlds.layout import shuffled_groups
from fedmuster.worlds.setting import Setting
from fedmuster.worlds.world import WorldRun


@dataclass(frozen=True, kw_only=True, slots=True)
class BSFLGroups(Setting):
    """Ten equal groups whose mean iteration times rise from 0.1 to 1.0 s.

    The selection-only study of BSFL (VI, Fig. 5, 6): 500 clients, 10,000 rounds. The paper states
    neither the distribution nor tau_min; here latencies are normal with a floor at tau_min, so the
    fastest group, whose mean is the floor, really takes 0.104 s on average.

    Args:
        num_clients: K. Paper: 500.
        num_groups: of equal size up to one client, at random. Paper: 10.
        fastest_seconds: mean iteration time of group 0. Paper: 0.1.
        slowest_seconds: mean iteration time of the last group. Paper: 1.0.
        relative_sd: standard deviation of a latency over its mean.
        tau_min_seconds: the floor.

    References:
        D. Ben Ami, K. Cohen, Q. Zhao, Client Selection for Generalization in Accelerated
        Federated Learning: A Multi-Armed Bandit Approach, IEEE Access 13, 2025.

    Example:
        >>> run = BSFLGroups().start(seed=1)
        >>> np.bincount(run.groups)
        array([50, 50, 50, 50, 50, 50, 50, 50, 50, 50])
    """

    name: ClassVar[str] = "bsfl-groups"

    num_clients: int = 500
    cohort_size: int = 25
    num_groups: int = 10
    fastest_seconds: float = 0.1
    slowest_seconds: float = 1.0
    relative_sd: float = 0.1
    tau_min_seconds: float = 0.1

    def __post_init__(self) -> None:
        Setting.__post_init__(self)
        self.require_count("num_clients")
        self.require_count("num_groups")
        self.require_positive("tau_min_seconds", "relative_sd", "fastest_seconds")
        fits = self.fastest_seconds <= self.slowest_seconds < np.inf
        require(fits, self, "slowest_seconds", "a number >= fastest_seconds")

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        groups = shuffled_groups(self.num_clients, self.num_groups, stream(seed, LAYOUT))
        mean = np.linspace(self.fastest_seconds, self.slowest_seconds, self.num_groups)[groups]
        law = NormalLatency(mean=mean, sd=self.relative_sd * mean, floor=self.tau_min_seconds)
        clients = self.stationary(law, self.tau_min_seconds)
        return self.begin(seed, clients, tau_min_seconds=self.tau_min_seconds, groups=groups)


@dataclass(frozen=True, kw_only=True, slots=True)
class BSFLRates(Setting):
    """A few fast clients, some very slow ones, and the rest in between, as in BSFL's code.

    Speeds ``tau_min / tau`` are normal and clipped to [0.1, 1], so latencies are in [0.1, 1] s.
    Mean speeds: fast U(.93, .97), slow U(.10, .12), the rest U(.15, .20) or U(.7, .8); standard
    deviation of each client U(0, .03).

    Args:
        num_clients: K. Paper: 20 (linear regression), 500 (images).
        fast_share: at least one client is fast unless it is 0. Authors' code: 0.03 … 0.05.
        slow_share: Authors' code: 0.10 … 0.20.
        rest: "slow" for U(.15, .20), "fast" for U(.7, .8).

    Deviations:
        1. The authors clip ``0.1 / N(rate, sd)``, which makes a client of negative speed the
           fastest of all; here it is the slowest.
        2. Nothing is known of the clients before the first round; the authors' runs fill in
           counts from the true rates.

    References:
        D. Ben Ami, K. Cohen, Q. Zhao, Client Selection for Generalization in Accelerated
        Federated Learning: A Multi-Armed Bandit Approach, IEEE Access 13, 2025.

    Example:
        >>> run = BSFLRates().start(seed=1)
        >>> np.bincount(run.groups)
        array([ 1, 16,  3])
    """

    name: ClassVar[str] = "bsfl-rates"

    num_clients: int = 20
    cohort_size: int = 5
    fast_share: float = 0.04
    slow_share: float = 0.15
    rest: Literal["slow", "fast"] = "slow"

    _TAU_MIN: ClassVar[float] = 0.1
    _SLOWEST_RATE: ClassVar[float] = 0.1
    _LARGEST_SD: ClassVar[float] = 0.03

    def __post_init__(self) -> None:
        Setting.__post_init__(self)
        self.require_count("num_clients")
        require(0 <= self.fast_share <= 1, self, "fast_share", "a number in [0, 1]")
        fits = 0 <= self.slow_share <= 1 - self.fast_share
        require(fits, self, "slow_share", "a number in [0, 1 - fast_share]")
        require(self.rest in ("slow", "fast"), self, "rest", "'slow' or 'fast'")

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        K, rng = self.num_clients, stream(seed, LAYOUT)
        fast = round(self.fast_share * K)
        if self.fast_share > 0:
            fast = max(fast, 1)
        slow = min(round(self.slow_share * K), K - fast)
        groups = rng.permutation(np.repeat([0, 1, 2], [fast, K - fast - slow, slow]))
        between = (0.15, 0.20) if self.rest == "slow" else (0.7, 0.8)
        low, high = np.array([(0.93, 0.97), between, (0.10, 0.12)]).T
        law = RateLatency(
            rate=rng.uniform(low[groups], high[groups]),
            sd=self._LARGEST_SD * (1.0 - rng.random(K)),  # in (0, .03]: never 0
            tau_min=self._TAU_MIN,
            slowest_rate=self._SLOWEST_RATE,
        )
        clients = self.stationary(law, self._TAU_MIN)
        return self.begin(seed, clients, tau_min_seconds=self._TAU_MIN, groups=groups)


# The world in which PAUSE was tried.

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

"""A world of clients with widely different speeds, of any size."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedmuster.core.config import require
from fedmuster.core.records import FloatArray
from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds.latency import (
    LatencyLaw,
    LogNormalLatency,
    NormalLatency,
    ShiftedExponentialLatency,
)
from fedmuster.worlds.layout import log_uniform, speed_groups
from fedmuster.worlds.setting import Setting
from fedmuster.worlds.world import WorldRun


@dataclass(frozen=True, kw_only=True, slots=True)
class Exponential:
    """``floor + Exp(mean - floor)``: the mean is kept, the spread grows with it."""

    name: ClassVar[str] = "exponential"

    def law(self, mean: FloatArray, floor: float) -> LatencyLaw:
        """The latencies of clients with these means."""
        return ShiftedExponentialLatency(mean=mean, floor=floor)


@dataclass(frozen=True, kw_only=True, slots=True)
class Normal:
    """``max(floor, N(mean, (relative_sd mean)²))``."""

    name: ClassVar[str] = "normal"

    relative_sd: float = 0.1

    def __post_init__(self) -> None:
        require(0 < self.relative_sd < np.inf, self, "relative_sd", "a number > 0")

    def law(self, mean: FloatArray, floor: float) -> LatencyLaw:
        """The latencies of clients with these means."""
        return NormalLatency(mean=mean, sd=self.relative_sd * mean, floor=floor)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogNormal:
    """``max(floor, X)``, X log-normal with this mean and a standard deviation relative to it."""

    name: ClassVar[str] = "log-normal"

    relative_sd: float = 0.5

    def __post_init__(self) -> None:
        require(0 < self.relative_sd < np.inf, self, "relative_sd", "a number > 0")

    def law(self, mean: FloatArray, floor: float) -> LatencyLaw:
        """The latencies of clients with these means."""
        return LogNormalLatency(mean=mean, relative_sd=self.relative_sd, floor=floor)


@dataclass(frozen=True, kw_only=True, slots=True)
class LatencyWorld(Setting):
    """Clients of widely different speeds, with exponential, normal or log-normal latencies.

    Args:
        num_clients: K.
        fastest_seconds: smallest mean latency; above ``tau_min_seconds``.
        slowest_seconds: largest mean latency.
        spacing: means are drawn "log-uniform" between the two or are spaced "even"-ly.
        distribution: of a client's latency around its mean.
        tau_min_seconds: the floor.

    Example:
        >>> world = LatencyWorld(num_clients=1_000, distribution=LogNormal(relative_sd=1.0))
        >>> world.start(seed=1).realise(7).latency_seconds.shape
        (1000,)
    """

    name: ClassVar[str] = "latency"

    num_clients: int = 1000
    cohort_size: int = 20
    fastest_seconds: float = 0.1
    slowest_seconds: float = 10.0
    spacing: Literal["log-uniform", "even"] = "log-uniform"
    distribution: Exponential | Normal | LogNormal = Exponential()
    tau_min_seconds: float = 0.05

    def __post_init__(self) -> None:
        Setting.__post_init__(self)
        self.require_count("num_clients")
        self.require_positive("tau_min_seconds")
        fits = self.tau_min_seconds < self.fastest_seconds < np.inf
        require(fits, self, "fastest_seconds", "a number > tau_min_seconds")
        fits = self.fastest_seconds <= self.slowest_seconds < np.inf
        require(fits, self, "slowest_seconds", "a number >= fastest_seconds")
        require(self.spacing in ("log-uniform", "even"), self, "spacing", "'log-uniform' or 'even'")

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        rng = stream(seed, LAYOUT)
        low, high, K = self.fastest_seconds, self.slowest_seconds, self.num_clients
        if self.spacing == "even":
            mean = rng.permutation(np.linspace(low, high, K))
        else:
            mean = log_uniform(low, high, K, rng)
        law = self.distribution.law(mean, self.tau_min_seconds)
        return self.begin(
            seed,
            self.stationary(law, self.tau_min_seconds),
            tau_min_seconds=self.tau_min_seconds,
            groups=speed_groups(mean),
        )

"""Worlds of clients with widely different speeds: without and with features of the round."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray
from fedmuster.core.config import require
from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds.laws.latency import (
    EmpiricalLatency,
    LatencyLaw,
    LogNormalLatency,
    NormalLatency,
    ShiftedExponentialLatency,
)
from fedmuster.worlds.layout import log_uniform, speed_groups, zipf_ladder
from fedmuster.worlds.setting import Setting
from fedmuster.worlds.world import WORLDS, RoundDraw, WorldRun


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
class Fixed:
    """Every job of a client takes its mean latency."""

    name: ClassVar[str] = "fixed"

    def law(self, mean: FloatArray, floor: float) -> LatencyLaw:
        """The latencies of clients with these means, which are above the floor."""
        return EmpiricalLatency(seconds=mean, counts=np.ones(len(mean), dtype=np.int64))


@WORLDS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class LatencyWorld(Setting):
    """Clients of widely different speeds; latencies vary around each client's mean, or are fixed.

    Args:
        num_clients: K.
        fastest_seconds: smallest mean latency; above ``tau_min_seconds``.
        slowest_seconds: largest mean latency.
        spacing: means are drawn "log-uniform" between the two, spaced evenly ("even"), or fall with
            the rank of the client as ``rank^-exponent``, scaled to the two ("zipf"): a few clients
            are slow, most are nearly as fast as the fastest. Pisces' authors have "zipf" from 15 to
            180 s.
        exponent: of "zipf". Pisces: 1.2, and for comparison 1.6 and 2.
        distribution: of a client's latency around its mean. Pisces: "fixed".
        tau_min_seconds: the shortest latency.

    References:
        Z. Jiang, W. Wang, B. Li, B. Li, Pisces: Efficient Federated Learning via Guided
        Asynchronous Training, SoCC 2022; the numbers are in the authors' published code.

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
    spacing: Literal["log-uniform", "even", "zipf"] = "log-uniform"
    exponent: float = 1.2
    distribution: Exponential | Normal | LogNormal | Fixed = Exponential()
    tau_min_seconds: float = 0.05

    def __post_init__(self) -> None:
        Setting.__post_init__(self)
        self.require_count("num_clients")
        self.require_positive("tau_min_seconds")
        fits = self.tau_min_seconds < self.fastest_seconds < np.inf
        require(fits, self, "fastest_seconds", "a number > tau_min_seconds")
        fits = self.fastest_seconds <= self.slowest_seconds < np.inf
        require(fits, self, "slowest_seconds", "a number >= fastest_seconds")
        self.require_positive("exponent")

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        rng = stream(seed, LAYOUT)
        low, high, K = self.fastest_seconds, self.slowest_seconds, self.num_clients
        if self.spacing == "even":
            mean = rng.permutation(np.linspace(low, high, K))
        elif self.spacing == "zipf":
            mean = rng.permutation(zipf_ladder(low, high, K, exponent=self.exponent))
        else:
            mean = log_uniform(low, high, K, rng)
        law = self.distribution.law(mean, self.tau_min_seconds)
        tau_min, groups = self.tau_min_seconds, speed_groups(mean)
        return self.begin(seed, law, tau_min_seconds=tau_min, groups=groups)


@WORLDS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class ContextualWorld(Setting):
    """Latency is linear in features that the server sees: load and bandwidth of the round.

    RBCS-F's setting. In each round each client has a free share of its CPU and a bandwidth. The
    server sees ``c = (1 / free CPU ratio, bits / bandwidth)`` before it chooses, and the client
    takes ``max(tau_min, theta_k · c + N(0, sd²))`` seconds, with a theta of its own. The truth is
    that of the round: the expectation over the noise alone, given the features.

    The ranges are this package's choice and not taken from the paper.

    Args:
        num_clients: K.
        compute_seconds: range of theta's first entry, the time to train on an idle CPU;
            log-uniform over clients.
        upload_factor: range of theta's second entry, protocol overhead; uniform over clients.
        free_cpu_ratio: range of the free share of the CPU, at most 1; uniform over rounds.
        bandwidth_mbit_per_second: its range; log-uniform over rounds.
        upload_mbit: size of an update.
        noise_sd_seconds: standard deviation of the noise.
        tau_min_seconds: the shortest latency.

    References:
        T. Huang, W. Lin, W. Wu, L. He, K. Li, A. Zomaya, An Efficiency-Boosting Client Selection
        Scheme for Federated Learning with Fairness Guarantee, IEEE TPDS 32(7), 2021.

    Example:
        >>> ContextualWorld(num_clients=40).start(seed=1).realise(1).features.shape
        (40, 2)
    """

    name: ClassVar[str] = "contextual"

    num_clients: int = 100
    cohort_size: int = 10
    compute_seconds: tuple[float, float] = (0.5, 5.0)
    upload_factor: tuple[float, float] = (1.0, 1.5)
    free_cpu_ratio: tuple[float, float] = (0.2, 1.0)
    bandwidth_mbit_per_second: tuple[float, float] = (1.0, 10.0)
    upload_mbit: float = 5.0
    noise_sd_seconds: float = 0.1
    tau_min_seconds: float = 0.5

    def __post_init__(self) -> None:
        Setting.__post_init__(self)
        self.require_count("num_clients")
        self.require_range("compute_seconds", "upload_factor", "bandwidth_mbit_per_second")
        self.require_range("free_cpu_ratio", limit=1.0)
        self.require_positive("upload_mbit", "noise_sd_seconds", "tau_min_seconds")

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        K, layout = self.num_clients, stream(seed, LAYOUT)
        theta = np.column_stack(
            [log_uniform(*self.compute_seconds, K, layout), layout.uniform(*self.upload_factor, K)]
        )
        sd = np.full(K, self.noise_sd_seconds)

        def clients(_round: int, rng: Generator) -> RoundDraw:
            bandwidth = log_uniform(*self.bandwidth_mbit_per_second, K, rng)
            features = np.column_stack(
                [1.0 / rng.uniform(*self.free_cpu_ratio, K), self.upload_mbit / bandwidth]
            )
            law = NormalLatency(mean=np.vecdot(theta, features), sd=sd, floor=self.tau_min_seconds)
            return RoundDraw(
                latency_seconds=law.draw(rng),
                expectation=cache(lambda: self.truth(law, self.tau_min_seconds)),
                features=features,
            )

        usual = (
            1.0 / np.mean(self.free_cpu_ratio),
            self.upload_mbit / np.mean(self.bandwidth_mbit_per_second),
        )
        usual_latency = theta @ np.array(usual)
        return self.begin(
            seed,
            clients,
            tau_min_seconds=self.tau_min_seconds,
            groups=speed_groups(usual_latency),
            num_features=len(usual),
            usual_latency_seconds=usual_latency,
        )

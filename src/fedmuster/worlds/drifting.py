"""A world of clients whose speeds change while the federation runs."""

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import ClassVar, Literal

import numpy as np

from fedmuster.core.arrays import FloatArray
from fedmuster.core.config import require
from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds.laws.latency import LogNormalLatency
from fedmuster.worlds.layout import speed_groups
from fedmuster.worlds.setting import Setting
from fedmuster.worlds.world import WORLDS, Pace, WorldRun

_LEVELS_KEY = 1
"""The speeds after each jump have layout streams of their own."""


@WORLDS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class DriftingWorld(Setting):
    """Clients whose speeds change with time, so that what was learned of them grows old.

    A job that a client begins at time t takes ``r^u_k(t) X`` seconds, where ``r`` is
    ``slowest_seconds / fastest_seconds``, u_k(t) in [0, 1] is how slow the client is then, and X is
    log-normal with the mean ``fastest_seconds``, but at least ``tau_min_seconds``. X belongs to the
    round, or to the n-th job of the client, and u_k to the clock: policies have the same luck, in
    rounds and without. The truth is that of a job that begins now.

    Args:
        num_clients: K.
        fastest_seconds: mean latency at u = 0; above ``tau_min_seconds``.
        slowest_seconds: mean latency at u = 1.
        change: "jumps": a client keeps its u for ``every_seconds``, then draws another, uniformly;
            each client jumps at times of its own. "waves": ``u = (1 + sin 2 pi (t / every_seconds +
            phase_k)) / 2``, as load follows the hours of a day.
        every_seconds: from one jump of a client to its next, or the period of the waves.
        relative_sd: standard deviation of X over its mean.
        tau_min_seconds: the shortest latency.

    Example:
        >>> run = DriftingWorld(num_clients=50, every_seconds=10.0).start(seed=1)
        >>> before, after = (run.realise(1, now_seconds=t).latency_seconds for t in (0.0, 10.0))
        >>> bool((before != after).all())
        True
    """

    name: ClassVar[str] = "drifting"

    num_clients: int = 100
    cohort_size: int = 10
    fastest_seconds: float = 0.1
    slowest_seconds: float = 1.0
    change: Literal["jumps", "waves"] = "jumps"
    every_seconds: float = 20.0
    relative_sd: float = 0.2
    tau_min_seconds: float = 0.05

    def __post_init__(self) -> None:
        Setting.__post_init__(self)
        self.require_count("num_clients")
        self.require_positive("tau_min_seconds", "every_seconds", "relative_sd")
        fits = self.tau_min_seconds < self.fastest_seconds < np.inf
        require(fits, self, "fastest_seconds", "a number > tau_min_seconds")
        fits = self.fastest_seconds <= self.slowest_seconds < np.inf
        require(fits, self, "slowest_seconds", "a number >= fastest_seconds")

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        K = self.num_clients
        phase = stream(seed, LAYOUT).random(K)

        @lru_cache(maxsize=2)
        def levels(jump: int) -> FloatArray:
            return stream(seed, LAYOUT, _LEVELS_KEY, jump).random(K)

        def slowness(now_seconds: float) -> FloatArray:
            periods = now_seconds / self.every_seconds
            if self.change == "waves":
                return np.asarray(0.5 + 0.5 * np.sin(2 * np.pi * (periods + phase)))
            whole = math.floor(periods)
            has_jumped = periods - whole + phase >= 1.0
            return np.where(has_jumped, levels(whole + 1), levels(whole))

        def drift(now_seconds: float) -> Pace:
            slowdown = self._ratio ** slowness(now_seconds)
            law = self._law(slowdown)
            return Pace(slowdown, cache(lambda: self.truth(law, self.tau_min_seconds)))

        steady = self._law(np.ones(K))
        return self.begin(
            seed,
            steady,
            tau_min_seconds=self.tau_min_seconds,
            groups=speed_groups(slowness(0.0)),
            usual_latency_seconds=self._usual_slowdown * steady.mean_seconds(),
            drift=drift,
        )

    @property
    def _ratio(self) -> float:
        return self.slowest_seconds / self.fastest_seconds

    def _law(self, slowdown: FloatArray) -> LogNormalLatency:
        """The law of jobs whose times are these multiples of the fastest clients' times."""
        return LogNormalLatency(
            mean=self.fastest_seconds * slowdown,
            relative_sd=self.relative_sd,
            floor=self.tau_min_seconds * slowdown,
        )

    @property
    def _usual_slowdown(self) -> float:
        """The mean of ``r^u`` over time: u is uniform, or ``(1 + sin) / 2`` of a uniform phase."""
        log_ratio = math.log(self._ratio)
        if self.change == "waves":
            return math.sqrt(self._ratio) * float(np.i0(0.5 * log_ratio))
        return (self._ratio - 1.0) / log_ratio if log_ratio > 0 else 1.0

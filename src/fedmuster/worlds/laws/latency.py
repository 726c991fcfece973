"""Latency laws: how long each client takes, with exact expectations.

A law has one row per client. Expectations are of the latency as drawn, floor and clipping
included: closed forms where they exist, otherwise quadrature.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray, IntArray

_NUM_NODES = 96
_CHUNK = 4096
"""Clients integrated together: keeps the temporaries at a few megabytes whatever K is."""

_erfc = np.frompyfunc(math.erfc, 1, 1)


def normal_cdf(z: FloatArray) -> FloatArray:
    """``Φ(z)`` to machine precision, also far in the lower tail.

    numpy has no erf; :func:`math.erfc`, called client by client, takes about 0.2 s for a million.
    """
    return np.asarray(0.5 * _erfc(-z / math.sqrt(2.0)), dtype=np.float64)


def normal_density(z: FloatArray) -> FloatArray:
    """``φ(z)``."""
    return np.asarray(np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi), dtype=np.float64)


@cache
def gauss_legendre(num_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes in [-1, 1] and their weights; shared, so callers must not change them."""
    nodes, weights = np.polynomial.legendre.leggauss(num_nodes)
    return nodes, weights


def partial_mean_inverse(
    density: Callable[[FloatArray], FloatArray],
    *,
    location: FloatArray,
    scale: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> FloatArray:
    """``E[1/X; low < Z <= high]`` of ``X = location + scale Z > 0`` for Z with this ``density``.

    Gauss-Legendre in ``u = ln(X / location)``, in which ``dx/x = du`` has no pole; ``expm1`` and
    ``log1p`` keep it exact for a tiny scale. An empty interval (``high < low``) gives 0.
    """
    nodes, weights = gauss_legendre(_NUM_NODES)
    ratio = scale / location
    start = np.log1p(ratio * low)
    half = 0.5 * (np.log1p(ratio * np.maximum(low, high)) - start)
    result = np.empty_like(location)
    for first in range(0, len(location), _CHUNK):
        rows = slice(first, first + _CHUNK)
        u = start[rows, None] + half[rows, None] * (1.0 + nodes)
        result[rows] = density(np.expm1(u) / ratio[rows, None]) @ weights
    result *= half / scale
    return result


_NORMAL_REACH = 8.5
"""Standard deviations beyond which a normal has less than 2e-17 of its mass."""
_EXPONENTIAL_REACH = 40.0
"""Means beyond which an exponential has less than 5e-18 of its mass."""


class LatencyLaw(Protocol):
    """The latencies of K clients in any one round, independent between rounds."""

    def draw(self, rng: Generator) -> FloatArray:
        """[K] seconds, > 0; a fresh array."""

    def mean_seconds(self) -> FloatArray:
        """[K], ``E[tau_k]``."""

    def mean_inverse(self, deadline_seconds: float = np.inf) -> FloatArray:
        """[K], ``E[1/tau_k; tau_k <= deadline]`` in 1/s."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NormalLatency:
    """``tau = max(floor, N(mean, sd^2))``, with mean, sd and floor > 0."""

    mean: FloatArray
    sd: FloatArray
    floor: float

    def draw(self, rng: Generator) -> FloatArray:
        """See :class:`LatencyLaw`."""
        seconds = rng.standard_normal(len(self.mean))
        seconds *= self.sd
        seconds += self.mean
        return np.maximum(seconds, self.floor, out=seconds)

    def mean_seconds(self) -> FloatArray:
        """See :class:`LatencyLaw`."""
        z = (self.floor - self.mean) / self.sd
        return self.floor * normal_cdf(z) + self.mean * normal_cdf(-z) + self.sd * normal_density(z)

    def mean_inverse(self, deadline_seconds: float = np.inf) -> FloatArray:
        """See :class:`LatencyLaw`."""
        if deadline_seconds < self.floor:
            return np.zeros(len(self.mean))
        at_floor = normal_cdf((self.floor - self.mean) / self.sd) / self.floor
        return at_floor + _normal_inverse(self.mean, self.sd, self.floor, deadline_seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class RateLatency:
    """``tau = tau_min / clip(N(rate, sd^2), slowest_rate, 1)``, with rate, sd, slowest_rate > 0."""

    rate: FloatArray
    sd: FloatArray
    tau_min: float
    slowest_rate: float

    def draw(self, rng: Generator) -> FloatArray:
        """See :class:`LatencyLaw`."""
        rate = rng.standard_normal(len(self.rate))
        rate *= self.sd
        rate += self.rate
        np.clip(rate, self.slowest_rate, 1.0, out=rate)
        return np.divide(self.tau_min, rate, out=rate)

    def mean_seconds(self) -> FloatArray:
        """See :class:`LatencyLaw`."""
        slowest = normal_cdf((self.slowest_rate - self.rate) / self.sd) / self.slowest_rate
        between = _normal_inverse(self.rate, self.sd, self.slowest_rate, 1.0)
        fastest = normal_cdf((self.rate - 1.0) / self.sd)
        return self.tau_min * (slowest + between + fastest)

    def mean_inverse(self, deadline_seconds: float = np.inf) -> FloatArray:
        """See :class:`LatencyLaw`."""
        if deadline_seconds < self.tau_min:
            return np.zeros(len(self.rate))
        # The slowest round exactly as it is drawn, so that a deadline right there counts it.
        slowest_in_time = self.tau_min / self.slowest_rate <= deadline_seconds
        low = self.slowest_rate if slowest_in_time else self.tau_min / deadline_seconds
        a, b = (low - self.rate) / self.sd, (1.0 - self.rate) / self.sd
        between = self.rate * (normal_cdf(b) - normal_cdf(a))
        between += self.sd * (normal_density(a) - normal_density(b))
        slowest = self.slowest_rate * normal_cdf(a) if slowest_in_time else 0.0
        return np.asarray((slowest + between + normal_cdf(-b)) / self.tau_min)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShiftedExponentialLatency:
    """``tau = floor + Exp(mean - floor)``, with mean > floor > 0."""

    mean: FloatArray
    floor: float

    def draw(self, rng: Generator) -> FloatArray:
        """See :class:`LatencyLaw`."""
        seconds = rng.standard_exponential(len(self.mean))
        seconds *= self.mean - self.floor
        seconds += self.floor
        return seconds

    def mean_seconds(self) -> FloatArray:
        """See :class:`LatencyLaw`."""
        return self.mean

    def mean_inverse(self, deadline_seconds: float = np.inf) -> FloatArray:
        """See :class:`LatencyLaw`."""
        scale = self.mean - self.floor
        return partial_mean_inverse(
            lambda z: np.asarray(np.exp(-z)),
            location=np.full_like(scale, self.floor),
            scale=scale,
            low=np.zeros_like(scale),
            high=np.minimum(_EXPONENTIAL_REACH, (deadline_seconds - self.floor) / scale),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LogNormalLatency:
    """``tau = max(floor, X)`` with X log-normal of this mean and ``sd(X) = relative_sd mean``.

    ``floor`` is one for all clients, or [K].
    """

    mean: FloatArray
    relative_sd: float
    floor: float | FloatArray

    def draw(self, rng: Generator) -> FloatArray:
        """See :class:`LatencyLaw`."""
        sigma = log_normal_sigma(self.relative_sd)
        seconds = rng.standard_normal(len(self.mean))
        seconds *= sigma
        seconds -= 0.5 * sigma * sigma
        np.exp(seconds, out=seconds)
        seconds *= self.mean
        return np.maximum(seconds, self.floor, out=seconds)

    def mean_seconds(self) -> FloatArray:
        """See :class:`LatencyLaw`."""
        sigma, z = self._sigma_and_z(self.floor)
        return self.floor * normal_cdf(z) + self.mean * normal_cdf(sigma - z)

    def mean_inverse(self, deadline_seconds: float = np.inf) -> FloatArray:
        """See :class:`LatencyLaw`."""
        sigma, z = self._sigma_and_z(self.floor)
        _, last = self._sigma_and_z(deadline_seconds)
        above = normal_cdf(last + sigma) - normal_cdf(z + sigma)
        inverse = normal_cdf(z) / self.floor + math.exp(sigma * sigma) / self.mean * above
        return np.where(deadline_seconds < self.floor, 0.0, inverse)

    def _sigma_and_z(self, seconds: float | FloatArray) -> tuple[float, FloatArray]:
        """The sd of ln X, and the standard normal quantile at which X is ``seconds``."""
        sigma = log_normal_sigma(self.relative_sd)
        return sigma, np.asarray((np.log(seconds) - np.log(self.mean)) / sigma + 0.5 * sigma)


@dataclass(frozen=True, kw_only=True, slots=True)
class EmpiricalLatency:
    """Each client draws from its own measured latencies.

    ``seconds`` holds the measurements of client 0, then those of client 1, …; client k has
    ``counts[k]`` >= 1 of them.
    """

    seconds: FloatArray
    counts: IntArray

    def draw(self, rng: Generator) -> FloatArray:
        """See :class:`LatencyLaw`."""
        return np.asarray(self.seconds[self._starts + rng.integers(self.counts)])

    def mean_seconds(self) -> FloatArray:
        """See :class:`LatencyLaw`."""
        return self._mean(self.seconds)

    def mean_inverse(self, deadline_seconds: float = np.inf) -> FloatArray:
        """See :class:`LatencyLaw`."""
        return self._mean((self.seconds <= deadline_seconds) / self.seconds)

    @property
    def _starts(self) -> IntArray:
        return np.asarray(np.cumsum(self.counts) - self.counts)

    def _mean(self, values: FloatArray) -> FloatArray:
        return np.asarray(np.add.reduceat(values, self._starts) / self.counts)


def log_normal_sigma(relative_sd: float) -> float:
    """The standard deviation of ln X, for X log-normal with ``sd(X) = relative_sd E[X]``."""
    return math.sqrt(math.log1p(relative_sd**2))


def _normal_inverse(mean: FloatArray, sd: FloatArray, low: float, high: float) -> FloatArray:
    """``E[1/X; low < X <= high]`` of ``X ~ N(mean, sd^2)``, for mean and low > 0."""
    return partial_mean_inverse(
        normal_density,
        location=mean,
        scale=sd,
        low=np.maximum(-_NORMAL_REACH, (low - mean) / sd),
        high=np.minimum(_NORMAL_REACH, (high - mean) / sd),
    )

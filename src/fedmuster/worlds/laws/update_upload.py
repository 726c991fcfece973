"""Latencies of two stages: first the update of the model, then its upload (MAB-CS Eq. 10, 11)."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray
from fedmuster.core.records import SHORTEST_SECONDS
from fedmuster.worlds.laws.latency import gauss_legendre, normal_density, partial_mean_inverse
from fedmuster.worlds.laws.two_stages import TwoStages

MASS: Final = math.erf(math.sqrt(0.5))
"""How much of a normal law is within a standard deviation of its mean, ``Φ(1) - Φ(-1)``."""

_TINIEST = 1e-12
"""A rate that hardly fluctuates has the expectations of one that fluctuates so little."""

# Algorithm AS 241 (Wichura 1988): the normal quantile within 0.425 of the median, to 1e-16.
_NUMERATOR = (
    2.5090809287301226727e3,
    3.3430575583588128105e4,
    6.7265770927008700853e4,
    4.5921953931549871457e4,
    1.3731693765509461125e4,
    1.9715909503065514427e3,
    1.3314166789178437745e2,
    3.3871328727963666080e0,
)
_DENOMINATOR = (
    5.2264952788528545610e3,
    2.8729085735721942674e4,
    3.9307895800092710610e4,
    2.1213794301586595867e4,
    5.3941960214247511077e3,
    6.8718700749205790830e2,
    4.2313330701600911252e1,
    1.0,
)


def within_one_sd(share: FloatArray) -> FloatArray:
    """The quantile of the standard normal law truncated to [-1, 1], for shares in [0, 1].

    Example:
        >>> within_one_sd(np.array([0.0, 0.5, 1.0])).round(12)
        array([-1.,  0.,  1.])
    """
    q = MASS * (share - 0.5)  # Eq. 8, solved for x
    r = 0.180625 - q * q
    return np.asarray(q * np.polyval(_NUMERATOR, r) / np.polyval(_DENOMINATOR, r))


def density(z: FloatArray) -> FloatArray:
    """The density of the standard normal law truncated to [-1, 1], for z within."""
    return normal_density(z) / MASS


@dataclass(frozen=True, kw_only=True, slots=True)
class FluctuatingRate:
    """``mean + sd Z`` per second, Z standard normal in [-1, 1]; 0 <= sd < mean, one per client."""

    mean: FloatArray
    sd: FloatArray

    def draw(self, rng: Generator) -> FloatArray:
        """[K], by inversion."""
        return np.asarray(self.mean + self.sd * within_one_sd(rng.random(len(self.mean))))

    def mean_inverse(self) -> FloatArray:
        """[K], ``E[1 / rate]``: the expected seconds for one unit of work."""
        one = np.ones_like(self.mean)
        return partial_mean_inverse(
            density, location=self.mean, scale=self.scale, low=-one, high=one
        )

    @property
    def scale(self) -> FloatArray:
        """The standard deviation, but never 0: an integral over Z divides by it."""
        return np.maximum(self.sd, _TINIEST * self.mean)

    @property
    def highest(self) -> FloatArray:
        """[K], the best that can happen."""
        return np.asarray(self.mean + self.sd)

    @property
    def lowest(self) -> FloatArray:
        """[K], the worst that can happen."""
        return np.asarray(self.mean - self.sd)

    def rows(self, rows: slice) -> "FluctuatingRate":
        """The same for some of the clients."""
        return FluctuatingRate(mean=self.mean[rows], sd=self.sd[rows])


# Latencies of two stages: first the update of the model, then its upload (MAB-CS Eq. 10, 11).

_NUM_NODES = 48
_CHUNK = 64
"""Clients integrated together: keeps the temporaries at a megabyte whatever K is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateUploadLatency(TwoStages):
    """``tau = samples / compute + bits / throughput``, with rates that fluctuate independently.

    Args:
        samples: [K], how many each client trains on.
        compute: samples per second.
        bits: size of the model.
        throughput: bits per second.
    """

    samples: FloatArray
    compute: FluctuatingRate
    bits: float
    throughput: FluctuatingRate

    def draw_stages(self, rng: Generator) -> tuple[FloatArray, FloatArray]:
        """Update and upload, see :class:`~fedmuster.worlds.laws.two_stages.TwoStages`."""
        upload = self.bits / self.throughput.draw(rng)  # Eq. 11
        update = self.samples / self.compute.draw(rng)  # Eq. 10
        return update, upload

    def shortest_seconds(self) -> float:
        """The shortest latency that anybody can have."""
        shortest = self.samples / self.compute.highest + self.bits / self.throughput.highest
        return float(shortest.min())

    def mean_seconds(self) -> FloatArray:
        """See :class:`~fedmuster.worlds.laws.latency.LatencyLaw`."""
        upload = self.bits * self.throughput.mean_inverse()
        return np.asarray(self.samples * self.compute.mean_inverse() + upload)

    def mean_inverse(self, deadline_seconds: float = np.inf) -> FloatArray:
        """See :class:`~fedmuster.worlds.laws.latency.LatencyLaw`."""
        result = np.empty_like(self.samples)
        for first in range(0, len(result), _CHUNK):
            rows = slice(first, first + _CHUNK)
            part = UpdateUploadLatency(
                samples=self.samples[rows],
                compute=self.compute.rows(rows),
                bits=self.bits,
                throughput=self.throughput.rows(rows),
            )
            result[rows] = part._mean_inverse(deadline_seconds)
        return result

    def _mean_inverse(self, deadline: float) -> FloatArray:
        """Gauss-Legendre over both rates.

        Where some uploads are in time and others are not, the integral over the throughput has
        other limits than where all are: the two parts are smooth, the whole is not.
        """
        some = self._needed(deadline - self.bits / self.throughput.highest)
        every = self._needed(deadline - self.bits / self.throughput.lowest)
        return self._between(some, every, deadline) + self._between(
            every, np.ones_like(every), deadline
        )

    def _needed(self, seconds: FloatArray) -> FloatArray:
        """The Z of the slowest computation that takes at most so many seconds, in [-1, 1]."""
        rate = self.samples / np.maximum(seconds, SHORTEST_SECONDS)
        return np.clip((rate - self.compute.mean) / self.compute.scale, -1.0, 1.0)

    def _between(self, low: FloatArray, high: FloatArray, deadline: float) -> FloatArray:
        """``E[1/tau; tau <= deadline]`` over computations with Z between ``low`` and ``high``."""
        if not np.any(high > low):
            return np.zeros_like(low)
        z, weight = _nodes(low[:, None], high[:, None])
        rate = self.compute.mean[:, None] + self.compute.scale[:, None] * z
        update = self.samples[:, None] / rate
        mean, scale = self.throughput.mean[:, None], self.throughput.scale[:, None]
        needed = self.bits / np.maximum(deadline - update, SHORTEST_SECONDS)
        slowest = np.clip((needed - mean) / scale, -1.0, 1.0)
        y, inner_weight = _nodes(slowest[..., None], np.ones_like(slowest)[..., None])
        upload = self.bits / (mean[..., None] + scale[..., None] * y)
        inner = np.sum(inner_weight / (update[..., None] + upload), axis=-1)
        return np.asarray(np.sum(weight * inner, axis=-1))


def _nodes(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Nodes between ``low`` and ``high`` on a new last axis, and their shares of probability."""
    nodes, weights = gauss_legendre(_NUM_NODES)
    half = 0.5 * (high - low)
    z = low + half * (1.0 + nodes)
    return z, half * weights * density(z)

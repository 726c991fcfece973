"""Latencies of two stages: first the update of the model, then its upload (MAB-CS Eq. 10, 11)."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import SHORTEST_SECONDS, FloatArray
from fedmuster.worlds.quadrature import gauss_legendre
from fedmuster.worlds.stages import TwoStages
from fedmuster.worlds.truncated_normal import FluctuatingRate, density

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
        """Update and upload, see :class:`~fedmuster.worlds.stages.TwoStages`."""
        upload = self.bits / self.throughput.draw(rng)  # Eq. 11
        update = self.samples / self.compute.draw(rng)  # Eq. 10
        return update, upload

    def shortest_seconds(self) -> float:
        """The shortest latency that anybody can have."""
        shortest = self.samples / self.compute.highest + self.bits / self.throughput.highest
        return float(shortest.min())

    def mean_seconds(self) -> FloatArray:
        """See :class:`~fedmuster.worlds.latency.LatencyLaw`."""
        upload = self.bits * self.throughput.mean_inverse()
        return np.asarray(self.samples * self.compute.mean_inverse() + upload)

    def mean_inverse(self, deadline_seconds: float = np.inf) -> FloatArray:
        """See :class:`~fedmuster.worlds.latency.LatencyLaw`."""
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

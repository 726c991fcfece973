"""Latencies of two log-normal stages, one after the other: first compute, then communicate."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Self

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.worlds.laws.latency import (
    gauss_legendre,
    log_normal_sigma,
    normal_cdf,
    normal_density,
)

_REACH = 7.0
"""Standard deviations beyond which a normal has less than 3e-12 of its mass."""
_TOLERANCE = 1e-6
_FINEST_STEP = 1e-3
_POINTS_PER_UNIT = 256
_NUM_NODES = 36
_CHUNK = 4096
"""Clients integrated together: keeps the temporaries at a few megabytes whatever K is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SumLatency:
    """``tau = max(floor, X + Y)``, X and Y log-normal and independent.

    ``compute`` and ``communication`` [K] are ``E[X]`` and ``E[Y]``; the relative standard
    deviations are ``sd(X) / E[X]`` and ``sd(Y) / E[Y]``; all are > 0, as is the floor.
    """

    compute: FloatArray
    communication: FloatArray
    compute_relative_sd: float
    communication_relative_sd: float
    floor: float

    def draw_stages(self, rng: Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
        """tau, X and Y of one round."""
        x, y = self._stages_at(*rng.standard_normal((2, len(self.compute))))
        return np.maximum(x + y, self.floor), x, y

    def draw(self, rng: Generator) -> FloatArray:
        """See :class:`~fedmuster.worlds.laws.latency.LatencyLaw`."""
        return self.draw_stages(rng)[0]

    def mean_seconds(self) -> FloatArray:
        """See :class:`~fedmuster.worlds.laws.latency.LatencyLaw`."""
        mean = self.compute + self.communication
        parts, low = self._parts(), self._reach_the_floor()
        mean[low] += parts.of(low).mean_below(self.floor)  # max(f, t) = t + max(f - t, 0)
        return mean

    def mean_inverse(self, deadline_seconds: float = np.inf) -> FloatArray:
        """See :class:`~fedmuster.worlds.laws.latency.LatencyLaw`."""
        inverse = np.zeros(len(self.compute))
        if deadline_seconds < self.floor:
            return inverse
        parts, low = self._parts(), self._reach_the_floor()
        for first in range(0, len(inverse), _CHUNK):
            rows = np.arange(first, min(first + _CHUNK, len(inverse)))
            inverse[rows] = parts.of(rows).mean_inverse(self.floor, deadline_seconds)
        inverse[low] += parts.of(low).at_most(self.floor) / self.floor
        return inverse

    def in_time(self, deadline_seconds: float) -> FloatArray:
        """[K], ``P(tau <= deadline)``."""
        if deadline_seconds < self.floor:
            return np.zeros(len(self.compute))
        return self._parts().at_most(deadline_seconds)

    def _reach_the_floor(self) -> IntArray:
        """The clients that may be faster than the floor."""
        compute, communication = self._stages_at(-_REACH, -_REACH)
        return np.flatnonzero(compute + communication < self.floor)

    def _stages_at(
        self, x: float | FloatArray, y: float | FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """X and Y at these standard normal quantiles."""
        sigma_x, sigma_y = self._sigmas()
        return _log_normal(self.compute, sigma_x, x), _log_normal(self.communication, sigma_y, y)

    def _sigmas(self) -> tuple[float, float]:
        relative = self.compute_relative_sd, self.communication_relative_sd
        return log_normal_sigma(relative[0]), log_normal_sigma(relative[1])

    def _parts(self) -> "_NarrowAndWide":
        x, y = self.compute, self.communication
        sigma_x, sigma_y = self._sigmas()
        x_is_wide = x * self.compute_relative_sd > y * self.communication_relative_sd
        return _NarrowAndWide(
            narrow=np.where(x_is_wide, y, x),
            narrow_sigma=np.where(x_is_wide, sigma_y, sigma_x),
            wide=np.where(x_is_wide, x, y),
            wide_sigma=np.where(x_is_wide, sigma_x, sigma_y),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _NarrowAndWide:
    """Expectations of ``X + Y``: over the wide part given the narrow one, then over the narrow one.

    The narrow part has the smaller standard deviation. The fields [K] are the means of the parts
    and the standard deviations of their logarithms.
    """

    narrow: FloatArray
    narrow_sigma: FloatArray
    wide: FloatArray
    wide_sigma: FloatArray

    def of(self, rows: IntArray) -> Self:
        return type(self)(**{item.name: getattr(self, item.name)[rows] for item in fields(self)})

    def at_most(self, limit: float) -> FloatArray:
        """``P(X + Y <= limit)``."""

        def given(parts: _NarrowAndWide, narrow: FloatArray) -> FloatArray:
            return fast_normal_cdf(parts._wide_quantile(limit - narrow))

        return np.minimum(self._mean(given, scale=1.0), 1.0)

    def mean_below(self, limit: float) -> FloatArray:
        """``E[max(limit - X - Y, 0)]``."""

        def given(parts: _NarrowAndWide, narrow: FloatArray) -> FloatArray:
            left = np.maximum(limit - narrow, 0.0)
            z = parts._wide_quantile(left)
            below = left * fast_normal_cdf(z)
            return below - parts.wide * fast_normal_cdf(z - parts.wide_sigma)

        return self._mean(given, scale=limit)

    def mean_inverse(self, low: float, high: float) -> FloatArray:
        """``E[1 / (X + Y); low < X + Y <= high]``."""
        nodes, weights = gauss_legendre(_NUM_NODES)

        def given(parts: _NarrowAndWide, narrow: FloatArray) -> FloatArray:
            start = np.maximum(parts._wide_quantile(low - narrow), -_REACH)
            stop = np.minimum(parts._wide_quantile(high - narrow), _REACH)
            half = 0.5 * np.maximum(stop - start, 0.0)
            z = start[:, None] + half[:, None] * (1.0 + nodes)
            wide = _log_normal(parts.wide[:, None], parts.wide_sigma[:, None], z)
            return np.asarray(half * ((normal_density(z) / (narrow[:, None] + wide)) @ weights))

        return self._mean(given, scale=1.0 / (self.narrow + self.wide))

    def _mean(self, given: "_Given", *, scale: float | FloatArray) -> FloatArray:
        """The mean over the narrow part of the expectation ``given`` its value.

        The trapezoidal rule in the normal quantile doubles its nodes as long as that changes a
        client's mean. It converges geometrically, so the error is about the square of the last
        change.
        """
        mean = self._trapezoids(given, np.arange(-_REACH, _REACH + 0.5))
        scale = np.broadcast_to(np.asarray(scale), mean.shape)
        rows, step = np.arange(len(mean)), 1.0
        while len(rows) and step > _FINEST_STEP:
            between = np.arange(-_REACH + 0.5 * step, _REACH, step)
            coarse = mean[rows]
            mean[rows] = 0.5 * (coarse + step * self.of(rows)._trapezoids(given, between))
            rows = rows[np.abs(mean[rows] - coarse) > _TOLERANCE * scale[rows]]
            step *= 0.5
        return mean

    def _trapezoids(self, given: "_Given", nodes: FloatArray) -> FloatArray:
        """The sum over nodes, weighted with the normal density."""
        total = np.zeros(len(self.narrow))
        for z, weight in zip(nodes.tolist(), normal_density(nodes).tolist(), strict=True):
            total += weight * given(self, _log_normal(self.narrow, self.narrow_sigma, z))
        return total

    def _wide_quantile(self, seconds: FloatArray) -> FloatArray:
        """The standard normal quantile at which the wide part is ``seconds``."""
        ratio = np.maximum(seconds / self.wide, np.finfo(np.float64).tiny)
        return np.asarray(np.log(ratio) / self.wide_sigma + 0.5 * self.wide_sigma)


def fast_normal_cdf(z: FloatArray) -> FloatArray:
    """``Φ(z)`` to 1e-12: a Taylor polynomial around the nearest of a few thousand points."""
    points, cdf, density = _normal_table()
    z = np.clip(z, points[0], points[-1])
    nearest = np.rint((z - points[0]) * _POINTS_PER_UNIT).astype(np.int64)
    at = points[nearest]
    e = z - at
    return np.asarray(
        cdf[nearest] + density[nearest] * e * (1.0 - e * (0.5 * at - e * (at * at - 1.0) / 6.0))
    )


def _log_normal(mean: FloatArray, sigma: float | FloatArray, z: float | FloatArray) -> FloatArray:
    return np.asarray(mean * np.exp(sigma * z - 0.5 * sigma * sigma))


_Given = Callable[[_NarrowAndWide, FloatArray], FloatArray]
"""(parts, a value of the narrow part) -> an expectation over the wide part."""


@cache
def _normal_table() -> tuple[FloatArray, FloatArray, FloatArray]:
    points = np.arange(-9 * _POINTS_PER_UNIT, 9 * _POINTS_PER_UNIT + 1) / _POINTS_PER_UNIT
    return points, normal_cdf(points), normal_density(points)

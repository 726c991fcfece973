"""Rates that fluctuate by a standard deviation and no more (MAB-CS Eq. 8, 9)."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import FloatArray
from fedmuster.worlds.quadrature import normal_density, partial_mean_inverse

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

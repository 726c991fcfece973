"""What a world draws once: speed groups, and how much data each client has."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.streams import exponential_data


def shuffled_groups(num_clients: int, num_groups: int, rng: Generator) -> IntArray:
    """A random label 0 … num_groups-1 for each client; the sizes of groups differ by at most one.

    The labels are shuffled so that a policy that favours low ids gains nothing.
    """
    return np.asarray(rng.permutation(num_clients) * num_groups // num_clients)


def speed_groups(mean_seconds: FloatArray) -> IntArray:
    """A label for each client by the rank of its mean latency: 0 for the fastest tenth, … 9."""
    size = len(mean_seconds)
    rank = np.empty(size, dtype=np.int64)
    rank[np.argsort(mean_seconds, kind="stable")] = np.arange(size)
    return rank * min(10, size) // size


def log_uniform(low: float, high: float, size: int, rng: Generator) -> FloatArray:
    """``size`` numbers between ``low`` and ``high`` whose logarithm is uniform."""
    return np.exp(rng.uniform(np.log(low), np.log(high), size))


def zipf_ladder(low: float, high: float, size: int, *, exponent: float) -> FloatArray:
    """``rank^-exponent`` for the ranks 1 … size, scaled so that it falls from ``high`` to ``low``.

    A single one is ``low``.

    Example:
        >>> zipf_ladder(10.0, 50.0, 3, exponent=1.0)
        array([50., 20., 10.])
    """
    weight = np.arange(1.0, size + 1) ** -exponent
    span = weight[0] - weight[-1]
    share = (weight - weight[-1]) / span if span > 0 else np.zeros(size)
    return np.asarray(low + (high - low) * share)


def beta_law(mean: float, sd: float, size: int, rng: Generator) -> FloatArray:
    """``size`` numbers in [0, 1] from the Beta law of this mean and standard deviation.

    The mean is in (0, 1), the standard deviation in (0, sqrt(mean (1 - mean))).
    """
    total = mean * (1.0 - mean) / sd**2 - 1.0
    return rng.beta(total * mean, total * (1.0 - mean), size)


@dataclass(frozen=True, kw_only=True, slots=True)
class Alike:
    """All clients have equally much data of the same quality (the i.i.d. case)."""

    name: ClassVar[str] = "alike"

    def draw(self, _num_clients: int, _rng: Generator) -> tuple[None, None]:
        """``num_samples`` and ``quality`` of a :class:`~fedmuster.core.records.Problem`."""
        return None, None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExponentialSizes:
    """Few clients have much data: sizes ``∝ exp(-decay i / K)`` over a random order of clients.

    BSFL's non-i.i.d. split; the numbers are those of its authors' code.

    Args:
        mean_samples: average data set size; every client has at least one sample.
        decay: how fast sizes fall. Authors' code: 2.
        lowest_quality: quality is uniform between this and 1. Authors' code: 0.5.
    """

    name: ClassVar[str] = "exponential-sizes"

    mean_samples: float = 100.0
    decay: float = 2.0
    lowest_quality: float = 0.5

    def __post_init__(self) -> None:
        require(1 <= self.mean_samples <= 1e12, self, "mean_samples", "a number in [1, 1e12]")
        require(0 <= self.decay <= 100, self, "decay", "a number in [0, 100]")
        require(0 <= self.lowest_quality <= 1, self, "lowest_quality", "a number in [0, 1]")

    def draw(self, num_clients: int, rng: Generator) -> tuple[IntArray, FloatArray]:
        """``num_samples`` and ``quality`` of a :class:`~fedmuster.core.records.Problem`."""
        share, quality = exponential_data(
            num_clients, decay=self.decay, lowest_quality=self.lowest_quality, rng=rng
        )
        sizes = np.rint(self.mean_samples * share / share.mean()).astype(np.int64)
        return np.maximum(sizes, 1), quality


@dataclass(frozen=True, kw_only=True, slots=True)
class UniformSizes:
    """Sizes are whole numbers, uniform from ``low`` to ``high``; quality is the same for all.

    Args:
        low: the smallest size. MAB-CS: 100.
        high: the largest. MAB-CS: 1000.
    """

    name: ClassVar[str] = "uniform-sizes"

    low: int = 100
    high: int = 1000

    def __post_init__(self) -> None:
        check_types(self)
        require(1 <= self.low <= 10**12, self, "low", "an integer in [1, 1e12]")
        require(self.low <= self.high <= 10**12, self, "high", "an integer in [low, 1e12]")

    def draw(self, num_clients: int, rng: Generator) -> tuple[IntArray, None]:
        """``num_samples`` and ``quality`` of a :class:`~fedmuster.core.records.Problem`."""
        return rng.integers(self.low, self.high, num_clients, endpoint=True), None


ClientData = Alike | ExponentialSizes | UniformSizes

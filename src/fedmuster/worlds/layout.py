"""What a world fixes once: who is fast, who belongs together."""

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import FloatArray, IntArray


def shuffled_groups(num_clients: int, num_groups: int, rng: Generator) -> IntArray:
    """A label 0 … num_groups-1 for each client, at random; sizes differ by at most one.

    Shuffled, because a policy that favours low indices must not look clever.
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


def beta_law(mean: float, sd: float, size: int, rng: Generator) -> FloatArray:
    """``size`` numbers in [0, 1] from the Beta law of this mean and standard deviation.

    Args:
        mean: in (0, 1).
        sd: in (0, sqrt(mean (1 - mean))).
        size: how many.
        rng: where they come from.
    """
    total = mean * (1.0 - mean) / sd**2 - 1.0
    return rng.beta(total * mean, total * (1.0 - mean), size)

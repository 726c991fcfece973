"""Unequal data, as BSFL's authors draw it: for worlds, which need the numbers, and for training,
which needs the samples."""

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import FloatArray


def exponential_data(
    num_clients: int, *, decay: float, lowest_quality: float, rng: Generator
) -> tuple[FloatArray, FloatArray]:
    """[K] relative sizes, ``exp(-decay i / K)`` over a random order of clients, and [K] qualities,
    uniform between ``lowest_quality`` and 1.

    Example:
        >>> sizes, quality = exponential_data(
        ...     4, decay=2.0, lowest_quality=0.5, rng=np.random.default_rng(1))
        >>> np.sort(sizes).round(3)
        array([0.223, 0.368, 0.607, 1.   ])
        >>> bool(quality.min() >= 0.5)
        True
    """
    sizes = np.exp(-decay * rng.permutation(num_clients) / num_clients)
    return sizes, rng.uniform(lowest_quality, 1.0, num_clients)

"""Oort's blacklist: who was asked too often."""

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import BoolArray, IntArray
from fedmuster.solvers.top_k import top_k


def not_too_often(times: IntArray, most: int | None, share: float, rng: Generator) -> BoolArray:
    """bool[K]: who was asked at most ``most`` times (None: everybody).

    No more than ``share`` of all clients are left out, those who were asked most often.

    Example:
        >>> not_too_often(np.array([9, 1, 8, 7]), 5, 0.5, np.random.default_rng(0))
        array([False,  True, False,  True])
    """
    allowed = np.ones(len(times), dtype=np.bool_)
    if most is not None:
        tired = np.flatnonzero(times > most)
        count = min(len(tired), int(share * len(times)))
        allowed[tired[top_k(times[tired].astype(np.float64), count, rng)]] = False
    return allowed

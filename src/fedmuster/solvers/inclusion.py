"""Draws of a fixed number of clients with known inclusion probabilities."""

from typing import Any

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray, IntArray

Weights = IntArray | FloatArray

_CERTAIN = 1.0 - 1e-9
"""A chance from which on a client is drawn for certain: far above what sums are rounded by."""


def num_certain(largest: Weights, total: float) -> int:
    """How many of the m ``largest`` weights (falling) fill a place of their own.

    A client whose share of the ``total`` weight is 1/m or more is certain to be among m. It takes
    one place; the same holds for the other clients and the places that are left.

    Example:
        >>> num_certain(np.array([9, 4, 2]), 17)  # 9 of 17 >= 1/3, 4 of 8 >= 1/2, 2 of 4 < 1
        2
    """
    count, before = len(largest), np.cumsum(largest) - largest
    certain = (count - np.arange(count)) * largest >= total - before
    return count if certain.all() else int(np.argmin(certain))


def chances(weights: Weights, count: int) -> FloatArray:
    """[n], ``min(1, c w_k)`` with c such that the sum is ``count``, for 0 <= count <= n.

    Where fewer than ``count`` weights are positive, the others share the places that are left.

    Example:
        >>> chances(np.array([9, 1, 2, 4, 1]), 3)
        array([1.  , 0.25, 0.5 , 1.  , 0.25])
        >>> chances(np.array([9, 0, 0]), 2)
        array([1. , 0.5, 0.5])
    """
    if count in (0, len(weights)):
        return np.full(len(weights), float(count > 0))
    largest: Any = np.sort(np.partition(weights, -count)[-count:])[::-1]
    certain = num_certain(largest, weights.sum())
    if certain == count:
        positive = int(np.count_nonzero(weights))
        rest = max(count - positive, 0) / max(len(weights) - positive, 1)
        return np.where(weights > 0, 1.0, rest)
    others = len(weights) - certain
    # Not the sum of all less the certain ones: a small rest would be lost in rounding.
    left = np.partition(weights, others - 1)[:others].sum()
    return np.asarray(np.minimum((count - certain) * weights / left, 1.0))


def systematic_draw(chance: FloatArray, rng: Generator) -> IntArray:
    """Positions, increasing, of as many clients as the chances sum to; k with ``chance[k]``.

    Clients stand in random order on a line, each with the length of its chance; those are drawn
    that hold one of the points u, u + 1, u + 2, … with u uniform in [0, 1). A client of length
    ``chance[k]`` <= 1 holds a point with that very probability, and never two.

    References:
        W. G. Madow, On the Theory of Systematic Sampling, II, Annals of Mathematical Statistics
        20(3), 1949. H. O. Hartley, J. N. K. Rao, Sampling with Unequal Probabilities and without
        Replacement, Annals of Mathematical Statistics 33(2), 1962: in random order.

    Example:
        >>> systematic_draw(np.array([0.25, 1.0, 0.5, 0.25]), np.random.default_rng(3))
        array([1, 3])
    """
    certain = chance >= _CERTAIN
    line = rng.permutation(np.flatnonzero(~certain))
    ends = np.cumsum(chance[line])
    count = round(float(ends[-1])) if len(line) > 0 else 0
    drawn = line[:0]
    if count > 0:
        ends *= count / ends[-1]
        points = rng.random() + np.arange(count)
        # The last point, and the last end, may be rounded to the end of the line.
        held = np.minimum(np.searchsorted(ends, points, side="right"), len(line) - 1)
        drawn = line[held]
    return np.sort(np.concatenate([np.flatnonzero(certain), drawn]))

"""Array types, work over a million clients without new memory, and exact sums."""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


def real_numbers(values: Any) -> FloatArray:
    """``values`` as float64; a ValueError that says why, if they are anything but real numbers.

    numpy alone drops imaginary parts, reads dates as numbers, and fails in three ways.
    """
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise ValueError(f"it is of type {array.dtype}")
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(str(error)) from None


_BLOCK = 1 << 15  # a few arrays of this length stay in cache


def blocks(length: int, size: int = _BLOCK) -> Iterator[slice]:
    """Slices of ``size`` that together cover ``length`` entries, small enough for the cache."""
    return (slice(start, start + size) for start in range(0, length, size))


def tabulate(count: IntArray | FloatArray, function: Callable[[Any], FloatArray]) -> FloatArray:
    """``function(count)``; of many clients evaluated once for each possible whole count.

    Example:
        >>> count = np.arange(100_000) % 3
        >>> tabulate(count, lambda c: 2.0**c)[:4]
        array([1., 2., 4., 1.])
    """
    if len(count) == 0 or not np.issubdtype(count.dtype, np.integer):
        return function(count)
    count = count.astype(np.int64, copy=False)
    if (top := int(count.max())) >= len(count):
        return function(count)
    # "clip" spares a check of every index; there is nothing to clip.
    return np.take(function(np.arange(top + 1)), count, mode="clip")


def ceil_of(count: float) -> int:
    """``ceil`` of a number that may have a rounding error of up to a billionth.

    Example:
        >>> ceil_of(0.07 * 100), ceil_of(6.001)  # 0.07 * 100 is 7.000000000000001
        (7, 7)
    """
    return math.ceil(round(count, 9))


LARGEST_SUMMAND = 1e290
"""Sums of larger numbers could overflow."""


def exact_sums(cells: IntArray, values: FloatArray, num_cells: int) -> FloatArray:
    """[num_cells], the correctly rounded sum of the ``values`` in each of the ``cells``.

    It does not depend on the order of the values; a plain sum could overstep a budget.

    Example:
        >>> exact_sums(np.array([2, 0, 2, 2]), np.array([0.1, 1.0, 0.2, 0.3]), 3)
        array([1. , 0. , 0.6])
    """
    by_cell = values[np.argsort(cells, kind="stable")].tolist()
    ends = np.cumsum(np.bincount(cells, minlength=num_cells)).tolist()
    sums = [fsum(by_cell[start:end]) for start, end in pairwise([0, *ends])]
    return np.array(sums, dtype=np.float64)

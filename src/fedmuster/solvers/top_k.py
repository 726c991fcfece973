"""The k largest of a million values, fair to ties."""

import numpy as np
from numpy.random import Generator

from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray, IntArray

_SAMPLE_STRIDE = 31
_LARGE = 1 << 14


def top_k(values: FloatArray, count: int, rng: Generator) -> IntArray:
    """Positions of the ``count`` largest values, increasing.

    Values tied at the boundary are chosen among uniformly. Infinities are values like others.

    Example:
        >>> top_k(np.array([3.0, np.inf, 1.0, 2.0]), 2, np.random.default_rng(0))
        array([0, 1])
    """
    if not 0 <= count <= len(values):
        raise DataError(f"top_k: count is {count}, expected 0 … {len(values)}")
    if count == 0:
        return np.empty(0, dtype=np.int64)
    if np.isnan(np.maximum.reduce(values)):  # a maximum hands a NaN on
        raise DataError("top_k: values hold NaN, which cannot be ordered")
    if count == len(values):
        return np.arange(count)
    bar = _kth_largest(values, count)
    reaching = np.flatnonzero(values >= bar)
    if len(reaching) == count:
        return reaching  # nobody is tied at the boundary
    beyond = values[reaching] > bar
    above, tied = reaching[beyond], reaching[~beyond]
    drawn = rng.choice(len(tied), count - len(above), replace=False, shuffle=False)
    return np.sort(np.concatenate((above, tied[drawn])))


def _kth_largest(values: FloatArray, count: int) -> float:
    sample = values[::_SAMPLE_STRIDE]
    if len(values) > _LARGE and len(sample) >= count:
        # The k-th largest of a part is at most the k-th largest of all; if fewer than k values
        # exceed it, it is the k-th largest of all.
        bar = np.partition(sample, -count)[-count]
        above = values[np.flatnonzero(values > bar)]
        if len(above) < count:
            return float(bar)
        values = above
    return float(np.partition(values, -count)[-count])

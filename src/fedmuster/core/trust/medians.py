"""Medians and quantiles of few numbers, without those that are NaN."""

import numpy as np

from fedmuster.core.arrays import FloatArray


def median(values: FloatArray) -> float:
    """The median of the values that are not NaN; NaN if there are none. Faster than numpy's.

    Example:
        >>> median(np.array([3.0, np.nan, 1.0]))
        2.0
    """
    return quantile(values, 0.5)


def quantile(values: FloatArray, share: float) -> float:
    """A quantile of the values that are not NaN, interpolated between the two nearest.

    Example:
        >>> quantile(np.array([3.0, 1.0]), 0.25)
        1.5
    """
    ordered = np.sort(values)  # NaN come last
    known = len(ordered) - int(np.count_nonzero(np.isnan(ordered)))
    if known == 0:
        return np.nan
    whole, part = divmod(share * (known - 1), 1.0)
    low = float(ordered[int(whole)])
    return low if part == 0.0 else low + part * (float(ordered[int(whole) + 1]) - low)


def medians(rows: FloatArray) -> FloatArray:
    """The median of each row, without NaN."""
    ordered = np.sort(rows, axis=1)
    known = np.count_nonzero(~np.isnan(rows), axis=1)
    row = np.arange(len(rows))
    low, high = ordered[row, np.maximum(known - 1, 0) // 2], ordered[row, known // 2]
    return np.asarray(np.where(known > 0, (low + high) / 2.0, np.nan))

"""Attributes in which a distance of one means the same in every direction."""

import numpy as np

from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray


def standardised(attributes: FloatArray) -> FloatArray:
    """Columns of mean 0 and standard deviation 1; one that is the same for all becomes 0.

    Example:
        >>> standardised(np.array([[1.0, 5.0], [3.0, 5.0]]))
        array([[-1.,  0.],
               [ 1.,  0.]])
    """
    if attributes.ndim != 2 or not len(attributes) or not np.isfinite(attributes).all():
        raise DataError(
            f"standardised: attributes of shape {attributes.shape}, expected finite numbers "
            "[K, d], one row for each client"
        )
    low, high = attributes.min(axis=0), attributes.max(axis=0)
    # By their ends first: neither 1e300 nor 1e-300 may overflow or vanish when squared, and of a
    # column that is the same for all no rounding error may be blown up to size one.
    varies = high > low
    with np.errstate(over="ignore"):
        span = high - low
    varies &= np.isfinite(span)
    result = np.zeros(attributes.shape)
    np.divide(attributes - low, span, out=result, where=varies)
    result -= result.mean(axis=0)
    result /= np.where(varies, result.std(axis=0), 1.0)
    result[:, ~varies] = 0.0
    return result

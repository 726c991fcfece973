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
    # Between 0 and 1 first, so that squares neither overflow nor vanish, whatever the units, and
    # what is the same for all is exactly 0 instead of rounding errors blown up to size one.
    half = 0.5 * attributes
    result = half - half.min(axis=0)
    largest = result.max(axis=0)
    result /= np.where(largest > 0, largest, 1.0)
    result -= result.mean(axis=0)
    result /= np.where(largest > 0, result.std(axis=0), 1.0)
    return np.asarray(result)

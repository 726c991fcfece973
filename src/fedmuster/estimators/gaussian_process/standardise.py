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
    # By the largest first, so that squares neither overflow nor vanish, whatever the units. What is
    # the same for all is seen from its ends: rounding errors must not be blown up to size one.
    largest = np.abs(attributes).max(axis=0)
    varies = attributes.max(axis=0) > attributes.min(axis=0)
    result = attributes / np.where(varies, largest, 1.0)
    result -= result.mean(axis=0)
    result /= np.where(varies, result.std(axis=0), 1.0)
    result[:, ~varies] = 0.0
    return np.asarray(result)

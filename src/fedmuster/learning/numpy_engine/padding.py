"""To which size clients of unequal size are padded, so that they can be stacked.

The padded size follows from the client's own size, never from its neighbours': matrix products
round differently in different shapes, and a client's update must not depend on who else is in
the cohort or in the same worker.
"""

import numpy as np

from fedmuster.core.records import IntArray

_SIZES = np.unique(np.concatenate([2 ** np.arange(62), 3 * 2 ** np.arange(61)]))


def padded(sizes: IntArray) -> IntArray:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, …: less than half is padding.

    Example:
        >>> padded(np.array([1, 5, 20, 110])).tolist()
        [1, 6, 24, 128]
    """
    rounded: IntArray = _SIZES[np.searchsorted(_SIZES, sizes)]
    return rounded

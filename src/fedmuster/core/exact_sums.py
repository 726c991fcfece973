"""Sums of costs that do not depend on their order: a plain one could overstep a budget."""

from itertools import pairwise
from math import fsum

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray

LARGEST_SUMMAND = 1e290
"""Sums of more could overflow."""


def exact_sums(cells: IntArray, values: FloatArray, num_cells: int) -> FloatArray:
    """[num_cells], the correctly rounded sum of the ``values`` in each of the cells.

    Args:
        cells: int64[n], the cell of each value, 0 … num_cells-1.
        values: [n].
        num_cells: how many there are.

    Example:
        >>> exact_sums(np.array([2, 0, 2, 2]), np.array([0.1, 1.0, 0.2, 0.3]), 3)
        array([1. , 0. , 0.6])
    """
    by_cell = values[np.argsort(cells, kind="stable")].tolist()
    ends = np.cumsum(np.bincount(cells, minlength=num_cells)).tolist()
    sums = [fsum(by_cell[start:end]) for start, end in pairwise([0, *ends])]
    return np.array(sums, dtype=np.float64)

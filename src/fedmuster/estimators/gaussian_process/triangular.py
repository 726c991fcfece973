"""Triangular systems, which numpy solves only as if they were full."""

import numpy as np

from fedmuster.core.records import FloatArray

_BLOCK = 64  # beyond it, products with what is solved already outweigh the small inverses


def lower_root(matrix: FloatArray) -> FloatArray:
    """The lower triangular L with ``L L' = matrix``, which must be positive definite."""
    return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)


def solve_lower(lower: FloatArray, right: FloatArray) -> FloatArray:
    """``lower^-1 right`` of a lower triangular matrix and one or many columns.

    Example:
        >>> solve_lower(np.array([[2.0, 0.0], [1.0, 4.0]]), np.array([2.0, 9.0]))
        array([1., 2.])
    """
    solution = np.array(right)
    for start in range(0, len(lower), _BLOCK):
        block = slice(start, start + _BLOCK)
        solution[block] -= lower[block, :start] @ solution[:start]
        solution[block] = np.linalg.inv(lower[block, block]) @ solution[block]
    return solution

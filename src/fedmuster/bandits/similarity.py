"""How alike clients are: angles and distances of what describes them, and trees of groups."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.errors import MissingExtraError


def unit_rows(rows: FloatArray) -> FloatArray:
    """The rows scaled to length 1; rows of zeros stay.

    Example:
        >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
        array([[0.6, 0.8],
               [0. , 0. ]])
    """
    largest = np.abs(rows).max(axis=1, keepdims=True)  # its square could overflow
    scaled = rows / np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    unit: FloatArray = scaled / np.where(length > 0, length, 1.0)
    return unit


def angles(directions: NDArray[np.floating]) -> FloatArray:
    """[n, n], in 0 … pi, between rows of length 1.

    Rows of zeros, of unknown direction, are alike and at right angles to all others.
    """
    wide = directions.astype(np.float64)
    angle: FloatArray = wide @ wide.T
    np.clip(angle, -1.0, 1.0, out=angle)
    np.arccos(angle, out=angle)
    unknown = np.flatnonzero(~wide.any(axis=1))
    angle[np.ix_(unknown, unknown)] = 0.0
    return angle


def squared_distances(left: FloatArray, right: FloatArray) -> FloatArray:
    """[n, m] squared Euclidean distances of rows."""
    # |a|^2 - 2 a · b + |b|^2 as one product: the matrix is large, and each pass over it costs.
    left_norm = np.einsum("ij,ij->i", left, left)
    right_norm = np.einsum("ij,ij->i", right, right)
    rows = np.column_stack([left, left_norm, np.ones(len(left))])
    columns = np.column_stack([-2.0 * right, np.ones(len(right)), right_norm])
    squared: FloatArray = rows @ columns.T
    return np.maximum(squared, 0.0, out=squared)  # rounding


class WardTree:
    """The tree of Ward's method over ``distances`` [n, n] of n >= 2 clients; needs scipy.

    Attributes:
        joins: int64[n - 1, 2], the two branches that each branch joins: clients 0 … n-1, and from n
            on the branches before it.
    """

    def __init__(self, distances: FloatArray) -> None:
        try:
            from scipy.cluster.hierarchy import fcluster, linkage
            from scipy.spatial.distance import squareform
        except ImportError:
            raise MissingExtraError(
                "scipy", extra="scipy", purpose="clustering clients by similarity"
            ) from None
        self._cut: Any = fcluster
        self._tree: FloatArray = linkage(squareform(distances, checks=False), method="ward")
        self.joins: IntArray = self._tree[:, :2].astype(np.int64)

    def groups(self, count: int) -> IntArray:
        """int64[n], the group 0, 1, … of each client, of at most ``count`` groups."""
        return self._numbered(self._tree, count, "maxclust")

    def groups_within(self, too_large: list[bool]) -> IntArray:
        """int64[n], the group 0, 1, … of each client: the largest branches not ``too_large``."""
        tree = self._tree.copy()
        tree[:, 2] = too_large
        return self._numbered(tree, 0.5, "distance")

    def _numbered(self, tree: FloatArray, bound: float, criterion: str) -> IntArray:
        groups: IntArray = self._cut(tree, bound, criterion=criterion)
        return groups.astype(np.int64) - 1

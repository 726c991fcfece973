"""Groups of clients whose updates point the same way, by Ward's hierarchical clustering."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.errors import MissingExtraError
from fedmuster.core.records import FloatArray, IntArray

MOST_CLIENTS: Final = 5_000
"""More are not clustered: time and memory grow with the square of their number."""


def unit_rows(sketches: FloatArray) -> FloatArray:
    """The direction of each row, of length 1; zeros, which have none, stay."""
    largest = np.abs(sketches).max(axis=1, keepdims=True)  # whose square could overflow
    scaled = sketches / np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    unit: FloatArray = scaled / np.where(length > 0, length, 1.0)
    return unit


def similar_groups(directions: NDArray[np.floating], units: IntArray, *, capacity: int) -> IntArray:
    """The group 0, 1, … of each client: the largest branches of the tree that fit into a bin.

    Args:
        directions: [n, q], of length 1, or 0 for clients of whom none is known.
        units: int64[n], what each client takes of a bin; none more than there is.
        capacity: units of a bin.

    Example:
        >>> two_and_two = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]])
        >>> groups = similar_groups(two_and_two, np.array([3, 3, 3, 3]), capacity=6)
        >>> groups[0] == groups[2] != groups[1] == groups[3]
        np.True_
    """
    if len(units) == 1:
        return np.zeros(1, dtype=np.int64)
    try:
        from scipy.cluster.hierarchy import fcluster, linkage
        from scipy.spatial.distance import squareform
    except ImportError:
        raise MissingExtraError(
            "scipy", extra="scipy", purpose="clustering clients by similarity"
        ) from None
    tree = linkage(squareform(_angles(directions), checks=False), method="ward")
    weight: list[int] = units.tolist()
    for left, right in tree[:, :2].astype(np.int64).tolist():
        weight.append(weight[left] + weight[right])
    # Cut where branches get too heavy, not too high. In integers: heights are rounded.
    tree[:, 2] = [branch > capacity for branch in weight[len(units) :]]
    groups: IntArray = fcluster(tree, 0.5, criterion="distance").astype(np.int64) - 1
    return groups


def _angles(directions: NDArray[np.floating]) -> FloatArray:
    """[n, n], in 0 … pi. Clients of no direction are alike, and at right angles to all others."""
    wide = directions.astype(np.float64)
    angle: FloatArray = wide @ wide.T
    np.clip(angle, -1.0, 1.0, out=angle)
    np.arccos(angle, out=angle)
    unknown = np.flatnonzero(~wide.any(axis=1))
    angle[np.ix_(unknown, unknown)] = 0.0
    return angle

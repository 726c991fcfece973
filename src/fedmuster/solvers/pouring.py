"""Clustered sampling's distributions: clients poured into bins, and one client out of each.

Sizes are integers, so that each bin and each client's total are exact. A client that nearly fills
the bins alone has to be taken out before (:func:`num_certain`); whoever is left is smaller than a
bin, and at most one client of a bin is in an earlier one, too: the one that is first poured on.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.errors import MissingExtraError

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


# Clustered sampling's distributions: clients poured into bins, and one client out of each.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Bins:
    """m distributions over n clients, in which client k has ``m size_k`` units in all.

    A bin holds as many units as all sizes make together. The poured clients stand on a line, of
    which each bin takes as much as it has room for; the rest of it belongs to its own clients.

    Args:
        capacity: units of a bin.
        own: the clients that have one bin to themselves as a group, bin by bin.
        own_edges: where each of them begins on a line of their own, and where the last ends.
        poured: all others, in the order in which they are poured.
        poured_edges: where each of them begins on the line, and where the last ends.
        room_edges: int64[m+1], where each bin's part of that line begins, and the last ends.
    """

    capacity: int
    own: IntArray
    own_edges: IntArray
    poured: IntArray
    poured_edges: IntArray
    room_edges: IntArray

    def __len__(self) -> int:
        return len(self.room_edges) - 1


def num_certain(sizes: IntArray, count: int) -> int:
    """How many of the first of ``sizes``, which fall, must be among ``count`` distinct clients.

    A client with a share of 1/m or more has at least one of the m bins for itself. It takes one
    place, and the other places are left to the others, of whom again one may be as large.

    Example:
        >>> num_certain(np.array([9, 4, 2, 1, 1]), 3)  # 9 of 17 >= 1/3, 4 of 8 >= 1/2, 2 of 4 < 1
        2
    """
    ahead = np.arange(count)
    left = sizes.sum() - _edges(sizes[:count])[:-1]
    certain = (count - ahead) * sizes[:count] >= left
    return count if certain.all() else int(np.argmin(certain))


def chances(sizes: IntArray, count: int) -> FloatArray:
    """P(chosen) of each of ``sizes``, which fall, if ``count`` <= n distinct clients are drawn.

    Example:
        >>> chances(np.array([9, 4, 2, 1, 1]), 3)
        array([1.  , 1.  , 0.5 , 0.25, 0.25])
        >>> chances(np.array([9, 0, 0]), 2)
        array([1. , 0.5, 0.5])
    """
    certain, with_data = num_certain(sizes, count), int(np.count_nonzero(sizes))
    chance = np.ones(len(sizes))
    if certain < count:
        rest = sizes[certain:]
        chance[certain:] = (count - certain) * rest / rest.sum()
    else:
        chance[with_data:] = max(count - with_data, 0) / max(len(sizes) - with_data, 1)
    return chance


def pour(sizes: IntArray, count: int) -> Bins:
    """Algorithm 1: all clients, as they stand, one bin after the other."""
    nobody = np.empty(0, dtype=np.int64)
    capacity = int(sizes.sum())
    return Bins(
        capacity=capacity,
        own=nobody,
        own_edges=_edges(nobody),
        poured=np.arange(len(sizes)),
        poured_edges=_edges(count * sizes),
        room_edges=capacity * np.arange(count + 1),
    )


def pour_groups(sizes: IntArray, groups: IntArray, count: int) -> Bins:
    """Algorithm 2: each of the ``count`` largest groups gets a bin, the rest is poured on top.

    Args:
        sizes: of each client.
        groups: the group 0, 1, … of each client, none larger than a bin.
        count: m.
    """
    capacity = int(sizes.sum())
    units = np.zeros(int(groups.max()) + 1, dtype=np.int64)
    np.add.at(units, groups, count * sizes)
    falling = np.argsort(-units, kind="stable")
    rank = np.empty_like(falling)
    rank[falling] = np.arange(len(falling))
    order = np.argsort(rank[groups], kind="stable")
    num_own = int(np.count_nonzero(rank[groups] < count))
    own, poured = order[:num_own], order[num_own:]
    return Bins(
        capacity=capacity,
        own=own,
        own_edges=_edges(count * sizes[own]),
        poured=poured,
        poured_edges=_edges(count * sizes[poured]),
        room_edges=_edges(capacity - units[falling[:count]]),
    )


def draw(bins: Bins, rng: Generator) -> IntArray:
    """One client from each bin, all of them distinct; each bin's law is that of its units.

    A client that an earlier bin holds, too, with ``before`` units against ``shared`` in this one,
    is drawn here with chance ``shared / (capacity - before)`` unless it was drawn before, and so
    with chance ``shared / capacity`` after all. All others are only drawn in this bin.
    """
    begin, end = bins.room_edges[:-1], bins.room_edges[1:]
    at_begin = np.searchsorted(bins.poured_edges, begin, side="right") - 1
    start = bins.poured_edges[at_begin]
    stop = bins.poured_edges[np.minimum(at_begin + 1, len(bins.poured))]
    before = begin - start
    shared = np.where(before > 0, np.minimum(stop, end) - begin, 0)

    point = begin + shared + rng.integers(bins.capacity - shared)
    is_poured = point < end
    chosen = np.empty(len(bins), dtype=np.int64)
    chosen[is_poured] = _owner(bins.poured, bins.poured_edges, point[is_poured])
    own_begin = bins.capacity * np.arange(len(bins)) - begin
    chosen[~is_poured] = _owner(bins.own, bins.own_edges, (own_begin + point - end)[~is_poured])

    hit = rng.integers(bins.capacity - before) < shared
    first_bin = np.searchsorted(bins.room_edges, start, side="right") - 1
    for j in np.flatnonzero(hit).tolist():
        client = bins.poured[at_begin[j]]
        if client not in chosen[first_bin[j] : j]:
            chosen[j] = client
    return chosen


def _edges(units: IntArray) -> IntArray:
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(units)))


def _owner(clients: IntArray, edges: IntArray, points: IntArray) -> IntArray:
    return clients[np.searchsorted(edges, points, side="right") - 1]

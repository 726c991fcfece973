"""Each edge for itself: the knapsacks of all edges at once, in whole clients.

Where a budget holds but a few clients, a price on it promises a fraction of one more, whom nobody
can place. Here every edge spends its budget as well as it can on whole clients, whoever else wants
them: branch and bound as in :mod:`fedmuster.solvers.assignment.branch_and_bound`, but one undecided
item of every edge a level, so that all edges are searched by the same few operations on arrays.
"""

from typing import NamedTuple

import numpy as np

from fedmuster.core.records import BoolArray, FloatArray, IntArray
from fedmuster.solvers.assignment.offers import density, sum_by_edge
from fedmuster.solvers.assignment.search_levels import (
    OUT,
    ROUNDING,
    Trail,
    from_here_on,
    usable,
    walk_back,
)

_FACTORS = np.array([1.0, 0.0, 0.5, 0.8, 1.25, 2.0])
"""Of the price: what is left has others of its own that prove a better bound."""
_NARROW = 8
_MOST_UNDECIDED = 128


class Items(NamedTuple):
    """What the edges choose from.

    Args:
        edge: int64[n], whose item it is.
        value: [n], > 0.
        share: [n], the part of its edge's budget, in 0 … 1.
    """

    edge: IntArray
    value: FloatArray
    share: FloatArray


class Loads(NamedTuple):
    """The edges' choices.

    Args:
        taken: bool[n].
        worth: [M], proved: no other choice is worth more to the edge.
    """

    taken: BoolArray
    worth: FloatArray


def best_loads(items: Items, num_edges: int, width: int, gain: float = ROUNDING) -> Loads:
    """The best choice of each edge; nearly, where more than ``width`` partial ones are in sight.

    Nobody looks for a choice that is worth more than another, but not by ``gain``.
    """
    if len(items.edge) == 0:
        return Loads(np.zeros(0, dtype=np.bool_), np.zeros(num_edges))
    dense = density(items.value, items.share)
    order = np.lexsort((-dense, items.edge))
    edge, value, share = items.edge[order], items.value[order], items.share[order]

    count = np.bincount(edge, minlength=num_edges)
    starts = np.cumsum(count) - count
    run = np.cumsum(share)
    inside = run - (run - share)[starts[edge]] <= 1.0 + ROUNDING
    num_inside = np.bincount(edge[inside], minlength=num_edges)
    # The first item that does not fit as a whole sets the price, as in a fractional knapsack.
    price, split = np.zeros(num_edges), np.flatnonzero(num_inside < count)
    price[split] = dense[order][(starts + num_inside)[split]]
    reduced = value - price[edge] * share
    bound = price + sum_by_edge(edge, np.maximum(reduced, 0.0), num_edges)

    taken = inside.copy()
    left = 1.0 - sum_by_edge(edge[inside], share[inside], num_edges)
    others = np.flatnonzero(~inside & (share <= left[edge]))
    most_valuable = np.full(num_edges, -1)
    ascending = others[np.argsort(value[others], kind="stable")]
    most_valuable[edge[ascending]] = ascending  # the last one written stays
    taken[most_valuable[most_valuable >= 0]] = True
    known = sum_by_edge(edge[taken], value[taken], num_edges)

    certainty, ceiling = np.abs(reduced), known
    for limit in (min(_NARROW, width), width):  # first for something better to beat, then all
        gap = bound - known
        undecided = (certainty <= (gap - gain)[edge] + ROUNDING) & (gap > gain)[edge]
        unseen = _too_many(edge, certainty, undecided)
        search = _Search(Items(edge, value, share), certainty, price, undecided)
        better, found, ceiling = search.run(inside & ~undecided, known + gain, limit)
        taken[better[edge]] = (inside & ~undecided)[better[edge]]
        taken[found] = True
        known = sum_by_edge(edge[taken], value[taken], num_edges)
        # Who decides otherwise on an item loses at least its certainty.
        np.maximum.at(ceiling, edge[unseen], (bound[edge] - certainty)[unseen])
    unsorted = np.empty_like(taken)
    unsorted[order] = taken
    return Loads(unsorted, np.minimum(bound, np.maximum(known + gain, ceiling) + ROUNDING))


class _Search:
    """Branch and bound over the undecided items, in or out, of all edges side by side."""

    def __init__(
        self, items: Items, certainty: FloatArray, price: FloatArray, undecided: BoolArray
    ) -> None:
        self._items, self._num_edges = items, len(price)
        pairs = np.flatnonzero(undecided)
        pairs = pairs[np.lexsort((-certainty[pairs], items.edge[pairs]))]
        edge = items.edge[pairs]
        count = np.bincount(edge, minlength=self._num_edges)
        depth = int(count.max(initial=0))
        # All edges end at the last level; those with fewer items enter later.
        level = np.arange(len(pairs)) - (np.cumsum(count) - depth)[edge]
        self._table = np.full((depth, self._num_edges), -1)
        self._table[level, edge] = pairs
        self._searching = np.flatnonzero(count)
        self._price = price

        there = self._table >= 0
        share = np.where(there, items.share[self._table], 0.0) if depth else np.zeros(there.shape)
        value = np.where(there, items.value[self._table], 0.0) if depth else share
        self._least = from_here_on(np.where(share > 0, share, np.inf), np.minimum, np.inf)
        self._most = from_here_on(share, np.add, 0.0)
        self._surplus = [
            from_here_on(np.maximum(value - factor * price * share, 0.0), np.add, 0.0)
            for factor in _FACTORS
        ]

    def run(
        self, placed: BoolArray, beat: FloatArray, width: int
    ) -> tuple[BoolArray, IntArray, FloatArray]:
        """Which edges can do better than ``beat``, with which items; what was not looked at."""
        items, num_edges = self._items, self._num_edges
        ceiling = np.full(num_edges, -np.inf)
        edge = self._searching
        here = items.edge[placed]
        value = sum_by_edge(here, items.value[placed], num_edges)[edge]
        left = (1.0 - sum_by_edge(here, items.share[placed], num_edges))[edge]
        trail: Trail = []
        for depth, offered in enumerate(self._table, start=1):
            item = offered[edge]
            able = np.flatnonzero((item >= 0) & (items.share[item] <= left + ROUNDING))
            origin = np.concatenate((np.arange(len(edge)), able))
            item = np.concatenate((np.full(len(edge), OUT), item[able]))
            edge, value, left = edge[origin], value[origin], left[origin]
            into = slice(len(origin) - len(able), None)
            value[into] += items.value[item[into]]
            left[into] -= items.share[item[into]]
            bound = self._bound(depth, edge, value, left)
            kept = np.flatnonzero(bound > beat[edge])
            if np.bincount(edge[kept]).max(initial=0) > width:
                kept = _most_promising(kept, edge, bound, width, ceiling)
            edge, value, left = edge[kept], value[kept], left[kept]
            trail.append((origin[kept], item[kept]))
        ascending = np.argsort(value, kind="stable")
        last = np.full(num_edges, -1)
        last[edge[ascending]] = ascending
        better = last >= 0
        return better, walk_back(trail, last[better]), ceiling

    def _bound(self, depth: int, edge: IntArray, value: FloatArray, left: FloatArray) -> FloatArray:
        spendable = usable(left, self._least[depth][edge], self._most[depth][edge])
        paid = spendable * self._price[edge]
        ahead = np.full(len(edge), np.inf)
        for factor, surplus in zip(_FACTORS, self._surplus, strict=True):
            np.minimum(ahead, factor * paid + surplus[depth][edge], out=ahead)
        ahead += value
        return ahead


def _too_many(edge: IntArray, certainty: FloatArray, undecided: BoolArray) -> IntArray:
    """Leaves the least certain of ``undecided`` to each edge and returns those it takes away."""
    pairs = np.flatnonzero(undecided)
    pairs = pairs[np.lexsort((certainty[pairs], edge[pairs]))]
    starts = np.flatnonzero(np.diff(edge[pairs], prepend=-1))
    rank = np.arange(len(pairs)) - np.repeat(starts, np.diff(starts, append=len(pairs)))
    away = pairs[rank >= _MOST_UNDECIDED]
    undecided[away] = False
    return away


def _most_promising(
    kept: IntArray, edge: IntArray, bound: FloatArray, width: int, ceiling: FloatArray
) -> IntArray:
    """The ``width`` of highest bound of each edge; ``ceiling`` is raised to that of the others."""
    kept = kept[np.lexsort((-bound[kept], edge[kept]))]
    starts = np.flatnonzero(np.diff(edge[kept], prepend=-1))
    rank = np.arange(len(kept)) - np.repeat(starts, np.diff(starts, append=len(kept)))
    dropped = kept[rank >= width]
    np.maximum.at(ceiling, edge[dropped], bound[dropped])
    return kept[rank < width]

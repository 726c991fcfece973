"""Finish what prices leave open: every placement that could still be better, client by client.

At given prices a placement is worth the bound less what it loses: with each client that does not
take its best offer, and with each part of a budget that is not spent. A client who would lose more
than the gap between the bound and the best placement known is decided (reduced-cost fixing). The
others are the core, which is searched by branch and bound: breadth first, one client a level, all
partial placements of a level at once, so that numpy does the work. Where they are too many, only
the most promising are kept, and the bound of the others with them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedmuster.core.records import BoolArray, FloatArray, IntArray
from fedmuster.solvers.assignment.offers import Offers, sum_by_edge
from fedmuster.solvers.assignment.prices import Prices
from fedmuster.solvers.assignment.search_levels import (
    OUT,
    ROUNDING,
    Trail,
    from_here_on,
    usable,
    walk_back,
)


class Found(NamedTuple):
    """What a search found.

    Args:
        pairs: the best of the placements worth more than was to be beaten; None if there are none.
        ceiling: what was not looked at is worth no more than this.
    """

    pairs: IntArray | None
    ceiling: float


class Core:
    """The clients whom prices leave undecided.

    Args:
        offers: the problem.
        prices: with a low bound.
        beat: only placements worth more than this are looked for.
    """

    def __init__(self, offers: Offers, prices: Prices, beat: float) -> None:
        self._offers, self._beat = offers, beat
        gap = prices.bound - beat + ROUNDING
        open_pairs = prices.open_pairs(offers, gap)
        may_stay_out = prices.surplus <= gap
        ways = np.add.reduceat(open_pairs, offers.first, dtype=np.int64) + may_stay_out
        self._hopeless = bool((ways == 0).any())
        self._placed = np.flatnonzero(open_pairs & ((ways == 1) & ~may_stay_out)[offers.client])

        self._open_pairs = np.flatnonzero(open_pairs & (ways > 1)[offers.client])
        self._clients = np.flatnonzero((ways > 1) & (ways > may_stay_out))
        self._ways, self._may_stay_out = ways[self._clients], may_stay_out[self._clients]
        self._given = prices

    @property
    def num_clients(self) -> int:
        """How many are undecided: the levels of the search."""
        return len(self._clients)

    def search(self, width: int, fits: Callable[[IntArray], bool]) -> Found:
        """Keeps at most ``width`` partial placements a level; of whole ones ``fits`` decides."""
        offers, placed = self._offers, self._placed
        value = np.array([offers.value[placed].sum()])
        left = np.ones((1, offers.num_edges + 1))
        left[0, :-1] -= sum_by_edge(offers.edge[placed], offers.share[placed], offers.num_edges)
        left[0, -1] = offers.size - len(placed)
        if self._hopeless or left.min() < -ROUNDING:
            return Found(None, -np.inf)
        self._arrange()
        self._look_ahead(_nearby(self._given))
        ceiling = -np.inf
        trail: Trail = []
        for depth, ways in enumerate(self._ways.tolist()):
            rest = left[:, np.newaxis, :] - self._use[depth, :ways]
            origin, way = np.nonzero((rest >= -ROUNDING).all(axis=2))
            left, value = rest[origin, way], value[origin] + self._value[depth, way]
            bound = self._bound(depth + 1, value, left)
            kept = np.flatnonzero(bound > self._beat)
            if len(kept) > width:
                kept = kept[np.argpartition(-bound[kept], width)]
                ceiling = max(ceiling, float(bound[kept[width]]))
                kept = kept[:width]
            value, left = value[kept], left[kept]
            trail.append((origin[kept], self._pairs[depth, way[kept]]))
        for last in np.argsort(-value, kind="stable"):
            if value[last] <= self._beat:
                break
            pairs = np.concatenate((self._placed, walk_back(trail, np.array([last]))))
            if fits(pairs):  # sums of shares are rounded
                return Found(pairs, ceiling)
        return Found(None, ceiling)

    def _arrange(self) -> None:
        """A row of pairs for each client, in the order of the levels."""
        pairs = _options(self._open_pairs, self._offers.client, self._may_stay_out)
        surplus = self._given.surplus[self._clients]
        loss = np.where(pairs == OUT, surplus[:, np.newaxis], self._given.loss(self._offers)[pairs])
        loss[np.arange(pairs.shape[1]) >= self._ways[:, np.newaxis]] = np.inf
        # Those of whom prices are the least sure come last, when little is left to be spent.
        by_second_best = np.argsort(-np.partition(loss, 1, axis=1)[:, 1], kind="stable")
        self._ways, self._pairs = self._ways[by_second_best], pairs[by_second_best]

    def _look_ahead(self, prices: FloatArray) -> None:
        """For the clients after each level: the least and the most they use, and their surplus."""
        offers, pairs, real = self._offers, self._pairs, self._pairs != OUT
        self._prices = prices.T.copy()
        self._value = np.where(real, offers.value[pairs], 0.0)
        self._use = np.zeros((*pairs.shape, len(self._prices)))
        row, column = np.nonzero(real)
        self._use[row, column, offers.edge[pairs[real]]] = offers.share[pairs[real]]
        self._use[..., -1] = real
        least = np.where(self._use > 0, self._use, np.inf).min(axis=1, initial=np.inf)
        most = self._use.max(axis=1, initial=0.0)
        surplus = (self._value[..., np.newaxis] - self._use @ self._prices).max(axis=1, initial=-1)
        self._least = from_here_on(least, np.minimum, np.inf)
        self._most = from_here_on(most, np.add, 0.0)
        self._surplus = from_here_on(surplus, np.add, 0.0)

    def _bound(self, depth: int, value: FloatArray, left: FloatArray) -> FloatArray:
        """What each partial placement can at most become, at the best of several prices."""
        spendable = usable(left, self._least[depth], self._most[depth])
        ahead = self._prices.T @ spendable.T + self._surplus[depth, :, np.newaxis]
        bound: FloatArray = value + ahead.min(axis=0)
        return bound


def _options(pairs: IntArray, client: IntArray, may_stay_out: BoolArray) -> IntArray:
    """[n, q], the ``pairs`` of each client, then -1 if it may stay out, then any of them again."""
    starts = np.flatnonzero(np.diff(client[pairs], prepend=-1))
    counts = np.diff(starts, append=len(pairs))
    ways = counts + may_stay_out
    column = np.arange(ways.max(initial=2))
    options = pairs[starts[:, np.newaxis] + np.where(column < counts[:, np.newaxis], column, 0)]
    options[may_stay_out[:, np.newaxis] & (column == counts[:, np.newaxis])] = OUT
    return options


def _nearby(prices: Prices) -> FloatArray:
    """[R, M + 1], the prices and others around them: each proves a bound of its own.

    When part of the budgets is spent and some clients are decided, others are better.
    """
    base = np.append(prices.edges, prices.place)
    one_halved = np.where(np.eye(len(base), dtype=np.bool_), 0.5 * base, base)
    return np.vstack((base, 0.7 * base, 1.3 * base, one_halved[base > 0]))

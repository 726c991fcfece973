"""Branch and bound: the knapsacks of all edges at once, and the clients that prices leave open.

Where a budget pays for few clients, a price on it promises a fraction of one more, which cannot be
placed. :func:`best_loads` lets every edge spend its budget on whole clients, whether other edges
want them or not. A level of the search decides one item of every edge, so that the same few array
operations search all edges. :class:`Core` decides one client a level, for all edges together.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.solvers.assignment.offers import Offers, density, sum_by_edge
from fedmuster.solvers.assignment.prices import Prices

ROUNDING = 1e-11
"""The error of sums of shares; a smaller excess over a budget is let pass, so that bounds hold."""
OUT = -1
"""Stands for no pair: the client stays out."""

Trail = list[tuple[IntArray, IntArray]]
"""By level: the partial placement of the last level that each extends, and the pair it adds."""


def from_here_on(rows: FloatArray, add_up: np.ufunc, nothing: float) -> FloatArray:
    """[n + 1, …], ``rows`` accumulated from each of them to the last, and from behind it."""
    behind = np.full((1, rows.shape[1]), nothing)
    total: FloatArray = add_up.accumulate(np.concatenate((rows, behind))[::-1], axis=0)[::-1]
    return total


def usable(left: FloatArray, least: FloatArray, most: FloatArray) -> FloatArray:
    """What can be spent of ``left``: no less than the smallest share, no more than all together."""
    spendable: FloatArray = np.clip(left, 0.0, most)
    spendable[left < least - ROUNDING] = 0.0
    return spendable


def walk_back(trail: Trail, last: IntArray) -> IntArray:
    """The pairs of the partial placements ``last`` of the last level."""
    found = [np.empty(0, dtype=np.int64)]
    for origin, pairs in reversed(trail):
        found.append(pairs[last])
        last = origin[last]
    chosen = np.concatenate(found)
    pairs_in: IntArray = chosen[chosen != OUT]
    return pairs_in


_FACTORS = np.array([1.0, 0.0, 0.5, 0.8, 1.25, 2.0])
"""Multiples of the price: the rest of a problem may have a better price of its own."""
_NARROW = 8
_MOST_UNDECIDED = 128


class Items(NamedTuple):
    """What the edges choose from, [n] each: owner, value > 0, and share of its budget in 0 … 1."""

    edge: IntArray
    value: FloatArray
    share: FloatArray


class Loads(NamedTuple):
    """The edges' choices: bool[n]; and [M], the proved worth that no other choice exceeds."""

    taken: BoolArray
    worth: FloatArray


def best_loads(items: Items, num_edges: int, width: int, gain: float = ROUNDING) -> Loads:
    """The best choice of each edge; nearly the best, where a level has more than ``width`` nodes.

    The search ignores choices that are better by less than ``gain``.
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
        search = _BranchAndBound(Items(edge, value, share), certainty, price, undecided)
        better, found, ceiling = search.run(inside & ~undecided, known + gain, limit)
        taken[better[edge]] = (inside & ~undecided)[better[edge]]
        taken[found] = True
        known = sum_by_edge(edge[taken], value[taken], num_edges)
        # To decide otherwise on an item costs at least its certainty.
        np.maximum.at(ceiling, edge[unseen], (bound[edge] - certainty)[unseen])
    unsorted = np.empty_like(taken)
    unsorted[order] = taken
    return Loads(unsorted, np.minimum(bound, np.maximum(known + gain, ceiling) + ROUNDING))


class _BranchAndBound:
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
        """The edges that can do better than ``beat``, their items, a bound of what was skipped."""
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
    away = pairs[_rank_at(edge[pairs]) >= _MOST_UNDECIDED]
    undecided[away] = False
    return away


def _most_promising(
    kept: IntArray, edge: IntArray, bound: FloatArray, width: int, ceiling: FloatArray
) -> IntArray:
    """The ``width`` of highest bound of each edge; ``ceiling`` is raised to that of the others."""
    kept = kept[np.lexsort((-bound[kept], edge[kept]))]
    rank = _rank_at(edge[kept])
    dropped = kept[rank >= width]
    np.maximum.at(ceiling, edge[dropped], bound[dropped])
    return kept[rank < width]


def _rank_at(edge: IntArray) -> IntArray:
    """The place 0, 1, … of each item among those of its edge; ``edge`` is sorted."""
    starts = np.flatnonzero(np.diff(edge, prepend=-1))
    return np.arange(len(edge)) - np.repeat(starts, np.diff(starts, append=len(edge)))


class SearchResult(NamedTuple):
    """The best placement found, or None; skipped placements are worth at most ``ceiling``."""

    pairs: IntArray | None
    ceiling: float


class Core:
    """The clients that prices leave undecided; only placements worth more than ``beat`` count."""

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
        """The number of undecided clients: the levels of the search."""
        return len(self._clients)

    def search(self, width: int, fits: Callable[[IntArray], bool]) -> SearchResult:
        """Keeps at most ``width`` partial placements a level; ``fits`` judges whole ones."""
        offers, placed = self._offers, self._placed
        value = np.array([offers.value[placed].sum()])
        left = np.ones((1, offers.num_edges + 1))
        left[0, :-1] -= sum_by_edge(offers.edge[placed], offers.share[placed], offers.num_edges)
        left[0, -1] = offers.size - len(placed)
        if self._hopeless or left.min() < -ROUNDING:
            return SearchResult(None, -np.inf)
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
                return SearchResult(pairs, ceiling)
        return SearchResult(None, ceiling)

    def _arrange(self) -> None:
        """A row of pairs for each client, in the order of the levels."""
        pairs = _options(self._open_pairs, self._offers.client, self._may_stay_out)
        surplus = self._given.surplus[self._clients]
        loss = np.where(pairs == OUT, surplus[:, np.newaxis], self._given.loss(self._offers)[pairs])
        loss[np.arange(pairs.shape[1]) >= self._ways[:, np.newaxis]] = np.inf
        # Clients of which prices are least sure come last, when little is left to be spent.
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

    When part of the budgets is spent and some clients are decided, other prices are better.
    """
    base = np.append(prices.edges, prices.place)
    one_halved = np.where(np.eye(len(base), dtype=np.bool_), 0.5 * base, base)
    return np.vstack((base, 0.7 * base, 1.3 * base, one_halved[base > 0]))

"""A price on every client: edges that want the same one outbid each other.

Lagrange multipliers of "each client once" (10d) leave one knapsack to each edge. In whole clients
(:mod:`fedmuster.solvers.assignment.knapsacks`) they prove a lower bound than prices on budgets
(:mod:`fedmuster.solvers.assignment.prices`), far lower where a budget holds but a few clients, and
what the edges choose is nearly a placement.
"""

from typing import NamedTuple

import numpy as np

from fedmuster.core.records import BoolArray, IntArray
from fedmuster.solvers.assignment.knapsacks import Items, best_loads
from fedmuster.solvers.assignment.offers import Offers
from fedmuster.solvers.assignment.prices import Prices

_PATIENCE = 3
_SHORTENING = 0.6
_ROUNDING = 1e-12


class Bids(NamedTuple):
    """What edges choose at given prices of clients.

    Args:
        bound: no placement is worth more.
        wanted: int64[n], how many edges want each client.
        pairs: one of the pairs of each client that somebody wants.
    """

    bound: float
    wanted: IntArray
    pairs: IntArray


class Bidding:
    """Prices of clients on their way down to a low bound, by subgradient steps.

    Begins where ``prices`` of the budgets ended: each client asks for the surplus it had there.
    """

    def __init__(self, offers: Offers, prices: Prices, width: int) -> None:
        self._offers, self._prices, self._width = offers, prices, width
        self._asked = prices.surplus.copy()
        self._worth = np.zeros(offers.num_edges)
        self._taken: BoolArray = np.zeros(len(offers.client), dtype=np.bool_)
        self._touched: BoolArray = np.ones(offers.num_edges, dtype=np.bool_)
        self._length, self._since_lowest, self._lowest = 1.0, 0, np.inf
        # Whom two edges want goes where it leaves the most at the budgets' prices.
        self._preference = np.lexsort((-prices.reduced, offers.client))

    def bids(self) -> Bids:
        """What the edges choose now; only those choose anew whose clients changed their price."""
        offers = self._offers
        profit = offers.value - self._prices.place - self._asked[offers.client]
        pairs = np.flatnonzero((profit > 0) & self._touched[offers.edge])
        loads = best_loads(
            Items(offers.edge[pairs], profit[pairs], offers.share[pairs]),
            offers.num_edges,
            self._width,
        )
        self._taken[self._touched[offers.edge]] = False
        self._taken[pairs[loads.taken]] = True
        self._worth[self._touched] = loads.worth[self._touched]
        paid = float(self._asked.sum()) + self._prices.place * offers.size
        bound = (paid + float(self._worth.sum())) * (1.0 + _ROUNDING)
        wanted = np.add.reduceat(self._taken, offers.first, dtype=np.int64)
        taken = self._preference[self._taken[self._preference]]
        first = np.flatnonzero(np.diff(offers.client[taken], prepend=-1))
        return Bids(bound, wanted, taken[first])

    def step(self, bids: Bids, goal: float) -> bool:
        """Changes prices: up where several want a client, down where nobody does.

        Returns whether anything changed; if not, the choices are a best placement. As in
        :func:`~fedmuster.solvers.assignment.prices.lowest_bound`, steps are as long as if the
        bound could come down to ``goal``.
        """
        self._since_lowest += 1
        if bids.bound < self._lowest:
            self._lowest, self._since_lowest = bids.bound, 0
        elif self._since_lowest == _PATIENCE:
            self._length, self._since_lowest = self._length * _SHORTENING, 0
        slope = 1.0 - bids.wanted
        slope[(self._asked <= 0) & (slope > 0)] = 0.0
        steepness = float(slope @ slope)
        if steepness == 0.0:
            return False
        stride = self._length * max(bids.bound - goal, 0.0) / steepness
        self._asked = np.maximum(self._asked - stride * slope, 0.0)
        self._touched = np.zeros(self._offers.num_edges, dtype=np.bool_)
        self._touched[self._offers.edge[(slope != 0)[self._offers.client]]] = True
        return True

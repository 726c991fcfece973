"""The default solver of COCS's P2: prices, and a proof of how good its answer is."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, get_args

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.utility import UtilityName
from fedmuster.core.arrays import BoolArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.solvers.assignment.fl_greedy import FLGreedy
from fedmuster.solvers.assignment.knapsacks import Core, Items, best_loads
from fedmuster.solvers.assignment.offers import Offers, fill, sum_by_edge
from fedmuster.solvers.assignment.prices import Incumbent, Prices, start
from fedmuster.solvers.assignment.problem import ASSIGNMENT_SOLVERS, AssignmentProblem, Placement

_BIDDING_PATIENCE = 3
_SHORTENING = 0.6
_ROUNDING = 1e-12


class Bids(NamedTuple):
    """What edges choose at given prices of clients: no placement is worth more than ``bound``.

    ``wanted`` [n] counts the edges that want each client; ``pairs`` has one wanted pair of each
    client.
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
        # A client that two edges want goes where it leaves the most at the budgets' prices.
        self._preference = np.lexsort((-prices.reduced, offers.client))

    def bids(self) -> Bids:
        """What the edges choose now; edges without a changed price keep their choice."""
        offers = self._offers
        profit = offers.value - self._prices.place - self._asked[offers.client]
        pairs = np.flatnonzero((profit > 0) & self._touched[offers.edge])
        items = Items(offers.edge[pairs], profit[pairs], offers.share[pairs])
        loads = best_loads(items, offers.num_edges, self._width)
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
        """Change prices: up where several edges want a client, down where no edge does.

        Returns whether anything changed; if not, the choices are a best placement. As in
        :func:`~fedmuster.solvers.assignment.prices.lowest_bound`, steps are as long as if the
        bound could come down to ``goal``.
        """
        self._since_lowest += 1
        if bids.bound < self._lowest:
            self._lowest, self._since_lowest = bids.bound, 0
        elif self._since_lowest == _BIDDING_PATIENCE:
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


def redealt(offers: Offers, chosen: IntArray, width: int, gain: float, rng: Generator) -> IntArray:
    """A placement that is worth no less than ``chosen``.

    Each edge keeps its clients and is dealt some of the free ones, so no two edges have a client in
    common, and each chooses for itself. An edge that cannot gain ``gain`` need not change. Problems
    with a limit on ``size``, which edges would share, are not allowed.
    """
    free = np.ones(offers.num_clients, dtype=np.bool_)
    free[offers.client[chosen]] = False
    dealt = offers.first[free] + np.floor(
        rng.random(offers.num_clients) * np.diff(offers.first, append=len(offers.client))
    )[free].astype(np.int64)
    hand = np.concatenate((chosen, dealt))
    hand = hand[offers.value[hand] > 0]
    items = Items(offers.edge[hand], offers.value[hand], offers.share[hand])
    loads = best_loads(items, offers.num_edges, width, gain)
    improved = hand[loads.taken]
    before = sum_by_edge(offers.edge[chosen], offers.value[chosen], offers.num_edges)
    after = sum_by_edge(offers.edge[improved], offers.value[improved], offers.num_edges)
    better = after > before
    kept, taken = chosen[~better[offers.edge[chosen]]], improved[better[offers.edge[improved]]]
    return np.concatenate((kept, taken))


_NARROW = (100, 1_000)
"""Narrow searches first: what they find makes the core smaller for a wide one."""
_MOST_UNDECIDED, _MOST_FOR_PROOF = 100, 64
"""The most undecided clients for which a narrow and a wide search are worth their time."""
_MANY_PAIRS = 10_000
"""With more, FLGreedy takes longer than all the rest and has never come near; and edges to which
all clients are worth the same have too many equal choices to bid."""
_KNAPSACK_WIDTH = 100
_DEALS = 3
_PATIENCE = 4
_PROGRESS = 0.9
"""Bidding goes on as long as this many rounds of it bring the gap down to this part of itself."""


@ASSIGNMENT_SOLVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class LagrangianAssignment:
    """A placement, and a bound that proves how far from the best it can be; numpy alone.

    1. Take pairs by density where they fit; put prices on the budgets that lower the bound, and
       take pairs by what they leave at those prices.
    2. If few clients remain undecided, as in networks of some 50 clients, look through all that
       they could do: the answer is optimal and proved to be.
    3. Else let edges bid for clients, whole ones, which lowers the bound further, and improve
       the placement edge by edge, until the two are within ``gap``.

    What is left of the budgets then goes to pairs that still fit, also those of value 0.

    Args:
        steps: of the budgets' prices, at most.
        nodes: the most partial placements that the proof of optimality may keep at once, over all
            its levels. A limit on time would not repeat.
        rounds: of bidding, at most.
        gap: (bound - total) / bound that is good enough where optimality is out of reach.

    Example:
        >>> problem = AssignmentProblem(
        ...     clients=np.array([0, 0, 1]), edges=np.array([0, 1, 1]),
        ...     value=np.array([0.9, 0.8, 0.5]), cost=np.array([2.0, 2.0, 2.5]),
        ...     budget=np.array([3.5, 3.5]), size=2,
        ... )
        >>> LagrangianAssignment().solve(problem, np.random.default_rng(0)).pairs
        array([0, 2])
    """

    name: ClassVar[str] = "lagrangian"
    steps: int = 100
    nodes: int = 1_000_000
    rounds: int = 24
    gap: float = 0.003

    def __post_init__(self) -> None:
        check_types(self)
        require(self.steps >= 1, self, "steps", "at least 1")
        require(self.nodes >= 0, self, "nodes", "at least 0")
        require(self.rounds >= 0, self, "rounds", "at least 0")
        require(0 <= self.gap < 1, self, "gap", "a number in [0, 1)")

    def solve(self, problem: AssignmentProblem, rng: Generator) -> Placement:
        """The placement and its bound; ``rng`` decides between equals."""
        begun = start(problem, rng, self.steps)
        if isinstance(begun, Placement):
            return begun
        offers, order, incumbent, prices = begun
        repaired = fill(offers, _by_surplus(offers, prices))
        incumbent.propose(repaired)
        self._search(incumbent, offers, prices, _NARROW, _MOST_UNDECIDED)
        if not incumbent.whole:
            self._search(incumbent, offers, prices, (self.nodes,), _MOST_FOR_PROOF)
        known = incumbent.value
        self._negotiate(incumbent, offers, prices, order, repaired, rng)
        if incumbent.whole or incumbent.value > known:
            self._search(incumbent, offers, prices, (self.nodes,), _MOST_FOR_PROOF)
        if incumbent.gap > self.gap and len(offers.client) <= _MANY_PAIRS:
            for utility in get_args(UtilityName):  # never worse than FLGreedy
                for pairs in FLGreedy(utility=utility).runs(offers):
                    incumbent.propose(fill(offers, order, pairs))
        return incumbent.placement(order)

    def _search(
        self, incumbent: Incumbent, offers: Offers, prices: Prices, widths: Iterable[int], most: int
    ) -> None:
        """Looks through all that undecided clients could do, if they are few."""
        for width in widths:
            core = Core(offers, prices, incumbent.beat)
            if incumbent.proved or core.num_clients > most:
                return
            found = core.search(min(width, self.nodes // max(core.num_clients, 1)), incumbent.fits)
            if found.pairs is not None:
                incumbent.propose(found.pairs)
            incumbent.lower(max(incumbent.value, found.ceiling))

    def _negotiate(
        self,
        incumbent: Incumbent,
        offers: Offers,
        prices: Prices,
        order: IntArray,
        pairs: IntArray,
        rng: Generator,
    ) -> None:
        """Improves ``pairs`` edge by edge and lets edges bid until the gap is small enough."""

        def improved(pairs: IntArray) -> IntArray:
            if offers.size == offers.num_clients:
                pairs = redealt(offers, pairs, _KNAPSACK_WIDTH, incumbent.gain, rng)
            pairs = fill(offers, order, pairs)
            incumbent.propose(pairs)
            return pairs

        for deal in range(_DEALS):
            if incumbent.proved or (deal and incumbent.gap <= self.gap):
                return
            pairs = improved(pairs)
        if incumbent.whole and len(offers.client) > _MANY_PAIRS:
            return
        bidding, gaps = Bidding(offers, prices, _KNAPSACK_WIDTH), [np.inf] * _PATIENCE
        for _ in range(self.rounds):
            gaps.append(incumbent.gap)
            if gaps[-1] <= self.gap or gaps[-1] > _PROGRESS * gaps[-1 - _PATIENCE]:
                break
            bids = bidding.bids()
            incumbent.lower(bids.bound)
            chosen = bids.pairs[np.argsort(-offers.value[bids.pairs])][: offers.size]
            improved(fill(offers, order, chosen))
            if not bidding.step(bids, incumbent.value):
                break


def _by_surplus(offers: Offers, prices: Prices) -> IntArray:
    """The pairs that clients prefer at these prices first, then by what is left per share."""
    second_choice = prices.reduced < prices.surplus[offers.client]
    left = prices.reduced / np.maximum(offers.share, 1e-9)
    return np.lexsort((-left, second_choice))

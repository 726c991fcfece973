"""The default solver of COCS's P2: prices, and a proof of how good its answer is."""

from dataclasses import dataclass
from typing import ClassVar, get_args

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import check_types, require
from fedmuster.core.records import IntArray
from fedmuster.objectives.edge_utility import UtilityName
from fedmuster.solvers.assignment.bidding import Bidding
from fedmuster.solvers.assignment.branch_and_bound import Core
from fedmuster.solvers.assignment.filling import fill
from fedmuster.solvers.assignment.fl_greedy import FLGreedy
from fedmuster.solvers.assignment.incumbent import Incumbent
from fedmuster.solvers.assignment.local_search import redealt
from fedmuster.solvers.assignment.offers import Offers
from fedmuster.solvers.assignment.prices import Prices
from fedmuster.solvers.assignment.problem import AssignmentProblem, Placement
from fedmuster.solvers.assignment.start import start

_NARROW = (100, 1_000)
"""Narrow searches first: what they find makes the core smaller for a wide one."""
_MOST_UNDECIDED, _MOST_FOR_PROOF = 100, 64
"""Of more clients than this a narrow and a wide search are not worth their time."""
_MANY_PAIRS = 10_000
"""With more, FLGreedy takes longer than all the rest and has never come near; and edges to which
all clients are worth the same have too many equal choices to bid."""
_KNAPSACK_WIDTH = 100
_DEALS = 3
_PATIENCE = 4
_PROGRESS = 0.9
"""Bidding goes on as long as this many rounds of it bring the gap down to this part of itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LagrangianAssignment:
    """A placement, and a bound that proves how far from the best it can be; numpy alone.

    1. Take pairs by density where they fit; put prices on the budgets that lower the bound, and
       take pairs by what they leave at those prices.
    2. If few clients remain undecided, as in networks of some 50 clients, look through all that
       they could do: the answer is optimal and proved to be.
    3. Else let edges bid for clients, whole ones, which lowers the bound further, and improve
       the placement edge by edge, until the two are within ``gap``.

    What is left of the budgets then goes to whoever still fits, also those worth nothing.

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
        self,
        incumbent: Incumbent,
        offers: Offers,
        prices: Prices,
        widths: tuple[int, ...],
        most: int,
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

"""A price on every edge's budget proves an upper bound of the value of all placements.

Lagrange multipliers of the budgets (10b) turn P2 into n choices of one client each: the edge with
the largest ``value - price * share``, or none. What those choices are worth, plus the prices of all
budgets, is at least what any placement is worth.
"""

from dataclasses import replace
from math import floor, inf
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.solvers.assignment.offers import Offers, by_density, fill, sum_by_edge
from fedmuster.solvers.assignment.problem import AssignmentProblem, Placement
from fedmuster.solvers.top_k import top_k

_ROUNDING = 1e-13
"""Relative; each term of the bound is off by a few units of 1e-16."""
_PATIENCE = 5
_SHORTENING = 0.6
_SHORTEST = 0.03
"""Of Polyak's step; shorter ones lower the bound by no more than a part in thousands."""


class Prices(NamedTuple):
    """Prices and what they prove: no placement is worth more than ``bound``.

    ``edges`` [M] are the prices of whole budgets, ``place`` that of one of the ``size`` places, all
    >= 0; the best ``place`` is the surplus of the first client without a place. ``reduced`` [P] is
    the value of each pair less what it has to pay, and ``surplus`` [n] the largest of each
    client's, or 0.
    """

    edges: FloatArray
    place: float
    bound: float
    reduced: FloatArray
    surplus: FloatArray

    def loss(self, offers: Offers) -> FloatArray:
        """[P], by how much each pair is worse for its client than the best it could do."""
        return self.surplus[offers.client] - self.reduced

    def open_pairs(self, offers: Offers, gap: float) -> BoolArray:
        """bool[P], those that lose no more than ``gap`` (reduced-cost fixing)."""
        return (self.loss(offers) <= gap) & (offers.value > 0)


def charge(offers: Offers, edges: FloatArray) -> Prices:
    """The bound that prices ``edges`` prove."""
    reduced = offers.value - edges[offers.edge] * offers.share
    surplus = np.maximum(np.maximum.reduceat(reduced, offers.first), 0.0)
    place, paid = 0.0, float(edges.sum())
    outside = offers.num_clients - offers.size
    if outside > 0:
        place = float(np.partition(surplus, outside - 1)[outside - 1])
        reduced -= place
        surplus = np.maximum(surplus - place, 0.0)
        paid += place * offers.size
    bound = float(surplus.sum()) + paid
    return Prices(edges, place, bound, reduced, surplus)


def safe_bound(offers: Offers, prices: Prices) -> float:
    """``prices.bound``, raised by more than rounding can have lowered it."""
    takers = (prices.surplus > 0)[offers.client] & (prices.reduced > 0)
    return prices.bound + _ROUNDING * (prices.bound + float(offers.value[takers].sum()))


def lowest_bound(offers: Offers, goal: float, steps: int) -> Prices:
    """Prices with a bound close to the lowest there is, by at most ``steps`` subgradient steps.

    Polyak's step length: as if the bound could come down to ``goal``, the value of a placement;
    shorter whenever that has not helped for a while.
    """
    best = here = charge(offers, np.zeros(offers.num_edges))
    length, since_best = 1.0, 0
    for _ in range(steps):
        slope = 1.0 - _demand(offers, here)
        slope[(here.edges <= 0) & (slope > 0)] = 0.0  # no price is below 0
        steepness = float(slope @ slope)
        if steepness == 0.0 or here.bound <= goal or length < _SHORTEST:
            break
        stride = length * (here.bound - goal) / steepness
        here = charge(offers, np.maximum(here.edges - stride * slope, 0.0))
        since_best += 1
        if here.bound < best.bound:
            best, since_best = here, 0
        elif since_best == _PATIENCE:
            here, length, since_best = best, length * _SHORTENING, 0
    return best


def _demand(offers: Offers, prices: Prices) -> FloatArray:
    """[M], the shares that clients ask for; a client with several best edges asks for parts."""
    wanted = (prices.reduced > 0) & (prices.reduced == prices.surplus[offers.client])
    pairs = np.flatnonzero(wanted)
    ways = np.add.reduceat(wanted, offers.first, dtype=np.int64)
    asked = offers.share[pairs] / ways[offers.client[pairs]]
    return sum_by_edge(offers.edge[pairs], asked, offers.num_edges)


_BUDGET_ROUNDING = 1e-9


def _budgets_cannot_bind(problem: AssignmentProblem) -> bool:
    """Whether every edge could pay for all its pairs at once, and with something to spare."""
    if np.isinf(problem.budget).all():
        return True
    everything = np.bincount(problem.edges, problem.cost, problem.num_edges)
    return bool((everything <= problem.budget * (1.0 - _BUDGET_ROUNDING)).all())


def best_of_each(problem: AssignmentProblem, rng: Generator) -> Placement:
    """The clients of the largest values, each at its best edge; equals at random. Optimal."""
    best = np.arange(len(problem.clients))
    if np.any(problem.clients[1:] <= problem.clients[:-1]):  # else each client has one pair
        best = np.lexsort((rng.random(len(best)), problem.value, problem.clients))
        best = best[np.flatnonzero(np.diff(problem.clients[best], append=-1))]
    chosen = top_k(problem.value[best], min(problem.size, len(best)), rng)
    pairs = np.sort(best[chosen])
    return Placement(pairs, problem.total(pairs))


_SMALLEST_GAIN = 1e-12
"""Relative. A placement that is better by less may be mere rounding, and does not count."""


class Incumbent:
    """The best placement and the lowest bound so far; values are those of the offers, up to 1."""

    def __init__(self, problem: AssignmentProblem, offers: Offers) -> None:
        self._problem, self._offers = problem, offers
        self.pairs: IntArray = np.empty(0, dtype=np.int64)
        self.value = 0.0
        self.bound = inf
        # Where all clients are worth the same, totals are whole numbers of it (COCS Eq. 14, 15).
        self.whole = bool((offers.value[offers.value > 0] == 1.0).all())

    @property
    def gain(self) -> float:
        """The least by which a better placement is better, or is worth looking for."""
        return 1.0 - 1e-6 if self.whole else _SMALLEST_GAIN * (1.0 + self.value)

    @property
    def beat(self) -> float:
        """Only placements that are worth more than this are of interest."""
        return self.value + self.gain

    @property
    def proved(self) -> bool:
        """Whether nothing is better."""
        return self.bound <= self.beat

    @property
    def gap(self) -> float:
        """How much of the bound is still missing, at most."""
        return 0.0 if self.proved else (self.bound - self.value) / self.bound

    def fits(self, pairs: IntArray) -> bool:
        """Whether the problem allows these offers, exactly."""
        return self._problem.fits(self._offers.origin[pairs])

    def propose(self, pairs: IntArray) -> None:
        """Keeps ``pairs`` if they are the best so far, less what breaks a budget by rounding."""
        offers = self._offers
        if float(offers.value[pairs].sum()) > self.value:
            pairs = self._within_budgets(pairs)
            value = float(offers.value[pairs].sum())
            if value > self.value:
                self.pairs, self.value = pairs, value

    def lower(self, bound: float) -> None:
        """Keeps ``bound`` if it is the lowest so far, a little above where rounding put it."""
        bound *= 1.0 + _SMALLEST_GAIN
        self.bound = min(self.bound, floor(bound) if self.whole else bound)

    def placement(self, order: IntArray) -> Placement:
        """The answer, filled up in this ``order`` with pairs that fit, also of value 0."""
        offers, problem = self._offers, self._problem
        chosen = self._within_budgets(fill(offers, order, self.pairs))
        if float(offers.value[chosen].sum()) < self.value:
            chosen = self.pairs
        pairs = np.sort(offers.origin[chosen])
        total = problem.total(pairs)
        if self.proved:
            return Placement(pairs, total * (1.0 + 2 * _SMALLEST_GAIN))
        return Placement(pairs, max(total, self.bound * offers.unit))

    def _within_budgets(self, pairs: IntArray) -> IntArray:
        """``pairs`` less the least valuable at each edge whose budget they break."""
        problem, offers = self._problem, self._offers
        while True:
            chosen = offers.origin[pairs]
            broken = problem.spent(chosen) > problem.budget
            if not broken.any():
                return pairs
            at_fault = np.flatnonzero(broken[problem.edges[chosen]])
            worst = at_fault[np.argmin(offers.value[pairs[at_fault]])]
            pairs = np.delete(pairs, worst)


Opening = tuple[Offers, IntArray, Incumbent, Prices]
"""How solvers begin: offers, their order by density, a greedy placement, and prices."""


def start(problem: AssignmentProblem, rng: Generator, steps: int) -> Opening | Placement:
    """Where to begin, with at most ``steps`` of the prices; or the best placement, if easy."""
    if _budgets_cannot_bind(problem):
        return best_of_each(problem, rng)
    problem = _with_budgets_in_reach(problem)
    offers = Offers.of(problem, rng)
    if len(offers.client) == 0 or offers.size == 0:
        return Placement(np.empty(0, dtype=np.int64), 0.0)
    incumbent, order = Incumbent(problem, offers), by_density(offers)
    incumbent.propose(fill(offers, order))
    prices = lowest_bound(offers, incumbent.value, steps)
    incumbent.lower(safe_bound(offers, prices))
    return offers, order, incumbent, prices


def _with_budgets_in_reach(problem: AssignmentProblem) -> AssignmentProblem:
    """The same, where all pairs of an edge cost alike with what they can use of its budget.

    No placement is lost, and prices do not pay for what no pair can use.
    """
    lowest, highest = np.full(problem.num_edges, np.inf), np.zeros(problem.num_edges)
    np.minimum.at(lowest, problem.edges, problem.cost)
    np.maximum.at(highest, problem.edges, problem.cost)
    binding = problem.budget < len(problem.cost) * lowest
    alike = np.flatnonzero((lowest == highest) & (lowest > 0) & binding)
    cost, budget = lowest[alike], problem.budget[alike]
    count = np.floor(budget / cost)
    count -= count * cost > budget  # the quotient was rounded up …
    count += (count + 1) * cost <= budget  # … or down
    reached = problem.budget.copy()
    reached[alike] = count * cost
    return replace(problem, budget=reached)

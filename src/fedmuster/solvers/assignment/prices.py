"""A price on every edge's budget: what no placement can be worth more than.

Lagrange multipliers of the budgets (10b) turn P2 into n choices of one client each: the edge with
the largest ``value - price * share``, or none. What those choices are worth, plus the prices of all
budgets, is at least what any placement is worth.
"""

from typing import NamedTuple

import numpy as np

from fedmuster.core.records import BoolArray, FloatArray
from fedmuster.solvers.assignment.offers import Offers, sum_by_edge

_ROUNDING = 1e-13
"""Relative; each term of the bound is off by a few units of 1e-16."""
_PATIENCE = 5
_SHORTENING = 0.6
_SHORTEST = 0.03
"""Of Polyak's step; shorter ones lower the bound by no more than a part in thousands."""


class Prices(NamedTuple):
    """Prices and what they prove.

    Args:
        edges: [M], the price of each edge's whole budget, >= 0.
        place: the price of one of the ``size`` places, >= 0. It needs no search: the best is the
            surplus of the first client who finds no place.
        bound: no placement is worth more.
        reduced: [P], the value of each pair less what it has to pay.
        surplus: [n], the largest of each client's, or 0.
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
    """[M], the shares that clients ask for; who is undecided between edges asks for parts."""
    wanted = (prices.reduced > 0) & (prices.reduced == prices.surplus[offers.client])
    pairs = np.flatnonzero(wanted)
    ways = np.add.reduceat(wanted, offers.first, dtype=np.int64)
    asked = offers.share[pairs] / ways[offers.client[pairs]]
    return sum_by_edge(offers.edge[pairs], asked, offers.num_edges)

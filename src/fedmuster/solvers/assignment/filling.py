"""Take pairs one after the other where they fit: the greedy step of all assignment solvers."""

from math import fsum

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.records import RoundView, Selection
from fedmuster.solvers.assignment.problem import AssignmentProblem, Offers, density, sum_by_edge


class Filling:
    """A placement that grows. Budgets hold up to rounding."""

    def __init__(self, offers: Offers, chosen: IntArray) -> None:
        self._offers = offers
        self._parts = [chosen]
        self._free: BoolArray = np.ones(offers.num_clients, dtype=np.bool_)
        self._free[offers.client[chosen]] = False
        self._left: FloatArray = 1.0 - sum_by_edge(
            offers.edge[chosen], offers.share[chosen], offers.num_edges
        )
        self._room = offers.size - len(chosen)

    @property
    def chosen(self) -> IntArray:
        """All pairs taken so far."""
        return np.concatenate(self._parts)

    def fitting(self, pairs: IntArray) -> IntArray:
        """Those of ``pairs`` of which each by itself still fits."""
        if self._room <= 0:
            return pairs[:0]
        offers = self._offers
        fits = self._free[offers.client[pairs]]
        fits &= offers.share[pairs] <= self._left[offers.edge[pairs]]
        return pairs[fits]

    def take_most(self, pairs: IntArray) -> IntArray:
        """Takes a good part of fitting ``pairs``, first come first served, and returns it.

        Each edge takes pairs until its budget would break, each client its first offer that was
        taken. So not all that fit need be taken, but at least one.
        """
        offers = self._offers
        by_edge = np.argsort(offers.edge[pairs], kind="stable")
        edge = offers.edge[pairs[by_edge]]
        starts = np.flatnonzero(np.diff(edge, prepend=-1))
        run = np.cumsum(offers.share[pairs[by_edge]])
        before = np.concatenate(([0.0], run))[starts]
        within = run - np.repeat(before, np.diff(starts, append=len(edge))) <= self._left[edge]
        within[starts] = True  # it fits by itself, whatever rounding makes of the running sum
        taken: IntArray = pairs[np.sort(by_edge[within])]
        _, first = np.unique(offers.client[taken], return_index=True)
        taken = taken[np.sort(first)][: self._room]
        self._parts.append(taken)
        self._free[offers.client[taken]] = False
        self._left -= sum_by_edge(offers.edge[taken], offers.share[taken], offers.num_edges)
        self._room -= len(taken)
        return taken


def fill(offers: Offers, order: IntArray, chosen: IntArray | None = None) -> IntArray:
    """``chosen`` and, in this ``order``, whatever fits beside it."""
    filling = Filling(offers, np.empty(0, dtype=np.int64) if chosen is None else chosen)
    while len(order := filling.fitting(order)):
        filling.take_most(order)
    return filling.chosen


def by_density(offers: Offers) -> IntArray:
    """All pairs, those of most value for their cost first, then the more valuable."""
    return np.lexsort((-offers.value, -density(offers.value, offers.share)))


# Take pairs of client and edge in a given order, whatever still fits.

_CHUNK = 4096
_CLOSE = 1e-9
"""By how much of it a running sum of nine million costs may be wrong."""


def all_pairs(view: RoundView) -> AssignmentProblem:
    """Every pair of an available client and an edge that covers it and can pay, of value 1."""
    return AssignmentProblem.of(view, np.ones(view.network.coverage.shape))


def first_come(view: RoundView, problem: AssignmentProblem, order: IntArray) -> Selection:
    """Whatever fits of the pairs of ``problem``, taken in this order."""
    pairs = take_in_order(problem, order)
    return Selection.at_edges(view, problem.clients[pairs], problem.edges[pairs])


def take_in_order(problem: AssignmentProblem, order: IntArray) -> IntArray:
    """The pairs that are taken, in the order in which they are: nothing more fits afterwards.

    A pair is taken if its client is still free, its edge can still pay, and there is still room.

    Args:
        problem: clients, edges, costs, budgets and size; values do not matter.
        order: distinct positions of pairs.

    Example:
        >>> problem = AssignmentProblem(
        ...     clients=np.array([0, 0, 1, 2]),
        ...     edges=np.array([0, 1, 1, 1]),
        ...     value=np.ones(4),
        ...     cost=np.array([1.0, 1.0, 2.5, 2.0]),
        ...     budget=np.array([1.0, 3.0]),
        ...     size=3,
        ... )
        >>> take_in_order(problem, np.array([1, 0, 2, 3]))
        array([1, 3])
    """
    purses = [_Purse(budget) for budget in problem.budget.tolist()]
    free = np.ones(problem.clients.max(initial=-1) + 1, dtype=np.bool_)
    taken: list[int] = []
    for start in range(0, len(order), _CHUNK):
        for pair in _still_possible(problem, order[start : start + _CHUNK], free, purses):
            if len(taken) == problem.size:
                return np.array(taken, dtype=np.int64)
            client = problem.clients[pair]
            if free[client] and purses[problem.edges[pair]].pay(float(problem.cost[pair])):
                free[client] = False
                taken.append(pair)
    return np.array(taken, dtype=np.int64)


def _still_possible(
    problem: AssignmentProblem, pairs: IntArray, free: BoolArray, purses: list["_Purse"]
) -> list[int]:
    """Without those that are certainly out, so that the loop sees few pairs that do not fit."""
    spent = np.array([purse.spent for purse in purses])
    edges = problem.edges[pairs]
    payable = spent[edges] + problem.cost[pairs] <= (1 + _CLOSE) * problem.budget[edges]
    possible: list[int] = pairs[free[problem.clients[pairs]] & payable].tolist()
    return possible


class _Purse:
    """What an edge has paid; ``fsum`` decides, but is called only where the sum is close."""

    __slots__ = ("budget", "costs", "spent")

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.costs: list[float] = []
        self.spent = 0.0

    def pay(self, cost: float) -> bool:
        """Whether it could, to the last bit."""
        total = self.spent + cost
        close = cost > 0 and total >= (1 - _CLOSE) * self.budget
        if total > (1 + _CLOSE) * self.budget or (
            close and fsum([*self.costs, cost]) > self.budget
        ):
            return False
        self.costs.append(cost)
        self.spent = total
        return True

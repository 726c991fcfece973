"""From a solver, an order or a choice of clients to a placement of clients at edges."""

from collections.abc import Callable
from dataclasses import replace
from math import fsum

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import DataError
from fedmuster.core.records import RoundView, Selection
from fedmuster.solvers.assignment.problem import AssignmentProblem, AssignmentSolver

_CHUNK = 4096
_CLOSE = 1e-9
"""The relative error of a running sum of nine million costs."""


def all_pairs(view: RoundView) -> AssignmentProblem:
    """Every pair of an available client and an edge that covers it and can pay, of value 1."""
    return AssignmentProblem.of(view, np.ones(view.network.coverage.shape))


def first_come(view: RoundView, problem: AssignmentProblem, order: IntArray) -> Selection:
    """Whatever fits of the pairs of ``problem``, taken in this order."""
    pairs = take_in_order(problem, order)
    return Selection.at_edges(view, problem.clients[pairs], problem.edges[pairs])


def take_in_order(problem: AssignmentProblem, order: IntArray) -> IntArray:
    """The pairs that are taken in this ``order`` of positions; nothing more fits afterwards.

    A pair is taken if its client is still free, its edge can still pay, and there is still room.
    Values do not matter.
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
    """Without the pairs that certainly do not fit, so that the loop sees few of those."""
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
        """Whether the edge can pay for the client, to the last bit."""
        total = self.spent + cost
        close = cost > 0 and total >= (1 - _CLOSE) * self.budget
        if total > (1 + _CLOSE) * self.budget or (
            close and fsum([*self.costs, cost]) > self.budget
        ):
            return False
        self.costs.append(cost)
        self.spent = total
        return True


def best_placement(
    view: RoundView, value: FloatArray, *, solver: AssignmentSolver, rng: Generator
) -> Selection:
    """The placement with the largest sum of ``value`` [K, M] that budgets pay for (COCS P2)."""
    problem = AssignmentProblem.of(view, value)
    pairs = solver.solve(problem, rng).pairs
    return Selection.at_edges(view, problem.clients[pairs], problem.edges[pairs])


def explore(
    problem: AssignmentProblem, under_explored: BoolArray, solver: AssignmentSolver, rng: Generator
) -> IntArray:
    """As many under-explored pairs as fit, then the best of the others with what is left.

    First the largest number of under-explored pairs within the budgets (COCS Eq. 15; Eq. 14 if
    there are no others), one of those sets at random. Then, with what is left of the budgets (Eq.
    16) and of the clients, the explored pairs of the largest sum of values (Eq. 17). Values of
    under-explored pairs do not matter. Returns the positions of all these pairs, increasing.
    """
    if under_explored.shape != problem.clients.shape or under_explored.dtype != np.bool_:
        raise DataError(
            f"explore: under_explored is {under_explored.dtype}{under_explored.shape}, expected "
            f"bool{problem.clients.shape}: one for each pair"
        )
    new = np.flatnonzero(under_explored)
    alike = replace(problem.part(new), value=np.ones(len(new)))
    tried = new[solver.solve(alike, rng).pairs]
    known = np.flatnonzero(~under_explored & problem.others(tried))
    rest = problem.after(tried).part(known)
    while True:
        pairs = np.sort(np.concatenate((tried, known[solver.solve(rest, rng).pairs])))
        broken = problem.spent(pairs) > problem.budget
        if not broken.any():
            return pairs
        # The sum of several was rounded down to what is left; what is spent in all decides.
        rest = replace(rest, budget=np.where(broken, np.nextafter(rest.budget, 0.0), rest.budget))


Choose = Callable[[IntArray, int], IntArray]
"""(clients, how many are wanted) -> the chosen ones."""


def fill_in_turns(
    problem: AssignmentProblem, choose: Choose, *, solver: AssignmentSolver, rng: Generator
) -> IntArray:
    """The pairs of ``problem`` that are taken; nothing more fits, if ``choose`` wanted more.

    In each turn n is the most clients that the rest of the budgets can pay for, ``choose`` names n
    of those that would fit alone, and as many of them as possible are placed. If ``choose`` names
    fewer, this was the last turn. All pairs have the same value.
    """
    taken = np.empty(0, dtype=np.int64)
    while True:
        rest = problem.after(taken)
        payable = rest.cost <= rest.budget[rest.edges]
        pairs = np.flatnonzero(payable & rest.others(taken))
        most = len(solver.solve(rest.part(pairs), rng).pairs)  # COCS Eq. 14
        if most == 0:
            return taken
        named = choose(np.unique(rest.clients[pairs]), most)
        wanted = pairs[np.isin(rest.clients[pairs], named)]
        fitting = wanted[solver.solve(rest.part(wanted), rng).pairs]
        # The rest of a budget is rounded: what is taken in all decides, to the last bit.
        more = take_in_order(problem, np.concatenate([taken, fitting]))
        if len(named) < most or len(more) == len(taken):
            return more
        taken = more

"""Take pairs of client and edge in a given order, whatever still fits."""

from math import fsum

import numpy as np

from fedmuster.core.records import BoolArray, IntArray, RoundView, Selection
from fedmuster.solvers.assignment.problem import AssignmentProblem

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

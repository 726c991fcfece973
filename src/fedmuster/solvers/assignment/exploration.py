"""COCS's exploration problems (14), (15) and (17): whom to try, then whom to use."""

from math import fsum, ulp
from typing import NamedTuple, Protocol

import numpy as np
from numpy.random import Generator

from fedmuster.core.errors import DataError
from fedmuster.core.records import BoolArray, FloatArray, IntArray
from fedmuster.solvers.assignment.problem import AssignmentProblem, Placement


class _Solver(Protocol):
    def solve(self, problem: AssignmentProblem, rng: Generator) -> Placement: ...


class Exploration(NamedTuple):
    """Whom a round of exploration places.

    Args:
        pairs: int64, positions in the problem, increasing.
        tried: bool, which of them are under-explored.
    """

    pairs: IntArray
    tried: BoolArray


def explore(
    problem: AssignmentProblem, under_explored: BoolArray, solver: _Solver, rng: Generator
) -> Exploration:
    """As many under-explored pairs as fit, then the best of the others with what is left.

    First the largest number of under-explored pairs within the budgets (COCS Eq. 15; Eq. 14 if
    there are no others), one of those sets at random. Then, with what is left of the budgets
    (Eq. 16) and of the clients, the explored pairs of the largest sum of values (Eq. 17).

    Args:
        problem: its values are the estimates of explored pairs; those of others do not matter.
        under_explored: bool[P].
        solver: of both problems.
        rng: decides between equals.

    Example:
        >>> from fedmuster.solvers.assignment.lagrangian import LagrangianAssignment
        >>> problem = AssignmentProblem(
        ...     clients=np.array([0, 1, 2]), edges=np.array([0, 0, 0]),
        ...     value=np.array([0.9, 0.0, 0.5]), cost=np.array([2.0, 2.0, 1.0]),
        ...     budget=np.array([3.5]), size=3,
        ... )
        >>> new = np.array([False, True, False])
        >>> explore(problem, new, LagrangianAssignment(), np.random.default_rng(0)).pairs
        array([1, 2])
    """
    if under_explored.shape != problem.clients.shape or under_explored.dtype != np.bool_:
        raise DataError(
            f"explore: under_explored is {under_explored.dtype}{under_explored.shape}, expected "
            f"bool{problem.clients.shape}: one for each pair"
        )
    new = np.flatnonzero(under_explored)
    tried = _solved(problem, new, np.ones(len(new)), problem.budget, problem.size, solver, rng)
    explored = ~under_explored & ~np.isin(problem.clients, problem.clients[tried])
    known = np.flatnonzero(explored)
    left, room = _left(problem, tried), problem.size - len(tried)
    while True:
        used = _solved(problem, known, problem.value[known], left, room, solver, rng)
        pairs = np.sort(np.concatenate((tried, used)))
        broken = problem.spent(pairs) > problem.budget
        if not broken.any():
            return Exploration(pairs, under_explored[pairs])
        left[broken] = np.nextafter(left[broken], 0.0)  # was rounded up


def _solved(
    problem: AssignmentProblem,
    among: IntArray,
    value: FloatArray,
    budget: FloatArray,
    size: int,
    solver: _Solver,
    rng: Generator,
) -> IntArray:
    part = AssignmentProblem(
        clients=problem.clients[among],
        edges=problem.edges[among],
        value=value,
        cost=problem.cost[among],
        budget=budget,
        size=size,
    )
    return among[solver.solve(part, rng).pairs]


def _left(problem: AssignmentProblem, tried: IntArray) -> FloatArray:
    """[M], the budgets less what ``tried`` costs (COCS Eq. 16): whoever fits beside it costs that.

    A budget pays for sums up to half a unit of its last digit above it: they are rounded to it.
    """
    left = problem.budget.copy()
    for edge in np.unique(problem.edges[tried]):
        costs = problem.cost[tried[problem.edges[tried] == edge]]
        budget = float(left[edge])
        left[edge] = max(0.0, fsum([budget, ulp(budget) / 2, *(-costs).tolist()]))
    return left

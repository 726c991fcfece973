"""COCS's exploration problems (14), (15) and (17): whom to try, then whom to use."""

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from fedmuster.core.errors import DataError
from fedmuster.core.records import BoolArray, IntArray
from fedmuster.solvers.assignment.problem import AssignmentProblem
from fedmuster.solvers.assignment.solver import AssignmentSolver


def explore(
    problem: AssignmentProblem,
    under_explored: BoolArray,
    solver: AssignmentSolver,
    rng: Generator,
) -> IntArray:
    """As many under-explored pairs as fit, then the best of the others with what is left.

    First the largest number of under-explored pairs within the budgets (COCS Eq. 15; Eq. 14 if
    there are no others), one of those sets at random. Then, with what is left of the budgets
    (Eq. 16) and of the clients, the explored pairs of the largest sum of values (Eq. 17). Returns
    the positions of all these pairs, increasing.

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
        >>> explore(problem, new, LagrangianAssignment(), np.random.default_rng(0))
        array([1, 2])
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

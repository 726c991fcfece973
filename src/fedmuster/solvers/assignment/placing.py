"""Any of the solvers, as policies are configured with one."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import DataError
from fedmuster.core.records import RoundView, Selection
from fedmuster.solvers.assignment.exact import ExactAssignment
from fedmuster.solvers.assignment.filling import take_in_order
from fedmuster.solvers.assignment.fl_greedy import FLGreedy
from fedmuster.solvers.assignment.lagrangian import LagrangianAssignment
from fedmuster.solvers.assignment.problem import AssignmentProblem

AssignmentSolver = ExactAssignment | LagrangianAssignment | FLGreedy


# From values of pairs of client and edge to a Selection, by any of the assignment solvers.


def best_placement(
    view: RoundView, value: FloatArray, *, solver: AssignmentSolver, rng: Generator
) -> Selection:
    """The placement with the largest sum of ``value`` [K, M] that budgets pay for (COCS P2)."""
    problem = AssignmentProblem.of(view, value)
    pairs = solver.solve(problem, rng).pairs
    return Selection.at_edges(view, problem.clients[pairs], problem.edges[pairs])


# COCS's exploration problems (14), (15) and (17): whom to try, then whom to use.


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


# Fill budgets with clients that somebody else chooses, turn by turn.

Choose = Callable[[IntArray, int], IntArray]
"""Whom of these clients, of whom so many are wanted."""


def fill_in_turns(
    problem: AssignmentProblem, choose: Choose, *, solver: AssignmentSolver, rng: Generator
) -> IntArray:
    """The pairs of ``problem`` that are taken; nothing more fits, if ``choose`` wanted more.

    In each turn n is the most clients that the rest of the budgets can pay for, ``choose`` names n
    of those that would fit alone, and as many of them as possible are placed. If it names fewer,
    this was the last turn.

    Args:
        problem: the pairs, each of the same value.
        choose: names clients.
        solver: of how many fit, and where.
        rng: breaks ties.

    Example:
        >>> from fedmuster.solvers.assignment import LagrangianAssignment
        >>> problem = AssignmentProblem(
        ...     clients=np.arange(4),
        ...     edges=np.zeros(4, dtype=np.int64),
        ...     value=np.ones(4),
        ...     cost=np.array([4.0, 1.0, 1.5, 2.0]),
        ...     budget=np.array([4.5]),
        ...     size=4,
        ... )
        >>> def dearest(clients, count):
        ...     return clients[np.argsort(-problem.cost[clients])][:count]
        >>> solver, rng = LagrangianAssignment(), np.random.default_rng(0)
        >>> fill_in_turns(problem, dearest, solver=solver, rng=rng)  # of 0, 2, 3 two; then 1
        array([2, 3, 1])
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

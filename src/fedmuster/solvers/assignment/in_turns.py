"""Fill budgets with clients that somebody else chooses, turn by turn."""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import IntArray
from fedmuster.solvers.assignment.in_order import take_in_order
from fedmuster.solvers.assignment.problem import AssignmentProblem
from fedmuster.solvers.assignment.solver import AssignmentSolver

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

"""Fill budgets with clients that somebody else chooses, turn by turn."""

from collections.abc import Callable
from dataclasses import replace
from math import fsum
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.solvers.assignment import AssignmentProblem, AssignmentSolver
from fedmuster.solvers.in_order import take_in_order

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
        rest = _Rest.of(problem, taken)
        most = len(solver.solve(rest.problem, rng).pairs)  # COCS Eq. 14
        if most == 0:
            return taken
        named = choose(np.unique(rest.problem.clients), most)
        wanted = rest.only(named)
        fitting = wanted.pairs[solver.solve(wanted.problem, rng).pairs]
        # The rest of a budget is rounded: what is taken in all decides, to the last bit.
        more = take_in_order(problem, np.concatenate([taken, fitting]))
        if len(named) < most or len(more) == len(taken):
            return more
        taken = more


class _Rest(NamedTuple):
    """What can be added to what was taken: ``problem``, of the pairs at ``pairs`` of the whole."""

    pairs: IntArray
    problem: AssignmentProblem

    @classmethod
    def of(cls, whole: AssignmentProblem, taken: IntArray) -> "_Rest":
        """Pairs of other clients whose edge could pay for them."""
        left = _left(whole, taken)
        others = ~np.isin(whole.clients, whole.clients[taken])
        pairs = np.flatnonzero(others & (whole.cost <= left[whole.edges]))
        part = replace(_part(whole, pairs), budget=left, size=whole.size - len(taken))
        return cls(pairs, part)

    def only(self, clients: IntArray) -> "_Rest":
        """The pairs of these clients."""
        kept = np.flatnonzero(np.isin(self.problem.clients, clients))
        return _Rest(self.pairs[kept], _part(self.problem, kept))


def _part(problem: AssignmentProblem, pairs: IntArray) -> AssignmentProblem:
    return replace(
        problem,
        clients=problem.clients[pairs],
        edges=problem.edges[pairs],
        value=problem.value[pairs],
        cost=problem.cost[pairs],
    )


def _left(problem: AssignmentProblem, taken: IntArray) -> FloatArray:
    """[M], the most that, added to what was spent, is rounded to the budget at most."""
    left = problem.budget.copy()
    for edge in np.unique(problem.edges[taken]):
        budget = float(left[edge])
        if budget < np.inf:
            spent = problem.cost[taken[problem.edges[taken] == edge]]
            most = fsum([budget, 0.5 * float(np.spacing(budget)), *-spent])
            # Half way between two numbers, the even one is taken, which may be above the budget.
            left[edge] = most if fsum([*spent, most]) <= budget else np.nextafter(most, 0.0)
    return left

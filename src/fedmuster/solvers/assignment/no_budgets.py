"""Where no budget can bind, as in flat federated learning: the best pair of each client."""

import numpy as np
from numpy.random import Generator

from fedmuster.solvers.assignment.problem import AssignmentProblem, Placement
from fedmuster.solvers.top_k import top_k

_ROUNDING = 1e-9


def budgets_cannot_bind(problem: AssignmentProblem) -> bool:
    """Whether every edge could pay for all its pairs at once, and with something to spare."""
    if np.isinf(problem.budget).all():
        return True
    everything = np.bincount(problem.edges, problem.cost, problem.num_edges)
    return bool((everything <= problem.budget * (1.0 - _ROUNDING)).all())


def best_of_each(problem: AssignmentProblem, rng: Generator) -> Placement:
    """The clients of the largest values, each at its best edge; equals at random. Optimal."""
    best = np.arange(len(problem.clients))
    if np.any(problem.clients[1:] <= problem.clients[:-1]):  # else each client has one pair
        best = np.lexsort((rng.random(len(best)), problem.value, problem.clients))
        best = best[np.flatnonzero(np.diff(problem.clients[best], append=-1))]
    chosen = top_k(problem.value[best], min(problem.size, len(best)), rng)
    pairs = np.sort(best[chosen])
    return Placement(pairs, problem.total(pairs))

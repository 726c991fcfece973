"""How solvers begin: the easy cases, a greedy placement, and prices that prove a bound."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import IntArray
from fedmuster.solvers.assignment.filling import by_density, fill
from fedmuster.solvers.assignment.incumbent import Incumbent
from fedmuster.solvers.assignment.no_budgets import best_of_each, budgets_cannot_bind
from fedmuster.solvers.assignment.offers import Offers
from fedmuster.solvers.assignment.prices import Prices, lowest_bound, safe_bound
from fedmuster.solvers.assignment.problem import AssignmentProblem, Placement


class Start(NamedTuple):
    """What is known of a problem that is not easy.

    Args:
        offers: the problem.
        order: its pairs by density.
        incumbent: knows the greedy placement, and the bound of ``prices``.
        prices: with a low bound.
    """

    offers: Offers
    order: IntArray
    incumbent: Incumbent
    prices: Prices


def start(problem: AssignmentProblem, rng: Generator, steps: int) -> Start | Placement:
    """Where to begin, with at most ``steps`` of the prices; or the best placement, if easy."""
    if budgets_cannot_bind(problem):
        return best_of_each(problem, rng)
    problem = _with_budgets_in_reach(problem)
    offers = Offers.of(problem, rng)
    if len(offers.client) == 0 or offers.size == 0:
        return Placement(np.empty(0, dtype=np.int64), 0.0)
    incumbent, order = Incumbent(problem, offers), by_density(offers)
    incumbent.propose(fill(offers, order))
    prices = lowest_bound(offers, incumbent.value, steps)
    incumbent.lower(safe_bound(offers, prices))
    return Start(offers, order, incumbent, prices)


def _with_budgets_in_reach(problem: AssignmentProblem) -> AssignmentProblem:
    """The same, where all pairs of an edge cost alike with what they can use of its budget.

    No placement is lost, and prices need not pay for what nobody can have.
    """
    lowest, highest = np.full(problem.num_edges, np.inf), np.zeros(problem.num_edges)
    np.minimum.at(lowest, problem.edges, problem.cost)
    np.maximum.at(highest, problem.edges, problem.cost)
    binding = problem.budget < len(problem.cost) * lowest
    alike = np.flatnonzero((lowest == highest) & (lowest > 0) & binding)
    cost, budget = lowest[alike], problem.budget[alike]
    count = np.floor(budget / cost)
    count -= count * cost > budget  # the quotient was rounded up …
    count += (count + 1) * cost <= budget  # … or down
    reached = problem.budget.copy()
    reached[alike] = count * cost
    return replace(problem, budget=reached)

"""Filling budgets in turns: what is left is exact, and nothing more fits in the end."""

from math import fsum

import numpy as np
import pytest

from fedmuster.core.records import IntArray
from fedmuster.solvers.assignment import AssignmentProblem, LagrangianAssignment
from fedmuster.solvers.assignment.filling import take_in_order
from fedmuster.solvers.assignment.placing import fill_in_turns

INSTANCES = 60


def tenths(seed: int) -> AssignmentProblem:
    """Costs and budgets whose sums are not what they seem, met exactly as often as not."""
    rng = np.random.default_rng(seed)
    clients, edges = np.nonzero(rng.random((12, 3)) < 0.6)
    return AssignmentProblem(
        clients=clients,
        edges=edges,
        value=np.ones(len(clients)),
        cost=rng.integers(0, 5, len(clients)) / 10,
        budget=rng.integers(0, 12, 3) / 10,
        size=int(rng.integers(0, 13)),
    )


def test_what_is_left_is_the_most_that_can_be_added() -> None:
    for seed in range(300):
        problem = tenths(seed)
        taken = take_in_order(problem, np.arange(len(problem.clients)))[: seed % 6]
        for edge, left in enumerate(problem.after(taken).budget.tolist()):
            spent = problem.cost[taken[problem.edges[taken] == edge]].tolist()
            assert fsum([*spent, left]) <= problem.budget[edge]
            if spent:
                more = np.nextafter(np.nextafter(left, np.inf), np.inf)
                assert fsum([*spent, float(more)]) > problem.budget[edge]
            else:
                assert left == problem.budget[edge]


@pytest.mark.parametrize("seed", range(INSTANCES))
def test_nothing_more_fits(seed: int) -> None:
    problem, rng = tenths(seed), np.random.default_rng(seed)

    def some(clients: IntArray, count: int) -> IntArray:
        assert 0 < count <= len(clients)
        return rng.permutation(clients)[:count]

    taken = fill_in_turns(problem, some, solver=LagrangianAssignment(), rng=rng)
    assert problem.fits(taken)
    for pair in np.setdiff1d(np.arange(len(problem.clients)), taken):
        assert not problem.fits(np.append(taken, pair))


def test_without_budgets_there_is_one_turn() -> None:
    problem = AssignmentProblem(
        clients=np.arange(5),
        edges=np.array([0, 1, 0, 1, 0]),
        value=np.ones(5),
        cost=np.ones(5),
        budget=np.full(2, np.inf),
        size=3,
    )
    turns: list[int] = []

    def last(clients: IntArray, count: int) -> IntArray:
        turns.append(count)
        return clients[-count:]

    rng = np.random.default_rng(0)
    taken = fill_in_turns(problem, last, solver=LagrangianAssignment(), rng=rng)
    assert sorted(problem.clients[taken].tolist()) == [2, 3, 4]
    assert turns == [3]

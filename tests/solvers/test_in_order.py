"""Taking pairs in order: against the plain rule, to the last bit, in chunks."""

from math import fsum

import numpy as np
import pytest

from fedmuster.core.records import IntArray
from fedmuster.solvers.assignment import filling as in_order
from fedmuster.solvers.assignment.filling import take_in_order
from fedmuster.solvers.assignment.problem import AssignmentProblem


def plainly(problem: AssignmentProblem, order: IntArray) -> list[int]:
    """Pair after pair, with fsum for every sum."""
    taken: list[int] = []
    for pair in order.tolist():
        client, edge = problem.clients[pair], problem.edges[pair]
        costs = [float(problem.cost[p]) for p in [*taken, pair] if problem.edges[p] == edge]
        free = client not in problem.clients[taken]
        if free and fsum(costs) <= problem.budget[edge] and len(taken) < problem.size:
            taken.append(pair)
    return taken


def instance(seed: int) -> tuple[AssignmentProblem, IntArray]:
    rng = np.random.default_rng(seed)
    clients, edges = np.nonzero(rng.random((20, 4)) < 0.6)
    # Tenths, whose sums are not what they seem; and budgets that they meet exactly.
    tenths = seed % 2 > 0
    cost = rng.integers(0, 8, len(clients)) / 10 if tenths else rng.random(len(clients))
    budget = rng.integers(0, 30, 4) / 10
    budget[rng.random(4) < 0.1] = np.inf
    problem = AssignmentProblem(
        clients=clients,
        edges=edges,
        value=np.ones(len(clients)),
        cost=cost,
        budget=budget,
        size=int(rng.choice([0, 5, 20])),
    )
    return problem, rng.permutation(len(clients))


@pytest.mark.parametrize("chunk", [1, 7, 4096])
def test_it_takes_what_the_plain_rule_takes(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_order, "_CHUNK", chunk)
    for seed in range(150):
        problem, order = instance(seed)
        taken = take_in_order(problem, order)
        assert taken.tolist() == plainly(problem, order)
        assert problem.fits(taken)


def test_a_budget_that_is_met_to_the_last_bit() -> None:
    """The running sum of ten tenths is 1 - 2^-53, their sum is 1; that of 0.1 + 0.2 exceeds 0.3."""
    for costs, budget, fitting in (
        ([0.1] * 10, 1.0, 10),
        ([0.1] * 10, np.nextafter(1.0, 0.0), 9),
        ([0.1, 0.2], 0.3, 1),
        ([0.1, 0.2], 0.1 + 0.2, 2),
        ([0.0, 0.0, 1e-300], 0.0, 2),
    ):
        problem = AssignmentProblem(
            clients=np.arange(len(costs)),
            edges=np.zeros(len(costs), dtype=np.int64),
            value=np.ones(len(costs)),
            cost=np.array(costs),
            budget=np.array([budget]),
            size=len(costs),
        )
        assert len(take_in_order(problem, np.arange(len(costs)))) == fitting

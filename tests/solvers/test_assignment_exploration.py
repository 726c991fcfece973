"""COCS's exploration problems against trying everything."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from math import fsum, isclose

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedmuster.core.errors import DataError
from fedmuster.core.streams import stream
from fedmuster.solvers.assignment import (
    AssignmentProblem,
    AssignmentSolver,
    ExactAssignment,
    FLGreedy,
    LagrangianAssignment,
    explore,
)

LAGRANGIAN = LagrangianAssignment()


@st.composite
def rounds(draw: st.DrawFn) -> tuple[AssignmentProblem, np.ndarray]:
    num_clients, num_edges = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    pairs = [(k, m) for k in range(num_clients) for m in range(num_edges) if draw(st.booleans())]
    tenths = st.integers(0, 12).map(lambda tenths: tenths / 10)
    value, cost = ([draw(tenths) for _ in pairs] for _ in range(2))
    problem = AssignmentProblem(
        clients=np.array([k for k, _ in pairs]),
        edges=np.array([m for _, m in pairs]),
        value=np.array(value),
        cost=np.array(cost),
        budget=np.array([draw(tenths) for _ in range(num_edges)]),
        size=draw(st.integers(0, num_clients)),
    )
    return problem, np.array([draw(st.booleans()) for _ in pairs], dtype=np.bool_)


def fitting(problem: AssignmentProblem, pairs: list[int]) -> Iterator[list[int]]:
    for count in range(len(pairs) + 1):
        for chosen in combinations(pairs, count):
            who = [int(problem.clients[pair]) for pair in chosen]
            spent = [
                fsum(problem.cost[pair] for pair in chosen if problem.edges[pair] == edge)
                for edge in range(problem.num_edges)
            ]
            if len(set(who)) == count <= problem.size and all(spent <= problem.budget):
                yield list(chosen)


@pytest.mark.parametrize("solver", [LAGRANGIAN, ExactAssignment()])
@given(case=rounds())
def test_most_under_explored_then_the_best_explored(
    solver: AssignmentSolver, case: tuple[AssignmentProblem, np.ndarray]
) -> None:
    problem, under_explored = case
    pairs = explore(problem, under_explored, solver, stream(0, "x"))
    tried = under_explored[pairs]
    assert problem.fits(pairs)
    everything = [list(sets) for sets in fitting(problem, list(range(len(problem.clients))))]
    new = [sum(bool(under_explored[pair]) for pair in sets) for sets in everything]
    assert tried.sum() == max(new)  # Eq. 15
    # Eq. 17: of all that keep those, none adds more.
    kept = set(pairs[tried].tolist())
    best = max(
        fsum(problem.value[pair] for pair in sets if not under_explored[pair])
        for sets in everything
        if {pair for pair in sets if under_explored[pair]} == kept
    )
    assert isclose(problem.total(pairs[~tried]), best, rel_tol=1e-9, abs_tol=1e-12)


def test_the_sum_decides_what_is_left() -> None:
    """Not the difference, which is rounded on its own."""
    for tenths in range(1, 10):
        cost = np.array([tenths / 10, 1.0 - tenths / 10, float(np.nextafter(1 - tenths / 10, 2))])
        problem = AssignmentProblem(
            clients=np.arange(3),
            edges=np.zeros(3, dtype=np.int64),
            value=np.array([0.0, 0.5, 0.6]),
            cost=cost,
            budget=np.ones(1),
            size=3,
        )
        pairs = explore(problem, np.array([True, False, False]), LAGRANGIAN, stream(0, "x"))
        assert problem.fits(pairs)
        best = [sets for sets in fitting(problem, [0, 1, 2]) if 0 in sets][-1]
        assert pairs.tolist() == best


def test_among_equal_numbers_chance_decides() -> None:
    """Six equal clients, two edges that can pay for one each."""
    problem = AssignmentProblem(
        clients=np.repeat(np.arange(6), 2),
        edges=np.tile(np.arange(2), 6),
        value=np.linspace(0, 1, 12),  # of no matter while they are under-explored
        cost=np.ones(12),
        budget=np.ones(2),
        size=6,
    )
    rng, seen = stream(3, "exploration"), Counter[int]()
    for _ in range(400):
        chosen = explore(problem, np.ones(12, dtype=np.bool_), LAGRANGIAN, rng)
        assert len(chosen) == 2
        seen.update(chosen.tolist())
    assert chisquare([seen[pair] for pair in range(12)]).pvalue > 1e-3


def test_greedy_solvers_explore_too() -> None:
    problem = AssignmentProblem(
        clients=np.arange(4),
        edges=np.zeros(4, dtype=np.int64),
        value=np.array([0.1, 0.9, 0.8, 0.3]),
        cost=np.ones(4),
        budget=np.array([2.0]),
        size=4,
    )
    new = np.array([True, False, False, False])
    assert explore(problem, new, FLGreedy(), stream(0, "x")).tolist() == [0, 1]


def test_refuses_what_does_not_belong_to_the_pairs() -> None:
    problem = AssignmentProblem(
        clients=np.arange(2),
        edges=np.zeros(2, dtype=np.int64),
        value=np.ones(2),
        cost=np.ones(2),
        budget=np.ones(1),
        size=2,
    )
    with pytest.raises(DataError, match=r"expected bool\(2,\)"):
        explore(problem, np.array([True]), LAGRANGIAN, stream(0, "x"))

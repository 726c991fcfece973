"""Brute force over tiny networks: by hand, and against the solvers."""

import math

import numpy as np
import pytest

from claims.cocs import placements
from claims.cocs.nonconvex import greedy
from fedmuster.core.streams import stream
from fedmuster.solvers.assignment import AssignmentProblem
from fedmuster.worlds import EdgeNetwork

BY_HAND = AssignmentProblem(
    clients=np.array([0, 0, 1]),
    edges=np.array([0, 1, 1]),
    value=np.array([0.9, 0.8, 0.5]),
    cost=np.array([2.0, 2.0, 2.5]),
    budget=np.array([3.5, 4.0]),
    size=2,
)


def test_all_placements_by_hand() -> None:
    """Client 0 at either edge or nowhere, client 1 at edge 1 or nowhere; both there is too dear."""
    found = {tuple(pairs.tolist()) for pairs in placements.placements(BY_HAND)}
    assert found == {(), (0,), (1,), (2,), (0, 2)}
    assert placements.brute_force(BY_HAND).optimum == pytest.approx(1.4)
    assert placements.worth(BY_HAND, np.array([0, 2])) == pytest.approx((0.7, math.sqrt(0.7)))
    assert placements.brute_force(BY_HAND).same_maximiser


def test_solvers_find_what_brute_force_finds() -> None:
    for number in range(30):
        problem = placements.tiny_problem(number)
        best, same = placements.brute_force(problem)
        found = placements.solved(problem, greedy(), stream(0, "test", number))
        assert found.exact == pytest.approx(best)
        assert found.lagrangian == pytest.approx(best)
        assert found.agree
        assert same
        assert greedy().guarantee(problem.num_edges) <= found.greedy_share <= 1 + 1e-12
        assert -1e-12 <= found.clients_lost < 1


def test_shares_are_of_the_root() -> None:
    found = placements.Solved(
        exact=4.0, lagrangian=4.0, bound=4.0, greedy=1.0, iterations=1, num_edges=3
    )
    assert found.greedy_share == 0.5
    assert found.clients_lost == 0.75
    assert found.agree
    unproved = placements.Solved(
        exact=4.0, lagrangian=4.0, bound=4.5, greedy=1.0, iterations=1, num_edges=3
    )
    assert not unproved.agree


def test_where_nobody_can_be_had_nothing_is_lost() -> None:
    found = placements.Solved(
        exact=0.0, lagrangian=0.0, bound=0.0, greedy=0.0, iterations=0, num_edges=1
    )
    assert (found.greedy_share, found.clients_lost) == (1.0, 0.0)


def test_true_problems_are_those_of_the_rounds() -> None:
    world = EdgeNetwork(num_clients=8)
    run = world.start(5)
    for number, problem in enumerate(placements.true_problems(world, seed=5, rounds=3), start=1):
        drawn = run.realise(number)
        assert drawn.edges is not None
        assert drawn.truth.success is not None
        assert np.array_equal(problem.value, drawn.truth.success[problem.clients, problem.edges])
        assert drawn.edges.coverage[problem.clients, problem.edges].all()
        assert (problem.cost <= world.budget).all()


def test_roots_have_diminishing_gains() -> None:
    rng = stream(1, "test")
    assert all(placements.diminishing(rng.random(20), 3, rng) for _ in range(200))

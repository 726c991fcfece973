"""Random at edge servers: within budgets and coverage, maximal, and uniform."""

import numpy as np
import pytest
from tests.policies.small_networks import INFEASIBLE, KINDS, rounds

from fedmuster.core.edges import EdgeView
from fedmuster.core.records import Problem, RoundView
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.random import Random

DRAWS = 3000
CHI_SQUARE_QUANTILE = {1: 19.511, 5: 30.856}
"""Of 1 - 1e-5, by degrees of freedom."""


def test_without_edges_it_draws_as_ever() -> None:
    """Published runs must repeat: one call of the generator for a uniform cohort."""
    selector = Selector(Random(), Problem(num_clients=30, cohort_size=5), seed=4)
    drawn = stream(4, POLICY, 1).choice(30, 5, replace=False, shuffle=False)
    cohort = selector.select()
    assert cohort.clients.tolist() == sorted(drawn.tolist())
    assert cohort.edges is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by_data", [False, True])
def test_nobody_more_fits(kind: str, by_data: bool) -> None:
    for played in rounds(Random(by_data=by_data), kind, 100, rest_after=5):
        assert not played.more_fits()
        assert (len(played.selection.clients) == 0) >= (kind in INFEASIBLE)


def test_no_more_than_the_round_may_use() -> None:
    sizes = {
        len(played.selection.clients)
        for played in rounds(Random(), "no budgets", 50, cohort_size=4)
    }
    assert sizes == {4}


def view_of(edges: EdgeView, cohort_size: int) -> RoundView:
    available = edges.covered
    return RoundView(round=1, cohort_size=cohort_size, available=available, edges=edges)


def test_clients_and_edges_are_uniform() -> None:
    """Six clients at two edges that cover all; there is room for two clients in all."""
    edges = EdgeView(
        coverage=np.ones((6, 2), dtype=np.bool_), cost=np.ones(6), budget=np.full(2, 9.0)
    )
    state = Random().init(Problem(num_clients=6, cohort_size=2, num_edges=2))
    clients, places = np.zeros(6), np.zeros(2)
    for seed in range(DRAWS):
        chosen = Random().select(state, view_of(edges, 2), stream(seed, POLICY, 1))
        assert chosen.edges is not None
        clients[chosen.clients] += 1
        places += np.bincount(chosen.edges, minlength=2)
    # Two of a cohort exclude each other: variance n p (1 - p) with p = 1/3, and one freedom less.
    statistic = np.sum((clients - DRAWS / 3) ** 2) / (DRAWS * 2 / 9) * 5 / 6
    assert statistic < CHI_SQUARE_QUANTILE[5]
    assert np.sum((places - DRAWS) ** 2) / DRAWS < CHI_SQUARE_QUANTILE[1]


def test_an_edge_is_drawn_among_those_that_can_still_pay() -> None:
    """Who is covered by one edge only takes it half of the time, and then the other must do."""
    edges = EdgeView(
        coverage=np.array([[True, False], [True, True]]), cost=np.ones(2), budget=np.ones(2)
    )
    state = Random().init(Problem(num_clients=2, cohort_size=2, num_edges=2))
    alone = 0
    for seed in range(DRAWS):
        chosen = Random().select(state, view_of(edges, 2), stream(seed, POLICY, 1))
        assert chosen.edges is not None
        alone += len(chosen.clients) == 1
        assert chosen.edges.tolist() in ([0, 1], [0])
    # Client 1 comes first and draws edge 0 with probability 1/4.
    assert (alone - DRAWS / 4) ** 2 / (DRAWS * 3 / 16) < CHI_SQUARE_QUANTILE[1]


def test_by_data_the_first_is_drawn_in_proportion() -> None:
    data = np.array([1, 2, 5, 0])
    problem = Problem(num_clients=4, cohort_size=1, num_edges=2, num_samples=data)
    policy = Random(by_data=True)
    state = policy.init(problem)
    edges = EdgeView(
        coverage=np.array([[True, True], [True, False], [True, False], [True, True]]),
        cost=np.ones(4),
        budget=np.ones(2),
    )
    times = np.zeros(4)
    for seed in range(DRAWS):
        times[policy.select(state, view_of(edges, 1), stream(seed, POLICY, 1)).clients] += 1
    assert times[3] == 0
    expected = DRAWS * data[:3] / 8
    assert np.sum((times[:3] - expected) ** 2 / expected) < 23.026  # two freedoms: 2 ln 1e5

"""The numbers that the contract decides by, against independent references."""

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from scipy import stats

from fedmuster.core.records import Problem, Selection
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.random import Random
from fedmuster.testing import cohort_checks as newcomers
from fedmuster.testing import cohort_checks as ties
from fedmuster.testing import learning_checks as learning
from fedmuster.testing import ticket_checks as tickets
from fedmuster.testing.tiny_federation import (
    Draw,
    Knowledge,
    TinyFederation,
    lively,
    varied_seconds,
)

AT_EDGES = Knowledge(num_edges=3)


def test_quantiles_are_those_of_the_levels_they_are_named_after() -> None:
    for freedom, quantile in ties.CHI_SQUARE_QUANTILE.items():
        assert stats.chi2.sf(quantile, freedom) == pytest.approx(ties.LEVEL, rel=1e-3)
    for seeds, (share, quantile) in learning.LOOKS.items():
        assert stats.t.sf(quantile, seeds - 1) == pytest.approx(
            share * learning.LEVEL / learning.WAYS, rel=1e-3
        )
    assert sum(share for share, _ in learning.LOOKS.values()) == pytest.approx(1.0)
    assert len(list(learning.easy_instances(Knowledge()))) == learning.WAYS


def test_patience_with_newcomers_is_as_long_as_it_says() -> None:
    missed = (1 - 3 / (newcomers.RESIDENTS + newcomers.NEWCOMERS)) ** newcomers.PATIENCE
    assert missed == pytest.approx(5e-7, rel=0.1)


def test_tie_statistic_has_a_chi_square_law_under_uniform_choice() -> None:
    rng = np.random.default_rng(1)
    clients, size, draws = 12, 3, 300
    statistics = []
    for _ in range(1000):
        order = rng.random((draws, clients)).argpartition(size, axis=1)[:, :size]
        times = np.bincount(order.ravel(), minlength=clients).astype(float)
        statistics.append(ties.tie_statistic(times, np.full(draws, size)))
    assert stats.kstest(statistics, stats.chi2(clients - 1).cdf).pvalue > 0.001


def random_cohort(problem: Problem, draw: Draw, seed: int) -> Selection:
    """Random clients at random edges."""
    rival = Random()
    return rival.select(rival.init(problem), draw.view(rival), stream(seed, POLICY, draw.round))


@pytest.mark.parametrize("edges", [0, 1, 3, 5])
def test_random_cohorts_have_no_advantage_over_what_they_are_expected_to_be(edges: int) -> None:
    """In each easy instance, with cohorts of all sizes: no more than luck."""
    for instance in learning.easy_instances(Knowledge(num_edges=edges)):
        problem = instance.federation.problem()
        gains = []
        for t in range(1, 151):
            draw = instance.federation.draw(t)
            size = draw.cohort_size if instance.of_cohort == "sum" else t % 4 + 1
            cohort = random_cohort(problem, replace(draw, cohort_size=size), 1)
            assert len(cohort.clients) == size
            gains.append(learning.gain_over_random(instance, draw, cohort.clients))
        assert np.std(gains) > 0.01
        assert abs(stats.ttest_1samp(gains, 0.0).statistic) < 4.0  # p = 1e-4


def test_what_random_cohorts_are_worth_is_the_mean_over_all_of_them() -> None:
    for instance in learning.easy_instances(Knowledge()):
        draw = instance.federation.draw(1)
        for size in (1, 4, 7, 10):
            if instance.of_cohort == "sum" and size < draw.cohort_size:
                continue  # a random one would be larger
            cohorts = combinations(range(10), size)
            gains = [learning.gain_over_random(instance, draw, np.array(c)) for c in cohorts]
            assert np.mean(gains) == pytest.approx(0.0, abs=1e-12)
        nobody = learning.gain_over_random(instance, draw, np.empty(0, dtype=np.int64))
        late = np.sum(draw.in_time) * 0.4
        assert nobody == pytest.approx(-late if instance.of_cohort == "sum" else 0.0)


def test_what_random_choice_among_idle_clients_is_worth_is_the_mean_over_all_of_them() -> None:
    idle = np.array([0, 3, 4, 6, 7, 9])
    for instance in learning.easy_instances(Knowledge()):
        draw = instance.federation.draw(1)
        available = np.isin(np.arange(10), idle)
        for size in (1, 2, 5):
            seen = replace(draw, available=available, cohort_size=size)
            gains = [
                learning.gain_over_random(instance, seen, np.array(cohort))
                for cohort in combinations(idle, size)
            ]
            assert np.mean(gains) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("edges", [0, 3])
def test_random_choice_has_no_advantage_without_rounds(edges: int) -> None:
    """In each easy instance, over eight seeds: no more than luck."""
    for instance in learning.easy_instances(Knowledge(num_edges=edges)):
        gains = [tickets.advantage(Random(), instance, seed) for seed in range(8)]
        assert np.std(gains) > 0.001
        assert abs(stats.ttest_1samp(gains, 0.0).statistic) < 5.0  # p = 0.0016


def test_the_truth_that_oracles_are_told_is_true() -> None:
    federation = TinyFederation(mean_seconds=varied_seconds(6), knowledge=Knowledge())
    latency = np.array([federation.draw(t).latency_seconds for t in range(1, 4001)])
    truth = federation.draw(1).truth
    # The mean load has a standard deviation of 0.082, so 4,000 rounds give 0.0013; five of them.
    assert latency.mean(axis=0) / truth.mean_latency_seconds == pytest.approx(1.0, abs=0.0065)
    speed = (1.0 / latency).mean(axis=0) / truth.mean_speed
    assert speed / speed.mean() == pytest.approx(1.0, abs=0.0065)


def test_a_lively_round_is_the_same_whenever_it_is_drawn() -> None:
    federation = TinyFederation(mean_seconds=varied_seconds(6), knowledge=Knowledge(), mishaps=True)
    again = TinyFederation(mean_seconds=varied_seconds(6), knowledge=Knowledge(), mishaps=True)
    one, _, other = federation.draw(3), again.draw(2), again.draw(3)
    assert np.array_equal(one.latency_seconds, other.latency_seconds)
    assert np.array_equal(one.available, other.available)
    assert np.array_equal(one.completed, other.completed)


def test_the_odds_that_oracles_are_told_are_true() -> None:
    """The share of 3,000 rounds in which pairs are in time, against the mean of their odds."""
    federation = lively(AT_EDGES)
    draws = [federation.draw(t) for t in range(1, 3001)]
    odds = np.array([draw.truth.success for draw in draws])
    outcomes = np.array([draw.truth.succeeds for draw in draws])
    error = np.sqrt((odds * (1 - odds)).sum(axis=0)) / len(draws)
    assert np.all(np.abs(outcomes.mean(axis=0) - odds.mean(axis=0)) <= 4.5 * error)
    # Not only on average: those of low and of high odds.
    for low, high in ((0.0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.9)):
        here = (odds > low) & (odds <= high)
        assert np.count_nonzero(here) > 500
        spread = np.sqrt((odds * (1 - odds))[here].sum()) / np.count_nonzero(here)
        assert abs(outcomes[here].mean() - odds[here].mean()) < 4.5 * spread
    # And what is fed back is what was foretold.
    for draw in draws[:50]:
        completed = draw.completed[:, np.newaxis]
        np.testing.assert_array_equal(draw.truth.succeeds, completed & (draw.in_time > 0))


def test_a_lively_network_is_one_in_which_much_can_go_wrong() -> None:
    federation = lively(AT_EDGES)
    drawn = [draw.edges for t in range(1, 101) if (draw := federation.draw(t)).edges is not None]
    assert len(drawn) == 100
    degree = np.array([edges.coverage.sum(axis=1) for edges in drawn])
    assert (degree == 0).any(axis=1).mean() > 0.3  # rounds with somebody whom nobody covers
    assert (degree > 1).mean() > 0.5
    for edges in drawn:
        reached = np.where(edges.coverage, edges.cost, 0.0).sum(axis=0)
        assert (reached > edges.budget).any()  # not everybody fits
    assert any(not np.array_equal(a.coverage, b.coverage) for a, b in pairwise(drawn))


def test_random_placements_find_newcomers_in_time() -> None:
    """As often as three of 14, on average over the rounds in which they are looked for."""
    federation = TinyFederation(mean_seconds=varied_seconds(14), knowledge=AT_EDGES)
    problem = federation.problem()
    times = np.zeros(14)
    for t in range(1, 401):
        times[random_cohort(problem, federation.draw(t), 0).clients] += 1
    assert times.mean() / 400 == pytest.approx(3 / 14, rel=0.02)
    assert stats.chisquare(times).pvalue > 1e-4


def test_meetings_of_clients_and_edges_have_a_chi_square_law_under_uniform_choice() -> None:
    rng = np.random.default_rng(2)
    statistics = []
    for _ in range(1000):
        times = np.bincount(rng.integers(36, size=300), minlength=36).astype(float)
        statistics.append(ties.tie_statistic(times, np.ones(300)))
    assert stats.kstest(statistics, stats.chi2(35).cdf).pvalue > 0.001

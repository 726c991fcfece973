"""Layouts: group sizes, means, clusters and data of each world."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedmuster.core.records import Selection
from fedmuster.worlds import (
    BSFLGroups,
    BSFLRates,
    ContextualWorld,
    ExponentialSizes,
    Fixed,
    LatencyWorld,
    PauseGroups,
)
from fedmuster.worlds.layout import speed_groups


def test_bsfl_groups_are_equal_with_the_papers_means() -> None:
    run = BSFLGroups().start(1)
    assert (run.problem.num_clients, run.problem.cohort_size) == (500, 25)
    np.testing.assert_array_equal(np.bincount(run.groups), [50] * 10)
    truth = run.realise(1).truth
    for group in range(1, 10):  # the floor does not bind above group 0
        mine = truth.mean_latency_seconds[run.groups == group]
        assert mine == pytest.approx(0.1 * (group + 1), rel=1e-6)
    # E max(0.1, N(0.1, 0.01²)) = 0.1 + 0.01 φ(0).
    fastest = truth.mean_latency_seconds[run.groups == 0]
    assert fastest == pytest.approx(0.1 + 0.01 / np.sqrt(2 * np.pi))
    by_group = [truth.mean_speed[run.groups == group].mean() for group in range(10)]
    assert np.all(np.diff(by_group) < 0)
    assert by_group[9] == pytest.approx(0.1, rel=0.02)  # E[1/tau] is a little above 1/E[tau]


def test_groups_of_unequal_size_differ_by_one() -> None:
    run = BSFLGroups(num_clients=23, num_groups=4).start(1)
    assert sorted(np.bincount(run.groups)) == [5, 6, 6, 6]


@pytest.mark.parametrize("world", [BSFLGroups(num_clients=400), PauseGroups(num_clients=400)])
def test_speed_does_not_follow_the_index(world: BSFLGroups | PauseGroups) -> None:
    """Rank correlation of index and group, at 1e-3."""
    groups = world.start(3).groups
    assert stats.spearmanr(np.arange(400), groups).pvalue > 1e-3


@pytest.mark.parametrize(("rest", "low", "high"), [("slow", 0.15, 0.20), ("fast", 0.7, 0.8)])
def test_bsfl_rates_have_the_authors_groups(rest: str, low: float, high: float) -> None:
    world = BSFLRates(num_clients=1000, rest="slow" if rest == "slow" else "fast")
    run = world.start(1)
    np.testing.assert_array_equal(np.bincount(run.groups), [40, 810, 150])
    speed = run.realise(1).truth.mean_speed
    fast, between, slow = (speed[run.groups == group] for group in range(3))
    # Clipping at 1 takes at most 0.03 φ(…) from the fast and adds as little to the slow.
    assert fast.min() > 0.91
    assert fast.max() < 0.97
    assert between.min() > low - 1e-3
    assert between.max() < high + 1e-3
    assert slow.min() >= 0.1
    assert slow.max() < 0.13
    latency = run.realise(1).latency_seconds
    assert latency.min() >= 0.1
    assert latency.max() <= 1.0


@pytest.mark.parametrize(("K", "sizes"), [(20, [1, 16, 3]), (3, [1, 2, 0]), (1, [1, 0, 0])])
def test_bsfl_rates_have_a_fast_client_in_small_worlds(K: int, sizes: list[int]) -> None:
    groups = BSFLRates(num_clients=K).start(1).groups
    np.testing.assert_array_equal(np.bincount(groups, minlength=3), sizes)


def test_bsfl_rates_without_fast_clients() -> None:
    groups = BSFLRates(num_clients=20, fast_share=0.0, slow_share=1.0).start(1).groups
    np.testing.assert_array_equal(np.bincount(groups), [0, 0, 20])


@pytest.mark.parametrize("K", [1, 2, 30, 31])
def test_pause_halves_have_the_authors_means(K: int) -> None:
    run = PauseGroups(num_clients=K).start(1)
    fast = K // 2
    assert np.count_nonzero(run.groups == 0) == fast
    # The floor is 1 to 16 standard deviations away from the means: compare the laws' own means.
    i, j = np.arange(1, fast + 1), np.arange(1, K - fast + 1)
    means = np.concatenate([0.05 + 0.15 * i / max(fast, 1), 0.7 + 0.2 * j / (K - fast)])
    z = (0.05 - means) / 0.05
    expected = 0.05 * stats.norm.cdf(z) + means * stats.norm.sf(z) + 0.05 * stats.norm.pdf(z)
    truth = run.realise(1).truth.mean_latency_seconds
    assert np.sort(truth) == pytest.approx(np.sort(expected))
    assert np.all(truth[run.groups == 1] > 0.7)


def test_pause_clusters_and_their_delay() -> None:
    assert PauseGroups().start(1).problem.clusters is None
    run = PauseGroups(num_clusters=6).start(1)
    clusters = run.problem.clusters
    assert clusters is not None
    np.testing.assert_array_equal(np.bincount(clusters), [5] * 6)
    drawn = run.realise(1)
    together = np.flatnonzero(clusters == 2)[:3]
    outcome = drawn.play(Selection(round=1, clients=together))
    assert outcome.round_seconds == pytest.approx(drawn.latency_seconds[together].max() + 0.1)


def test_latency_world_spacing() -> None:
    even = LatencyWorld(num_clients=11, spacing="even", fastest_seconds=1.0, slowest_seconds=2.0)
    means = even.start(1).realise(1).truth.mean_latency_seconds
    assert np.sort(means) == pytest.approx(np.linspace(1.0, 2.0, 11))
    drawn = LatencyWorld(num_clients=5000, fastest_seconds=0.1, slowest_seconds=10.0).start(1)
    logs = np.log10(drawn.realise(1).truth.mean_latency_seconds)
    assert stats.kstest(logs, stats.uniform(-1, 2).cdf).pvalue > 1e-3
    np.testing.assert_array_equal(np.bincount(drawn.groups), [500] * 10)


def test_zipf_spacing_scales_a_power_of_the_rank() -> None:
    """Ranks 1, 2, 3, 4 with the exponent 1: 1, 1/2, 1/3, 1/4, scaled from [1/4, 1] to [15, 180]."""
    world = LatencyWorld(
        num_clients=4,
        cohort_size=2,
        spacing="zipf",
        exponent=1.0,
        distribution=Fixed(),
        fastest_seconds=15.0,
        slowest_seconds=180.0,
        tau_min_seconds=10.0,
    )
    ladder = [15.0, 15.0 + 165.0 / 9, 15.0 + 165.0 / 3, 180.0]
    run = world.start(1)
    means = run.realise(1).truth.mean_latency_seconds
    assert np.sort(means) == pytest.approx(ladder)
    np.testing.assert_array_equal(run.realise(1).latency_seconds, means)
    np.testing.assert_array_equal(run.realise(2).latency_seconds, means)
    slowest = {int(np.argmax(world.start(seed).typical_latency_seconds())) for seed in range(40)}
    assert slowest == {0, 1, 2, 3}
    alone = replace(world, num_clients=1, cohort_size=1).start(1)
    assert alone.typical_latency_seconds() == pytest.approx([15.0])
    equal = replace(world, slowest_seconds=15.0).start(1)
    assert equal.typical_latency_seconds() == pytest.approx([15.0] * 4)


def test_pisces_published_latencies_are_mostly_short() -> None:
    world = LatencyWorld(
        num_clients=200, spacing="zipf", fastest_seconds=15.0, slowest_seconds=180.0
    )
    means = np.sort(world.start(3).realise(1).truth.mean_latency_seconds)
    weight = np.arange(200, 0, -1) ** -1.2
    expected = 15.0 + 165.0 * (weight - weight[0]) / (1.0 - weight[0])
    assert means == pytest.approx(expected)
    assert np.count_nonzero(means < 20.0) == 183


def test_speed_groups_are_tenths_with_the_fastest_first() -> None:
    np.testing.assert_array_equal(speed_groups(np.array([3.0, 1.0, 2.0])), [2, 0, 1])
    groups = speed_groups(np.arange(40.0)[::-1])
    np.testing.assert_array_equal(groups, np.repeat(np.arange(9, -1, -1), 4))


def test_data_sizes_fall_exponentially_over_a_random_order() -> None:
    problem = BSFLGroups(num_clients=500, data=ExponentialSizes(mean_samples=1000)).start(1).problem
    assert problem.num_samples is not None
    assert problem.quality is not None
    sizes = np.sort(problem.num_samples)[::-1]
    expected = np.exp(-2 * np.arange(500) / 500)
    assert sizes == pytest.approx(1000 * expected / expected.mean(), abs=0.5)
    assert stats.spearmanr(np.arange(500), problem.num_samples).pvalue > 1e-3
    assert stats.kstest(problem.quality, stats.uniform(0.5, 0.5).cdf).pvalue > 1e-3


def test_data_sizes_are_at_least_one() -> None:
    problem = BSFLGroups(num_clients=50, data=ExponentialSizes(mean_samples=1, decay=50)).start(1)
    assert problem.problem.num_samples is not None
    assert problem.problem.num_samples.min() == 1


def test_alike_data_stay_unsaid() -> None:
    problem = BSFLGroups().start(1).problem
    assert problem.num_samples is None
    assert problem.quality is None


def test_contextual_latency_is_linear_in_the_features() -> None:
    """With little noise, regressing each client's latency on its features leaves only the noise."""
    run = ContextualWorld(num_clients=20, noise_sd_seconds=0.01, tau_min_seconds=0.1).start(1)
    rounds = [run.realise(t) for t in range(1, 101)]
    features = np.array([drawn.features for drawn in rounds])
    latency = np.array([drawn.latency_seconds for drawn in rounds])
    assert features[..., 0].min() >= 1.0  # 1 / free CPU ratio, ratio in [0.2, 1]
    assert features[..., 0].max() <= 5.0
    assert features[..., 1].min() >= 0.5  # 5 Mbit at 1 … 10 Mbit/s
    assert features[..., 1].max() <= 5.0
    thetas = []
    for client in range(20):
        theta, residual, _, _ = np.linalg.lstsq(features[:, client], latency[:, client])
        assert np.sqrt(residual[0] / 98) == pytest.approx(0.01, rel=0.4)
        thetas.append(theta)
    assert np.ptp([theta[0] for theta in thetas]) > 1.0  # each client has its own
    assert np.ptp([theta[1] for theta in thetas]) > 0.2


def test_contextual_truth_is_that_of_the_round() -> None:
    run = ContextualWorld(num_clients=20).start(1)
    first, second = run.realise(1), run.realise(2)
    assert not np.allclose(first.truth.mean_latency_seconds, second.truth.mean_latency_seconds)
    assert first.truth is first.truth  # computed once
    gap = np.array([r.latency_seconds - r.truth.mean_latency_seconds for r in (first, second)])
    assert np.abs(gap).max() < 5 * 0.1  # only the noise is left


def test_data_and_clusters_have_nothing_to_do_with_speed() -> None:
    """Rank correlation and chi-squared, at 1e-3 each."""
    run = BSFLGroups(data=ExponentialSizes(mean_samples=1000)).start(1)
    assert stats.spearmanr(run.groups, run.problem.num_samples).pvalue > 1e-3
    crowd = PauseGroups(num_clients=3000, num_clusters=6).start(1)
    assert crowd.problem.clusters is not None
    table = np.histogram2d(crowd.groups, crowd.problem.clusters, bins=(2, 6))[0]
    assert stats.chi2_contingency(table).pvalue > 1e-3

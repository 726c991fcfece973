"""The numbers that the contract decides by, against independent references."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from fedmuster.testing import learning, ties
from fedmuster.testing.federation import Federation, Knowledge, varied_seconds


def test_quantiles_are_those_of_the_levels_they_are_named_after() -> None:
    for freedom, quantile in ties.CHI_SQUARE_QUANTILE.items():
        assert stats.chi2.sf(quantile, freedom) == pytest.approx(ties.LEVEL, rel=1e-3)
    assert stats.t.sf(learning.STUDENT_QUANTILE, learning.SEEDS - 1) == pytest.approx(
        learning.LEVEL / 3, rel=1e-3
    )


def test_patience_with_newcomers_is_as_long_as_it_says() -> None:
    missed = (1 - 3 / (learning.RESIDENTS + learning.NEWCOMERS)) ** learning.PATIENCE
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


@pytest.mark.parametrize("size", [1, 2, 4, 6])
def test_expected_maximum_is_the_mean_over_all_subsets(size: int) -> None:
    values = np.array([0.3, 2.0, 0.1, 0.1, 5.0, 1.0])
    mean = np.mean([values[list(subset)].max() for subset in combinations(range(6), size)])
    assert learning.expected_maximum(values, size) == pytest.approx(mean, rel=1e-12)


def test_the_truth_that_oracles_are_told_is_true() -> None:
    federation = Federation(mean_seconds=varied_seconds(6), knowledge=Knowledge())
    latency = np.array([federation.draw(t).latency_seconds for t in range(1, 4001)])
    truth = federation.draw(1).truth
    # The mean load has a standard deviation of 0.082, so 4,000 rounds give 0.0013; five of them.
    assert latency.mean(axis=0) / truth.mean_latency_seconds == pytest.approx(1.0, abs=0.0065)
    speed = (1.0 / latency).mean(axis=0) / truth.mean_speed
    assert speed / speed.mean() == pytest.approx(1.0, abs=0.0065)


def test_a_lively_round_is_the_same_whenever_it_is_drawn() -> None:
    federation = Federation(mean_seconds=varied_seconds(6), knowledge=Knowledge(), mishaps=True)
    again = Federation(mean_seconds=varied_seconds(6), knowledge=Knowledge(), mishaps=True)
    one, _, other = federation.draw(3), again.draw(2), again.draw(3)
    assert np.array_equal(one.latency_seconds, other.latency_seconds)
    assert np.array_equal(one.available, other.available)
    assert np.array_equal(one.completed, other.completed)

"""Availability: shares, persistence and repetition, with exact tests at a stated level."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import BoolArray
from fedmuster.worlds.availability import Always, Availability, Bernoulli, Markov

K = 20_000


def masks(law: Availability, num_clients: int, seed: int) -> Callable[[int], BoolArray]:
    run = law.start(num_clients, seed)
    return lambda round_number: run.at(round_number, 0.0)


def test_always_is_everyone_in_one_shared_mask() -> None:
    at = masks(Always(), 5, 1)
    assert at(1).all()
    assert at(1) is at(7)
    assert not at(1).flags.writeable


def test_bernoulli_has_its_share_and_no_memory() -> None:
    """Exact binomial tests at 1e-3 each."""
    at = masks(Bernoulli(probability=0.3), K, 1)
    first, second = at(1), at(2)
    assert stats.binomtest(int(first.sum()), K, 0.3).pvalue > 1e-3
    both = int((first & second).sum())
    assert stats.binomtest(both, int(first.sum()), 0.3).pvalue > 1e-3


@pytest.mark.parametrize(("probability", "share"), [(0.0, 0.0), (1.0, 1.0)])
def test_bernoulli_at_its_limits(probability: float, share: float) -> None:
    assert masks(Bernoulli(probability=probability), 1000, 1)(3).mean() == share


@pytest.mark.parametrize(("up", "down"), [(0.1, 0.1), (0.05, 0.3), (0.9, 0.7), (1.0, 0.5)])
def test_markov_is_stationary_and_remembers(up: float, down: float) -> None:
    """Clients are independent, so every count is binomial: 15 exact tests at 1e-3 together."""
    at, level = masks(Markov(up=up, down=down), K, 3), 1e-3 / 15
    share, memory = up / (up + down), 1 - up - down  # autocorrelation at lag l is memory^l
    for t in (1, 2, 30):
        now, successor, later = at(t), at(t + 1), at(t + 5)
        assert stats.binomtest(int(now.sum()), K, share).pvalue > level
        on, off = int(now.sum()), int((~now).sum())
        assert stats.binomtest(int(successor[now].sum()), on, 1 - down).pvalue > level
        assert stats.binomtest(int(successor[~now].sum()), off, up).pvalue > level
        stays = share + (1 - share) * memory**5
        returns = share - share * memory**5
        assert stats.binomtest(int(later[now].sum()), on, stays).pvalue > level
        assert stats.binomtest(int(later[~now].sum()), off, returns).pvalue > level


def test_markov_answers_in_any_order() -> None:
    law = Markov(up=0.2, down=0.4)
    at = masks(law, 50, 9)
    expected = {t: masks(law, 50, 9)(t).copy() for t in range(1, 13)}
    for t in (12, 3, 3, 7, 1, 11, 2, 12):
        np.testing.assert_array_equal(at(t), expected[t])
        assert not at(t).flags.writeable


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan")])
def test_probabilities_outside_the_unit_interval_are_refused(bad: float) -> None:
    with pytest.raises(ConfigError, match="probability"):
        Bernoulli(probability=bad)
    with pytest.raises(ConfigError, match="up"):
        Markov(up=bad)
    with pytest.raises(ConfigError, match="down"):
        Markov(down=bad)


def test_a_chain_that_never_moves_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"up = 0.0, expected a number in \(0, 1\]"):
        Markov(up=0.0)


@pytest.mark.parametrize("law", [Always(), Bernoulli(probability=0.4), Markov(up=0.3, down=0.2)])
def test_laws_that_know_rounds_take_a_window_for_a_round(law: Availability) -> None:
    run, again = law.start(200, 4), masks(law, 200, 4)
    for t in (1, 2, 9):
        this, following = run.forecast(t, 123.0, 50.0)
        np.testing.assert_array_equal(this, again(t))
        np.testing.assert_array_equal(following, again(t + 1))
        np.testing.assert_array_equal(run.at(t, 0.0), again(t))
    assert run.wait_seconds(5.0) == 0.0

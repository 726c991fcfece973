import math

import numpy as np
import pytest

from claims.growth import growth, theorem_1_use

ROUNDS = np.arange(1.0, 20_001.0)


def test_a_logarithm_is_told_from_a_line() -> None:
    fit = growth(5 + 3 * np.log(ROUNDS), first_round=10)
    assert fit.law == "logarithmic"
    assert fit.log_r2 == pytest.approx(1.0)
    assert fit.exponent.mean < 0.15


@pytest.mark.parametrize("offset", [0.0, 7.0])
def test_a_line_is_told_from_a_logarithm(offset: float) -> None:
    fit = growth(2.0 * ROUNDS + offset, first_round=10)
    assert fit.law == "linear"
    assert fit.linear_r2 == pytest.approx(1.0)
    assert fit.exponent.mean == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("power", [0.25, 0.5, 0.64, 0.85])
def test_a_power_is_neither(power: float) -> None:
    fit = growth(3.0 * ROUNDS**power, first_round=10)
    assert fit.law == "power"
    assert fit.power_r2 == pytest.approx(1.0, abs=1e-9)
    assert fit.power == pytest.approx(power, abs=1e-9)
    assert fit.exponents == pytest.approx([power], abs=1e-6)
    assert fit.last == f"{power:.2f}"  # a single curve has no interval


def test_the_interval_of_the_exponent_is_over_seeds() -> None:
    fit = growth(np.array([ROUNDS**0.6, ROUNDS**0.7, ROUNDS**0.8]), first_round=10)
    assert fit.exponents == pytest.approx([0.6, 0.7, 0.8], abs=1e-6)
    assert fit.exponent.mean == pytest.approx(0.7)
    assert fit.exponent.half_width == pytest.approx(0.1 * 4.302653 / math.sqrt(3), abs=1e-5)
    assert fit.law == "power"


def test_a_power_that_may_be_one_is_linear() -> None:
    fit = growth(np.array([ROUNDS**0.7, ROUNDS**0.95, ROUNDS**1.1]), first_round=10)
    assert fit.exponent.low < 1 < fit.exponent.high
    assert fit.law == "linear"


def test_noise_on_a_line_is_linear() -> None:
    gaps = np.random.default_rng(1).exponential(1.0, (5, 20_000))
    assert growth(np.cumsum(gaps, axis=1), first_round=10).law == "linear"


def test_gaps_that_shrink_as_a_power() -> None:
    """Gaps of mean 0.64 n^-0.36 sum up to n^0.64, with noise."""
    gaps = np.random.default_rng(2).exponential(0.64 * ROUNDS**-0.36, (5, 20_000))
    fit = growth(np.cumsum(gaps, axis=1), first_round=10)
    assert fit.law == "power"
    assert fit.exponent.mean == pytest.approx(0.64, abs=0.02)


def test_no_regret_at_all() -> None:
    fit = growth(np.zeros(100), first_round=5)
    assert (fit.log_r2, fit.linear_r2, fit.power_r2, fit.exponent.mean) == (1.0, 1.0, 1.0, 0.0)


def test_theorem_1_by_hand() -> None:
    """One gap of 0.5 in round 3 of 4; the bound is smallest, and so the use largest, in round 3."""
    gaps = np.array([0.0, 0.0, 0.5, 0.0])
    bound = 7.0 * 20 * (4 * 6 * math.log(3) / 0.25 + 1 + math.pi**2 / 3)
    use = theorem_1_use(gaps, num_clients=20, cohort_size=5, alpha=3.0, speed_range=1.0)
    assert use == pytest.approx(0.5 / bound)


def test_theorem_1_would_be_contradicted_by_linear_regret_with_large_gaps() -> None:
    gaps = np.full(100_000, 5.0)
    use = theorem_1_use(gaps, num_clients=2, cohort_size=1, alpha=2.0, speed_range=1.0)
    assert use > 1
    assert theorem_1_use(0 * gaps, num_clients=2, cohort_size=1, alpha=2, speed_range=1.0) == 0.0

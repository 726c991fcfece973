import math

import numpy as np
import pytest

from claims.growth import growth, theorem_1_use

ROUNDS = np.arange(1.0, 20_001.0)


def test_a_logarithm_is_told_from_a_line() -> None:
    fit = growth(5 + 3 * np.log(ROUNDS), first_round=10)
    assert fit.law == "logarithmic"
    assert fit.log_r2 == pytest.approx(1.0)
    assert fit.exponent < 0.15


def test_a_line_is_told_from_a_logarithm() -> None:
    fit = growth(2.0 * ROUNDS + 7, first_round=10)
    assert fit.law == "linear"
    assert fit.linear_r2 == pytest.approx(1.0)
    assert fit.exponent == pytest.approx(1.0, abs=0.01)


def test_the_exponent_of_a_square_root() -> None:
    assert growth(np.sqrt(ROUNDS), first_round=10).exponent == pytest.approx(0.5, abs=1e-6)


def test_no_regret_at_all() -> None:
    fit = growth(np.zeros(100), first_round=5)
    assert (fit.log_r2, fit.linear_r2, fit.exponent) == (1.0, 1.0, 0.0)


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

"""Shares of times, where one of two contestants does not reach the level."""

import numpy as np
import pytest

from claims.league.cells import PlayedCourse
from claims.racing.milestone_table import share_text
from claims.racing.milestones import end_level
from claims.racing.tuning import Trial, best_rate, ranked_rates


@pytest.mark.parametrize(
    ("shares", "reached"),
    [
        ([0.5, np.inf], 1),  # the contestant never arrived
        ([0.5, 0.0], 1),  # the rival never arrived
        ([np.nan, 0.0], 0),
    ],
)
def test_a_seed_counts_where_both_reach_the_level(shares: list[float], reached: int) -> None:
    assert share_text(np.array(shares)) == f"reached in {reached} of 2 seeds"


def test_all_seeds_that_count_have_a_mean() -> None:
    assert share_text(np.array([0.5, 0.5])).startswith("0.500")


def test_a_run_without_evaluations_has_no_end() -> None:
    course = PlayedCourse(
        columns={"seconds": np.ones(3), "accuracy": np.full(3, np.nan)},
        cohort_sizes=np.ones(3, dtype=np.int64),
        num_parameters=1,
    )
    assert np.isnan(end_level(course))


def test_rates_are_ranked_by_time_then_by_end() -> None:
    trials = {
        rate: Trial(np.array([seconds]), np.array([end]))
        for rate, seconds, end in ((0.1, 9.0, 0.9), (0.2, 5.0, 0.5), (0.4, 5.0, 0.6))
    }
    assert ranked_rates(trials) == [0.4, 0.2, 0.1]
    assert best_rate(trials) == 0.4

"""REFL: whom it prefers, who rests, how long it thinks a round takes."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import BoolArray, Feedback, Problem, RoundView, Selection
from fedmuster.core.staleness import AgeAndNovelty
from fedmuster.policies.refl import REFL, REFLState

CLIENTS = 8


def state(last_round: list[int] | None = None, window_seconds: float = 10.0) -> REFLState:
    last = np.zeros(CLIENTS, dtype=np.int64) if last_round is None else np.array(last_round)
    return REFLState(
        last_round=last, window_seconds=np.array(window_seconds), cohort_size=np.array(2)
    )


def view(round_number: int, cohort_size: int = 2, **known: Any) -> RoundView:
    known.setdefault("available", np.ones(CLIENTS, dtype=np.bool_))
    return RoundView(round=round_number, cohort_size=cohort_size, **known)


class Forecasts:
    """Says always the same, and remembers what it was asked."""

    def __init__(self, this_window: list[int], next_window: list[int]) -> None:
        self.this_window = np.isin(np.arange(CLIENTS), this_window)
        self.next_window = np.isin(np.arange(CLIENTS), next_window)
        self.asked: list[float] = []

    def __call__(self, window_seconds: float) -> tuple[BoolArray, BoolArray]:
        self.asked.append(window_seconds)
        return self.this_window, self.next_window


def choose(policy: REFL, known: REFLState, seen: RoundView, seed: int = 0) -> list[int]:
    chosen: list[int] = policy.select(known, seen, np.random.default_rng(seed)).clients.tolist()
    return chosen


def test_who_stays_for_this_window_and_not_for_the_next_comes_first() -> None:
    # 1 and 4 leave; 2 is not even there for the first; 5 is away and comes; the others stay.
    forecast = Forecasts(this_window=[0, 1, 3, 4, 6, 7], next_window=[0, 3, 5, 6, 7])
    for seed in range(20):
        assert choose(REFL(), state(), view(9, forecast=forecast), seed) == [1, 4]
    assert forecast.asked == [10.0] * 20


def test_the_rest_is_drawn_uniformly_from_all_others() -> None:
    """Chi-squared over 7 others at 1e-6."""
    forecast = Forecasts(this_window=[0, 1, 3], next_window=[0, 3])
    counts = np.zeros(CLIENTS)
    for seed in range(2000):
        chosen = choose(REFL(), state(), view(9, 2, forecast=forecast), seed)
        assert 1 in chosen
        counts[chosen] += 1
    assert stats.chisquare(np.delete(counts, 1)).pvalue > 1e-6


def test_who_took_part_rests_for_five_rounds() -> None:
    known = state([4, 5, 6, 7, 8, 0, 0, 3])
    score = REFL().scores(known, view(9))["priority"]
    np.testing.assert_array_equal(score, [2, 0, 0, 0, 0, 2, 2, 2])
    score = REFL(rest_rounds=1).scores(known, view(9))["priority"]
    np.testing.assert_array_equal(score, np.full(CLIENTS, 2))


def test_who_rests_comes_last_even_if_it_leaves_but_fills_a_small_cohort() -> None:
    forecast = Forecasts(this_window=list(range(CLIENTS)), next_window=[0, 2, 3, 4, 5, 6, 7])
    known = state([8, 8, 0, 8, 8, 8, 8, 8])
    assert choose(REFL(), known, view(9, 2, forecast=forecast)) == [1, 2]
    assert len(choose(REFL(), known, view(9, 5, forecast=forecast))) == 5
    available = np.isin(np.arange(CLIENTS), [1, 2, 3])
    score = REFL().scores(known, view(9, available=available, forecast=forecast))["priority"]
    np.testing.assert_array_equal(score, [np.nan, 1, 2, 0, np.nan, np.nan, np.nan, np.nan])


def test_before_a_round_was_timed_nobody_is_asked_for_a_forecast() -> None:
    forecast = Forecasts(this_window=[], next_window=[])
    seen = view(1, forecast=forecast)
    score = REFL().scores(REFL().init(Problem(num_clients=CLIENTS, cohort_size=2)), seen)
    np.testing.assert_array_equal(score["priority"], np.full(CLIENTS, 2))
    assert forecast.asked == []


def observe(known: REFLState, round_number: int, completed: list[bool], **told: Any) -> None:
    clients = np.arange(len(completed))
    selection = Selection(round=round_number, clients=clients)
    latency = np.where(completed, 3.0 + clients, np.inf)
    feedback = Feedback(
        round=round_number,
        clients=clients,
        latency_seconds=latency,
        completed=np.array(completed),
        **told,
    )
    REFL().observe(known, selection, feedback)


def test_the_window_is_a_moving_average_of_round_durations() -> None:
    """w <- 0.75 D + 0.25 w, from the first duration on; by hand."""
    known = REFL().init(Problem(num_clients=CLIENTS, cohort_size=2))
    for seconds, expected in ((8.0, 8.0), (4.0, 5.0), (0.0, 5.0), (1.0, 2.0)):
        observe(known, 1, [True, True], round_seconds=seconds)
        assert known.window_seconds == expected
    observe(known, 1, [True, True, True, False])  # nobody looked: its slowest answer took 5 s
    assert known.window_seconds == 0.75 * 5 + 0.25 * 2
    observe(known, 1, [False])
    assert known.window_seconds == 0.75 * 5 + 0.25 * 2


def test_only_those_who_answered_took_part() -> None:
    known = state()
    observe(known, 4, [True, False, True])
    np.testing.assert_array_equal(known.last_round, [4, 0, 4, 0, 0, 0, 0, 0])


def test_late_answers_weigh_by_age_and_novelty() -> None:
    assert REFL().stale_answers == AgeAndNovelty(beta=0.35)
    assert REFL(beta=0.5, max_staleness=3).stale_answers == AgeAndNovelty(beta=0.5, max_age=3)


@pytest.mark.parametrize(
    "wrong", [{"memory": 1.0}, {"rest_rounds": 0}, {"beta": -0.1}, {"max_staleness": 0}]
)
def test_hyper_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        REFL(**wrong)

"""Optimal client sampling: its probabilities by hand, and what it learns."""

from typing import Any

import numpy as np
import pytest

from fedmuster import Feedback, OptimalSampling, Problem, RoundView, Selection, Selector
from fedmuster.core.errors import ConfigError

SIZES = np.array([10, 30, 20, 20])


def told(
    policy: OptimalSampling, norms: dict[int, float], failed: tuple[int, ...] = (), **problem: Any
) -> Any:
    """The state after each of these clients was asked once."""
    state = policy.init(Problem(num_clients=4, cohort_size=2, **problem))
    clients = np.array([*norms, *failed], dtype=np.int64)
    answered = np.isin(clients, list(norms))
    signal = np.array([*norms.values(), *(np.nan for _ in failed)])
    answers = Feedback(
        clients=clients,
        latency_seconds=np.where(answered, 1.0, np.inf),
        completed=answered,
        signals={"update_norm": signal},
    )
    policy.observe(state, Selection(round=1, clients=np.sort(clients)), answers)
    return state


def chance(policy: OptimalSampling, state: Any, *, away: tuple[int, ...] = ()) -> list[float]:
    available = ~np.isin(np.arange(4), away)
    view = RoundView(round=2, cohort_size=2, available=available)
    found: list[float] = policy.scores(state, view)["chance"].tolist()
    return found


def test_by_data_and_norm_worked_by_hand() -> None:
    """w ||U|| = 10 · 8, 30 · 1, 20 · 2, 20 · 0.5 = 80, 30, 40, 10, in units of 1/80.

    80 of 160 is 1/2 or more: client 0 is certain, and 30, 40, 10 share the other place.
    """
    state = told(OptimalSampling(), {0: 8.0, 1: 1.0, 2: 2.0, 3: 0.5}, num_samples=SIZES)
    assert chance(OptimalSampling(), state) == pytest.approx([1.0, 3 / 8, 4 / 8, 1 / 8])
    # Without client 0 there are two places for 30, 40, 10: 40 is certain.
    assert chance(OptimalSampling(), state, away=(0,)) == pytest.approx(
        [np.nan, 0.75, 1.0, 0.25], nan_ok=True
    )


def test_without_data() -> None:
    """Norms 8, 1, 2, 0.5: client 0 is certain, and the others share a place by 2 : 4 : 1. With the
    floor at half of the mean of 2.875 all others have 1.4375 or 2."""
    policy = OptimalSampling(by_data=False)
    state = told(policy, {0: 8.0, 1: 1.0, 2: 2.0, 3: 0.5}, num_samples=SIZES)
    assert chance(policy, state) == pytest.approx([1.0, 2 / 7, 4 / 7, 1 / 7])
    high = OptimalSampling(by_data=False, floor=0.5)
    assert chance(high, state) == pytest.approx([1.0, *np.array([1.4375, 2.0, 1.4375]) / 4.875])


@pytest.mark.parametrize(("unseen", "norm"), [("largest", 3.0), ("mean", 2.0)])
def test_unseen_clients(unseen: Any, norm: float) -> None:
    policy = OptimalSampling(unseen=unseen)
    state = told(policy, {1: 3.0, 2: 1.0})
    total = 4.0 + 2 * norm
    assert chance(policy, state) == pytest.approx(
        [2 * norm / total, 6 / total, 2 / total, 2 * norm / total]
    )


def test_a_failure_counts_as_half_of_the_answers() -> None:
    """Asked once, without an answer: sqrt(1/2) of the norm of the unseen; asked and answered: 1."""
    state = told(OptimalSampling(), {1: 3.0, 2: 1.0}, failed=(3,))
    weights = np.array([3.0, 3.0, 1.0, 3.0 * np.sqrt(0.5)])
    assert chance(OptimalSampling(), state) == pytest.approx(2 * weights / weights.sum())


def test_without_norms_clients_are_drawn_by_data() -> None:
    state = told(OptimalSampling(), {}, num_samples=SIZES)
    assert chance(OptimalSampling(), state) == pytest.approx([0.25, 0.75, 0.5, 0.5])
    zeros = told(OptimalSampling(), dict.fromkeys(range(4), 0.0), num_samples=SIZES)
    assert chance(OptimalSampling(), zeros) == pytest.approx([0.25, 0.75, 0.5, 0.5])


def test_inclusion_is_the_chance_that_scores_tell() -> None:
    selector = Selector(OptimalSampling(), Problem(num_clients=4, cohort_size=2, num_samples=SIZES))
    selector.state = told(OptimalSampling(), {0: 5.0, 1: 1.0}, num_samples=SIZES)
    for count in (1, 2):
        cohort = selector.select(count=count)
        expected = selector.scores()["chance"][cohort.clients]
        assert cohort.inclusion is not None
        assert cohort.inclusion.tolist() == expected.tolist()
        selector.give_up(selector.tickets.numbers)


def test_norms_whose_sum_overflows_are_the_largest() -> None:
    state = told(OptimalSampling(), {0: 1.7e308, 1: 1.7e308, 2: 1.0, 3: 1.0})
    assert chance(OptimalSampling(), state) == pytest.approx([1.0, 1.0, 0.0, 0.0], abs=0.1)


@pytest.mark.parametrize("floor", [0.0, -0.1, 1.1])
def test_a_floor_of_nothing_is_refused(floor: float) -> None:
    with pytest.raises(ConfigError) as caught:
        OptimalSampling(floor=floor)
    assert caught.value.key == ("floor",)

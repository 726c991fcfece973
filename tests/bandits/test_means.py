"""The estimators against plain Python that remembers every sample."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.bandits.means import (
    DiscountedMean,
    MeanEstimator,
    SampleMean,
    WindowedMean,
    confidence_radius,
    log_rounds,
)
from fedmuster.bandits.speed import SpeedEstimator
from fedmuster.core.records import Feedback

K = 4
HISTORIES = st.lists(
    st.dictionaries(st.integers(0, K - 1), st.floats(0.01, 100.0), max_size=K), max_size=30
)


def learn(estimator: MeanEstimator, history: list[dict[int, float]]) -> Any:
    state = estimator.init(K)
    for number, samples in enumerate(history, start=1):
        clients = np.array(list(samples), dtype=np.int64)
        estimator.update(state, clients, np.array(list(samples.values())), round_=number)
    return state


@given(HISTORIES)
def test_sample_mean(history: list[dict[int, float]]) -> None:
    state = learn(SampleMean(), history)
    for client in range(K):
        samples = [round_[client] for round_ in history if client in round_]
        assert state.count[client] == len(samples)
        if samples:
            assert state.mean[client] == pytest.approx(sum(samples) / len(samples))


@given(HISTORIES, st.integers(1, 6))
def test_windowed_mean(history: list[dict[int, float]], window: int) -> None:
    estimator = WindowedMean(window=window)
    state = learn(estimator, history)
    behind = estimator.effective_count(state, slice(None), round_=99)
    for client in range(K):
        samples = [round_[client] for round_ in history if client in round_][-window:]
        assert behind[client] == len(samples)
        if samples:
            assert state.mean[client] == pytest.approx(sum(samples) / len(samples))


@given(HISTORIES, st.floats(0.5, 0.999), st.integers(0, 5))
def test_discounted_mean(history: list[dict[int, float]], discount: float, later: int) -> None:
    estimator = DiscountedMean(discount=discount)
    state = learn(estimator, history)
    now = len(history) + later
    behind = estimator.effective_count(state, slice(None), round_=now)
    for client in range(K):
        weights = {
            number: discount ** (now - number)
            for number, round_ in enumerate(history, start=1)
            if client in round_
        }
        assert behind[client] == pytest.approx(sum(weights.values()))
        if weights:
            total = sum(w * history[number - 1][client] for number, w in weights.items())
            assert state.mean[client] == pytest.approx(total / sum(weights.values()))
    assert estimator.horizon(5) == pytest.approx(sum(discount**i for i in range(5)))


def test_a_window_forgets_and_a_mean_does_not() -> None:
    history = [{0: 1.0}] * 100 + [{0: 9.0}] * 20
    assert learn(WindowedMean(window=20), history).mean[0] == pytest.approx(9.0)
    assert learn(SampleMean(), history).mean[0] == pytest.approx(280 / 120)


def answers(round_: int, latency: dict[int, float | None]) -> Feedback:
    return Feedback(
        round=round_,
        clients=np.array(list(latency)),
        latency_seconds=np.array([math.nan if x is None else x for x in latency.values()]),
        completed=np.array([x is not None for x in latency.values()]),
    )


class TestSpeed:
    def test_index_by_hand(self) -> None:
        """BSFL Eq. 8–12 with m = 2 after three rounds, tau_min = 0.1 given."""
        speed = SpeedEstimator(estimator=SampleMean(), tau_min_seconds=0.1)
        state = speed.init(4)
        speed.update(state, answers(1, {0: 0.2, 1: 0.5}))
        speed.update(state, answers(2, {0: 0.4, 2: None}))
        speed.update(state, answers(3, {0: 0.2, 1: 0.25}))
        bound = speed.upper_bound(state, slice(None), round_=4, cohort_size=2)
        assert bound[0] == pytest.approx((0.5 + 0.25 + 0.5) / 3 + math.sqrt(3 * math.log(3) / 3))
        assert bound[1] == pytest.approx((0.2 + 0.4) / 2 + math.sqrt(3 * math.log(3) / 2))
        assert bound[2] == pytest.approx(0.0 + math.sqrt(3 * math.log(3) / 1))  # never answered
        assert bound[3] == math.inf

    def test_a_new_minimum_rescales_the_past(self) -> None:
        speed = SpeedEstimator(estimator=SampleMean(), tau_min_seconds=None)
        known = SpeedEstimator(estimator=SampleMean(), tau_min_seconds=0.05)
        one, other = speed.init(2), known.init(2)
        for number, latency in enumerate([0.4, 0.2, 0.05], start=1):
            for estimator, state in ((speed, one), (known, other)):
                estimator.update(state, answers(number, {0: latency, 1: 0.3}))
        rows = slice(None)
        np.testing.assert_array_equal(
            speed.upper_bound(one, rows, round_=4, cohort_size=1),
            known.upper_bound(other, rows, round_=4, cohort_size=1),
        )

    def test_while_nobody_answered_the_mean_is_zero(self) -> None:
        speed = SpeedEstimator(estimator=SampleMean(), tau_min_seconds=None)
        state = speed.init(2)
        speed.update(state, answers(1, {0: None}))
        assert speed.upper_bound(state, slice(None), round_=2, cohort_size=1)[0] < 1e-100

    def test_zeta_multiplies_the_mean_only(self) -> None:
        states = []
        for zeta in (1.0, 3.0):
            speed = SpeedEstimator(estimator=SampleMean(), tau_min_seconds=0.1, zeta=zeta)
            state = speed.init(1)
            speed.update(state, answers(1, {0: 0.5}))
            states.append(speed.upper_bound(state, slice(None), round_=3, cohort_size=1)[0])
        assert states[1] - states[0] == pytest.approx(2 * 0.2)


def test_unseen_clients_stay_infinite_in_the_second_round() -> None:
    assert confidence_radius(np.array([0, 3]), log_rounds(1))[0] == math.inf


def test_logarithm_of_rounds() -> None:
    assert log_rounds(0) == log_rounds(1) == 0.0
    assert log_rounds(10) == math.log(10)

"""The estimators against plain Python that remembers every sample."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster import BSFL, CSUCB, CSUCBQ, PAUSE
from fedmuster.bandits.means import (
    Bonus,
    DiscountedMean,
    MeanEstimator,
    SampleMean,
    SpreadState,
    WindowedMean,
    confidence_radius,
    log_rounds,
    variance_radius,
)
from fedmuster.bandits.speed import LatencyReward, SpeedEstimator
from fedmuster.core import state as states
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Feedback, Problem
from fedmuster.core.selector import Selector

K = 4
HISTORIES = st.lists(
    st.dictionaries(st.integers(0, K - 1), st.floats(0.01, 100.0), max_size=K), max_size=30
)


def learn(
    estimator: MeanEstimator, history: list[dict[int, float]], bonus: Bonus = "published"
) -> Any:
    state = estimator.init(K, bonus)
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


@pytest.mark.parametrize(
    "estimator",
    [SampleMean(), WindowedMean(window=1), WindowedMean(window=4), DiscountedMean(discount=0.7)],
    ids=repr,
)
@given(history=HISTORIES)
def test_variances_are_those_of_the_samples_that_count(
    estimator: MeanEstimator, history: list[dict[int, float]]
) -> None:
    state, plain = learn(estimator, history, "variance"), learn(estimator, history)
    for client in range(K):
        seen = [(t, x[client]) for t, x in enumerate(history, start=1) if client in x]
        if isinstance(estimator, WindowedMean):
            seen = seen[-estimator.window :]
        times, samples = np.array(seen).reshape(-1, 2).T
        expected = 0.0
        if len(samples):
            discount = getattr(estimator, "discount", 1.0)
            weights = discount ** (len(history) - times)
            mean = np.average(samples, weights=weights)
            expected = float(np.average((samples - mean) ** 2, weights=weights))
        assert state.variance[client] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    np.testing.assert_array_equal(state.mean, plain.mean)
    assert not isinstance(plain, SpreadState)


def test_the_variance_radius_by_hand() -> None:
    """Of 3 samples of variance 0.04: s² = (3 · 0.04 + 0.02) / 5 = 0.028."""
    count, variance = np.array([0, 3]), np.array([0.0, 0.04])
    radius = variance_radius(count, variance, math.log(10))
    assert radius.tolist() == pytest.approx([math.inf, math.sqrt(2 * 0.028 * math.log(10) / 3)])
    # Samples count half: s² = (3 · 0.01 + 0.02) / 5 = 0.01.
    radius = variance_radius(count, variance, math.log(10), unit=0.5)
    assert radius[1] == pytest.approx(math.sqrt(2 * 0.01 * math.log(10) / 3))
    # Minimax: ln(6 / 3), and 0 for clients that were observed more than most.
    radius = variance_radius(count, variance, 1.0, usual_count=6.0)
    assert radius.tolist() == pytest.approx([math.inf, math.sqrt(2 * 0.028 * math.log(2) / 3)])
    radius = variance_radius(count, variance, 1.0, usual_count=2.0)
    assert radius.tolist() == [math.inf, 0.0]


@pytest.mark.parametrize("usual_count", [None, 0.0, 5.0])
def test_without_a_bonus_the_unseen_still_come_first(usual_count: float | None) -> None:
    count = np.arange(3)
    radius = variance_radius(count, np.zeros(3), 0.0, usual_count=usual_count)
    assert radius[0] == math.inf
    assert radius[1:].max() < 1e-100


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_many_clients_have_the_same_radius_as_few(kind: type[Any]) -> None:
    """Beyond the block that is worked on at once, and that is looked up by whole counts."""
    rng = np.random.default_rng(1)
    count, variance = rng.integers(0, 9, 100_000).astype(kind), rng.random(100_000)
    whole = variance_radius(count, variance, 2.0, usual_count=4.0)
    parts = [
        variance_radius(count[i : i + 999], variance[i : i + 999], 2.0, usual_count=4.0)
        for i in range(0, 100_000, 999)
    ]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


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

    def test_variances_are_rescaled_with_the_minimum(self) -> None:
        """Speeds 0.25 and 0.5 in units of 0.1 s, then of 0.05 s."""
        speed = SpeedEstimator(estimator=SampleMean(), tau_min_seconds=None, bonus="variance")
        state = speed.init(2)
        speed.update(state, answers(1, {0: 0.4, 1: 0.1}))
        speed.update(state, answers(2, {0: 0.2, 1: 0.1}))

        def bonus(round_: int) -> float:
            return float(speed.terms(state, slice(None), round_=round_, cohort_size=9)[1][0])

        assert bonus(3) == pytest.approx(math.sqrt(2 * (2 * 0.125**2 + 0.02) / 4 * math.log(2) / 2))
        speed.update(state, answers(3, {1: 0.05}))
        small = (2 * 0.0625**2 + 0.02) / 4
        assert bonus(4) == pytest.approx(math.sqrt(2 * small * math.log(3) / 2))
        spread = speed.spread(state, slice(None), round_=4)
        assert spread is not None
        assert spread[0] == pytest.approx(math.sqrt(small))

    def test_the_published_bonus_keeps_no_variances(self) -> None:
        speed = SpeedEstimator(estimator=SampleMean(), tau_min_seconds=None)
        assert speed.spread(speed.init(2), slice(None), round_=1) is None


LATENCIES = st.lists(
    st.dictionaries(st.integers(0, K - 1), st.none() | st.floats(0.1, 9.0), max_size=K), max_size=30
)


@pytest.mark.parametrize("tau_max", [None, 5.0])
@given(history=LATENCIES)
def test_the_variance_of_rewards(
    tau_max: float | None, history: list[dict[int, float | None]]
) -> None:
    """Of 1 - tau / tau_max, and of 0 where nobody answered, against numpy."""
    reward = LatencyReward(tau_max_seconds=tau_max, bonus="variance")
    state = reward.init(K)
    for number, latency in enumerate(history, start=1):
        if latency:
            reward.update(state, answers(number, latency))
    every = [x for samples in history for x in samples.values() if x is not None]
    longest = tau_max or max(every, default=1.0)
    estimated = reward.spread(state, slice(None))
    assert estimated is not None
    for client in range(K):
        told = [samples[client] for samples in history if client in samples]
        rewards = [0.0 if x is None else 1 - min(x, longest) / longest for x in told]
        squares = len(rewards) * float(np.var(rewards)) if rewards else 0.0
        expected = (squares + 0.02) / (len(rewards) + 2)
        assert estimated[client] ** 2 == pytest.approx(expected, rel=1e-9)


def test_unseen_clients_stay_infinite_in_the_second_round() -> None:
    assert confidence_radius(np.array([0, 3]), log_rounds(1))[0] == math.inf


@pytest.mark.parametrize("estimator", [SampleMean(), WindowedMean(window=3), DiscountedMean()])
def test_with_equal_counts_the_minimax_bonus_is_zero(estimator: Any) -> None:
    """However far back the estimator looks: nobody is known less than usual."""
    speed = SpeedEstimator(estimator=estimator, tau_min_seconds=0.1, bonus="minimax")
    state = speed.init(4)
    rng = np.random.default_rng(1)
    for number in range(1, 9):
        speed.update(
            state,
            Feedback(round=number, clients=np.arange(4), latency_seconds=rng.uniform(0.1, 1.0, 4)),
        )
    _, radius = speed.terms(state, slice(None), round_=9, cohort_size=2)
    np.testing.assert_allclose(radius, 0.0, atol=1e-12)


WITH_BONUSES = (BSFL, PAUSE, CSUCB, CSUCBQ)


@pytest.mark.parametrize("kind", WITH_BONUSES)
def test_variances_are_kept_only_for_bonuses_that_need_them(kind: Any) -> None:
    """States of the published policies are what they were, and can be restored from old files."""
    problem = Problem(num_clients=3, cohort_size=1)
    plain = set(states.to_arrays(kind().init(problem)))
    for bonus in ("variance", "minimax"):
        more = set(states.to_arrays(kind(bonus=bonus).init(problem))) - plain
        assert [name.rpartition(".")[2] for name in more] == ["variance"]


@pytest.mark.parametrize("kind", WITH_BONUSES)
@pytest.mark.parametrize(("key", "value"), [("scale", -0.5), ("scale", math.inf), ("bonus", "ucb")])
def test_wrong_bonuses_are_refused(kind: Any, key: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        kind(**{key: value})
    assert refused.value.key == (key,)


def test_joining_clients_keep_the_variances_of_the_others() -> None:
    selector = Selector(BSFL(bonus="variance"), Problem(num_clients=2, cohort_size=2))
    for seconds in ([0.5, 0.2], [0.25, 0.4]):
        chosen = selector.select()
        selector.observe(
            Feedback(round=chosen.round, clients=chosen.clients, latency_seconds=np.array(seconds))
        )
    selector.join(2)
    variance = states.to_arrays(selector.state)["speed.inverse.variance"]
    assert variance.tolist() == pytest.approx([np.var([2.0, 4.0]), np.var([5.0, 2.5]), 0.0, 0.0])


def test_logarithm_of_rounds() -> None:
    assert log_rounds(0) == log_rounds(1) == 0.0
    assert log_rounds(10) == math.log(10)

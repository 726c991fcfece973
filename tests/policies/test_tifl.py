"""TiFL: profiling, tiers, adaptive odds and credits, by hand."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from fedmuster.core.config import from_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import BoolArray, Feedback, FloatArray, Problem, RoundView
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.tifl import LatencyTiers, TierOdds, TierState, TiFL, TiFLState
from fedmuster.testing import CHECKS, Check

LEVEL = 1e-3


def told(
    clients: Sequence[int], latency: Sequence[float], *, round_: int = 1, **signals: Sequence[float]
) -> Feedback:
    """An infinite latency is no answer."""
    seconds = np.array(latency)
    return Feedback(
        round=round_,
        clients=np.array(clients),
        latency_seconds=seconds,
        completed=np.isfinite(seconds),
        signals={name: np.array(values) for name, values in signals.items()},
    )


def profiled(policy: TiFL, latency: Sequence[float]) -> TiFLState:
    """A state in which everybody was asked once and took so long."""
    clients = len(latency)
    state = policy.init(Problem(num_clients=clients, cohort_size=2))
    tiers = LatencyTiers(num_tiers=policy.num_tiers, timeout_seconds=policy.timeout_seconds)
    tiers.update(state.tiers, told(range(clients), latency))
    tiers.divide(state.tiers)
    return state


def view(clients: int, count: int, available: BoolArray | None = None) -> RoundView:
    everyone = np.ones(clients, dtype=np.bool_)
    return RoundView(
        round=7, cohort_size=count, available=everyone if available is None else available
    )


def cohorts(policy: TiFL, state: TiFLState, seen: RoundView, number: int) -> list[list[int]]:
    return [
        policy.select(state, seen, stream(seed, POLICY, 7)).clients.tolist()
        for seed in range(number)
    ]


def run(
    selector: Selector[TiFLState], seconds: FloatArray, rounds: int, accuracy: FloatArray
) -> list[list[int]]:
    """Play rounds in which client k takes ``seconds[k]`` and sends ``accuracy[k]``."""
    chosen = []
    for _ in range(rounds):
        cohort = selector.select()
        chosen.append(cohort.clients.tolist())
        selector.observe(
            told(
                chosen[-1],
                seconds[cohort.clients].tolist(),
                round_=cohort.round,
                accuracy_before=accuracy[cohort.clients].tolist(),
            )
        )
    return chosen


class TestTiers:
    def tiers(self, latency: Sequence[float], num_tiers: int) -> list[int]:
        state = profiled(TiFL(num_tiers=num_tiers), latency).tiers
        found: list[int] = LatencyTiers(num_tiers=num_tiers).tier(state, slice(None)).tolist()
        return found

    @pytest.mark.parametrize(("clients", "num_tiers"), [(10, 5), (13, 5), (100, 7), (3, 5), (4, 1)])
    def test_are_of_equal_size_by_latency(self, clients: int, num_tiers: int) -> None:
        latency = np.random.default_rng(clients).permutation(clients) + 1.0
        found = self.tiers(latency.tolist(), num_tiers)
        sizes = np.bincount(found, minlength=num_tiers)
        assert sizes.max() - sizes.min() <= 1
        assert np.all(np.diff(np.array(found)[np.argsort(latency)]) >= 0)

    def test_equals_are_in_the_same_tier(self) -> None:
        assert self.tiers([1.0, 1.0, 1.0, 5.0], 2) == [0, 0, 0, 1]
        assert set(self.tiers([2.0] * 6, 3)) == {0}

    def test_mean_latency_with_missing_answers(self) -> None:
        tiers = LatencyTiers(num_tiers=2)
        state = tiers.init(4)
        tiers.update(state, told([0, 1, 2], [1.0, 6.0, math.inf]))
        tiers.update(state, told([0, 1], [3.0, math.inf]))
        assert tiers.mean_seconds(state, slice(None)).tolist() == [2.0, 6.0, 6.0, 0.0]
        tiers.update(state, told([0], [8.0]))  # now the longest of all
        assert tiers.mean_seconds(state, slice(None)).tolist() == [4.0, 7.0, 8.0, 0.0]

    def test_timeout(self) -> None:
        tiers = LatencyTiers(num_tiers=2, timeout_seconds=5.0)
        state = tiers.init(2)
        tiers.update(state, told([0, 1], [9.0, math.inf]))
        assert tiers.mean_seconds(state, slice(None)).tolist() == [5.0, 5.0]

    def test_who_never_answers_is_in_the_slowest(self) -> None:
        assert self.tiers([3.0, math.inf, 2.0, 4.0, 1.0, math.inf], 3) == [1, 2, 0, 2, 0, 2]
        assert self.tiers([math.inf, math.inf, math.inf, 1.0], 4) == [3, 3, 3, 0]

    def test_means_of_tiers(self) -> None:
        state: TierState = profiled(TiFL(num_tiers=3), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).tiers
        values = np.array([0.2, 0.4, -np.inf, -np.inf, 0.7, -np.inf])
        means = LatencyTiers(num_tiers=3).means(state, values)
        assert means.tolist() == pytest.approx([0.3, -math.inf, 0.7])


class TestOdds:
    def test_change_by_rank_only_if_the_accuracy_has_not_risen(self) -> None:
        odds = TierOdds(num_tiers=4)
        state = odds.init()
        first = np.array([0.4, 0.1, 0.3, 0.2])
        odds.adapt(state, 2, first)  # there was nothing to rise from
        assert state.probability.tolist() == [0.25] * 4
        odds.adapt(state, 2, first + 0.01)
        assert state.probability.tolist() == [0.25] * 4
        odds.adapt(state, 2, first + np.array([0.5, 0.5, 0.01, 0.5]))  # stands still
        # Accuracies 0.9, 0.6, 0.31, 0.7: the third is the lowest, then the second, the fourth.
        assert state.probability.tolist() == pytest.approx([0.1, 0.3, 0.4, 0.2])
        odds.adapt(state, 0, np.array([0.1, 0.6, 0.3, 0.7]))
        assert state.probability.tolist() == pytest.approx([0.4, 0.2, 0.3, 0.1])

    def test_equals_get_the_same_and_the_unheard_most(self) -> None:
        odds = TierOdds(num_tiers=3)
        state = odds.init()
        for accuracy in ([0.5, 0.5, -np.inf],) * 2:
            odds.adapt(state, 0, np.array(accuracy))
        assert state.probability.tolist() == pytest.approx([2 / 7, 2 / 7, 3 / 7])

    def test_credits_are_spent_and_given_anew(self) -> None:
        odds = TierOdds(num_tiers=3, credits=(2, 1, 1))
        state = odds.init()
        odds.spend(state, 1)
        assert odds.chances(state).tolist() == [0.5, 0.0, 0.5]
        odds.spend(state, 0)
        odds.spend(state, 2)
        assert odds.chances(state).tolist() == [1.0, 0.0, 0.0]
        odds.spend(state, 0)
        assert odds.chances(state).tolist() == pytest.approx([1 / 3] * 3)

    def test_without_credits_nothing_is_spent(self) -> None:
        odds = TierOdds(num_tiers=2)
        state = odds.init()
        for _ in range(50):
            odds.spend(state, 0)
        assert odds.chances(state).tolist() == [0.5, 0.5]


class TestSelection:
    def test_is_uniform_over_tiers_and_inside_them(self) -> None:
        policy = TiFL(num_tiers=3)
        state = profiled(policy, [1.0 + k for k in range(12)])
        drawn = Counter(map(tuple, cohorts(policy, state, view(12, 2), 3600)))
        pairs = [(b + i, b + j) for b in (0, 4, 8) for i in range(4) for j in range(i + 1, 4)]
        assert set(drawn) <= set(pairs)
        assert stats.chisquare([drawn[pair] for pair in pairs]).pvalue > LEVEL

    def test_follows_the_odds(self) -> None:
        policy = TiFL(num_tiers=3, credits=(5, 5, 5))
        state = profiled(policy, [1.0 + k for k in range(6)])
        state.odds.probability[:] = [0.2, 0.3, 0.5]
        state.odds.drawn[:] = [0, 5, 0]
        drawn = Counter(c[0] // 2 for c in cohorts(policy, state, view(6, 2), 2000))
        assert set(drawn) == {0, 2}
        assert stats.chisquare([drawn[0], drawn[2]], [2000 * 2 / 7, 2000 * 5 / 7]).pvalue > LEVEL

    def test_neighbours_help_out_the_faster_one_first(self) -> None:
        policy = TiFL(num_tiers=5)
        state = profiled(policy, [1.0 + k for k in range(10)])
        state.odds.probability[:] = [0.0, 0.0, 1.0, 0.0, 0.0]
        found = {
            count: set(map(tuple, cohorts(policy, state, view(10, count), 60)))
            for count in (2, 3, 4, 6, 10)
        }
        assert found[2] == {(4, 5)}
        assert found[3] == {(2, 4, 5), (3, 4, 5)}
        assert found[4] == {(2, 3, 4, 5)}
        assert found[6] == {(2, 3, 4, 5, 6, 7)}
        assert found[10] == {tuple(range(10))}
        away = np.arange(10) % 5 > 0  # 0 and 5 are not there
        assert set(map(tuple, cohorts(policy, state, view(10, 3, away), 60))) == {(2, 3, 4)}

    def test_a_tier_of_which_nobody_is_there(self) -> None:
        policy = TiFL(num_tiers=2)
        state = profiled(policy, [1.0, 2.0, 3.0, 4.0])
        only_slow = np.array([False, False, True, True])
        assert set(map(tuple, cohorts(policy, state, view(4, 2, only_slow), 30))) == {(2, 3)}

    def test_who_was_never_asked_may_come_with_any_tier(self) -> None:
        policy = TiFL(num_tiers=2, profiled_share=0.5)
        state = policy.init(Problem(num_clients=5, cohort_size=2))
        tiers = LatencyTiers(num_tiers=2)
        tiers.update(state.tiers, told([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0]))
        tiers.divide(state.tiers)
        drawn = set(map(tuple, cohorts(policy, state, view(5, 2), 200)))
        assert drawn == {(0, 1), (2, 3), (0, 4), (1, 4), (2, 4), (3, 4)}


class TestProfiling:
    def test_comes_first(self) -> None:
        selector = Selector(TiFL(profiling_rounds=2, profiled_share=1.0),
                            Problem(num_clients=12, cohort_size=4))  # fmt: skip
        chosen = run(selector, np.arange(1.0, 13.0), 6, np.full(12, 0.5))
        times = Counter(k for cohort in chosen for k in cohort)
        assert times == dict.fromkeys(range(12), 2)
        tiers = LatencyTiers(num_tiers=5).tier(selector.state.tiers, slice(None))
        assert tiers.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4]

    def test_does_not_wait_for_those_who_are_never_there(self) -> None:
        policy = TiFL(num_tiers=2)
        state = policy.init(Problem(num_clients=8, cohort_size=2))
        tiers = LatencyTiers(num_tiers=2)
        tiers.update(state.tiers, told([0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0]))
        tiers.divide(state.tiers)
        there = np.arange(8) < 4
        assert set(map(tuple, cohorts(policy, state, view(8, 2, there), 50))) == {(0, 1), (2, 3)}
        newcomer = np.arange(8) < 5
        assert all(4 in c for c in cohorts(policy, state, view(8, 2, newcomer), 20))

    def test_newcomers_are_profiled(self) -> None:
        selector = Selector(TiFL(), Problem(num_clients=10, cohort_size=5), newcomer_quota=1.0)
        seconds = np.append(np.arange(1.0, 11.0), [0.1, 0.2, 0.3, 0.4, 0.5])
        run(selector, seconds, 10, np.full(15, 0.5))
        selector.join(5)
        (cohort,) = run(selector, seconds, 1, np.full(15, 0.5))
        assert cohort == [10, 11, 12, 13, 14]
        tiers = LatencyTiers(num_tiers=5).tier(selector.state.tiers, slice(None))
        assert tiers[10:].tolist() == [0, 0, 0, 1, 1]


class TestLearning:
    def test_a_tier_that_is_served_badly_is_drawn_more_often(self) -> None:
        """Accuracies never rise, so odds are 1/15 … 5/15 by rank from the second look on."""
        seconds = 1.0 + np.arange(50.0)
        accuracy = np.repeat([0.5, 0.9, 0.1, 0.7, 0.3], 10)
        selector = Selector(TiFL(), Problem(num_clients=50, cohort_size=5))
        run(selector, seconds, 20, accuracy)
        assert selector.state.odds.probability.tolist() == pytest.approx(
            [3 / 15, 1 / 15, 5 / 15, 2 / 15, 4 / 15]
        )
        drawn = Counter(cohort[0] // 10 for cohort in run(selector, seconds, 600, accuracy))
        expected = [600 * share / 15 for share in (3, 1, 5, 2, 4)]
        assert stats.chisquare([drawn[t] for t in range(5)], expected).pvalue > LEVEL

    def test_losses_stand_in_for_accuracies(self) -> None:
        policy = TiFL(num_tiers=2, interval=1)
        state = profiled(policy, [1.0, 2.0, 3.0, 4.0])
        seen = view(4, 2)
        for t in (1, 2):
            for seed in range(20):
                selection = policy.select(state, seen, stream(seed, POLICY, t))
                clients = selection.clients
                latency, loss = (1.0 + clients).tolist(), np.where(clients < 2, 2.0, 0.5).tolist()
                policy.observe(state, selection, told(clients.tolist(), latency, loss=loss))
        assert state.accuracy.tolist() == [-2.0, -2.0, -0.5, -0.5]
        assert state.odds.probability.tolist() == pytest.approx([2 / 3, 1 / 3])

    def test_no_tier_is_drawn_more_often_than_it_has_credits(self) -> None:
        """Of five tiers with credits 5, 4, 3, 2, 1, over 30 rounds: twice as often each."""
        selector = Selector(
            TiFL(credits=(5, 4, 3, 2, 1), profiled_share=1.0),
            Problem(num_clients=50, cohort_size=5),
        )
        seconds, accuracy = 1.0 + np.arange(50.0), np.full(50, 0.5)
        run(selector, seconds, 10, accuracy)
        assert not selector.state.odds.drawn.any()  # profiling is free
        drawn = Counter(min(c) // 10 for c in run(selector, seconds, 30, accuracy))
        assert drawn == {0: 10, 1: 8, 2: 6, 3: 4, 4: 2}

    def test_small_tiers_spend_their_credits_too(self) -> None:
        """Tiers of two, cohorts of four: it cannot be told which tier was drawn, but all go on."""
        selector = Selector(
            TiFL(credits=(1, 1, 1, 1, 1), profiled_share=1.0),
            Problem(num_clients=10, cohort_size=4),
        )
        chosen = run(selector, 1.0 + np.arange(10.0), 103, np.full(10, 0.5))[3:]
        times = Counter(k for cohort in chosen for k in cohort)
        assert min(times[k] for k in range(10)) >= 15

    def test_what_is_told(self) -> None:
        policy = TiFL(num_tiers=2)
        state = policy.init(Problem(num_clients=4, cohort_size=2))
        tiers = LatencyTiers(num_tiers=2)
        tiers.update(state.tiers, told([0, 2, 3], [5.0, 1.0, 4.0]))
        tiers.divide(state.tiers)
        state.accuracy[[0, 2]] = [0.5, 0.25]
        state.odds.probability[:] = [0.75, 0.25]
        scores = policy.scores(state, view(4, 2))
        nan = math.nan
        np.testing.assert_array_equal(scores["mean_seconds"], [5.0, nan, 1.0, 4.0])
        np.testing.assert_array_equal(scores["tier"], [1.0, nan, 0.0, 0.0])
        np.testing.assert_array_equal(scores["tier_probability"], [0.25, nan, 0.75, 0.75])
        np.testing.assert_array_equal(scores["accuracy"], [0.5, nan, 0.25, nan])


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_tiers": 0}, {"interval": 0}, {"profiling_rounds": 0}, {"profiled_share": 1.5},
        {"credits": [1, 2]}, {"credits": [1, 1, 0, 1, 1]}, {"timeout_seconds": 0.0},
    ],
)  # fmt: skip
def test_bad_hyper_parameters(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        from_table(TiFL, wrong)


@pytest.mark.parametrize("check", [c for c in CHECKS if c.point in (2, 3, 7, 8, 11, 12)], ids=str)
def test_keeps_the_contract_with_credits(check: Check) -> None:
    check(TiFL(num_tiers=3, interval=4, credits=(9, 6, 3), profiling_rounds=2))

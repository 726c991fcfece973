"""Oort against its published description: scores, cut-off, pacer and shares by hand."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedmuster.core.config import from_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Feedback, FloatArray, Problem, RoundView, Selection
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.oort.policy import Oort, OortState
from fedmuster.policies.oort.scores import Pacer
from fedmuster.testing import CHECKS, Check

LEVEL = 1e-3
NAN = math.nan


def known(
    policy: Oort,
    utility: Sequence[float],
    *,
    seconds: Sequence[float] | None = None,
    last_round: Sequence[int] | None = None,
    times: Sequence[int] | None = None,
    problem: Problem | None = None,
    percentile: float = 100.0,
) -> OortState:
    """A state in which the clients have these records; last_round 0 is unexplored."""
    clients = len(utility)
    state = policy.init(problem or Problem(num_clients=clients, cohort_size=1))
    state.record.utility[:] = utility
    if seconds is not None:
        state.record.seconds[:] = seconds
    state.record.last_round[:] = [1] * clients if last_round is None else last_round
    state.record.times[:] = (state.record.last_round > 0) if times is None else times
    state.pacer.percentile[...] = percentile
    return state


def view(clients: int, count: int, *, round_: int = 10, away: Sequence[int] = ()) -> RoundView:
    available = np.ones(clients, dtype=np.bool_)
    available[list(away)] = False
    return RoundView(round=round_, cohort_size=count, available=available)


def cohorts(policy: Oort, state: OortState, seen: RoundView, number: int) -> list[list[int]]:
    return [
        policy.select(state, seen, stream(seed, POLICY, seen.round)).clients.tolist()
        for seed in range(number)
    ]


def answer(
    state: OortState,
    policy: Oort,
    round_: int,
    clients: Sequence[int],
    *,
    completed: Sequence[bool] | None = None,
    latency: Sequence[float] | None = None,
    round_seconds: float | None = None,
    **signals: Sequence[float],
) -> None:
    """A round in which these clients were asked."""
    rows = np.array(clients)
    policy.observe(
        state,
        Selection(round=round_, clients=rows),
        Feedback(
            round=round_,
            clients=rows,
            latency_seconds=np.ones(len(rows)) if latency is None else np.array(latency),
            completed=None if completed is None else np.array(completed),
            signals={name: np.array(values) for name, values in signals.items()},
            round_seconds=round_seconds,
        ),
    )


class TestScores:
    def test_by_hand(self) -> None:
        policy = Oort(clip=0.5)
        state = known(
            policy,
            [10.0, 40.0, 20.0, 100.0],
            seconds=[1.0, 2.0, 4.0, 8.0],
            last_round=[1, 2, 5, 9],
            percentile=50.0,
        )
        # T is number 2 of 1, 2, 4, 8; U is clipped at number 2 of 10, 20, 40, 100.
        low, span = 9.99, 40 - 9.99
        expected = [
            (10 - low) / span + math.sqrt(0.1 * math.log(10) / 1),
            1.0 + math.sqrt(0.1 * math.log(10) / 2),
            (20 - low) / span + math.sqrt(0.1 * math.log(10) / 5),
            (1.0 + math.sqrt(0.1 * math.log(10) / 9)) * (4 / 8) ** 2,
        ]
        assert policy.scores(state, view(4, 2))["score"] == pytest.approx(expected)

    def test_any_exponent_and_weight(self) -> None:
        policy = Oort(slow_penalty=0.5, staleness=2.0)
        state = known(policy, [5.0, 5.0], seconds=[1.0, 9.0], last_round=[3, 4], percentile=5.0)
        expected = [
            1 + math.sqrt(2 * math.log(7) / 3),
            (1 + math.sqrt(2 * math.log(7) / 4)) * (1 / 9) ** 0.5,
        ]
        assert policy.scores(state, view(2, 1, round_=7))["score"] == pytest.approx(expected)

    def test_many_clients_one_by_one(self) -> None:
        """Enough for several blocks, against a plain loop over those who are available."""
        rng = np.random.default_rng(5)
        clients = 70_000
        policy = Oort()
        state = known(
            policy,
            rng.lognormal(2, 1, clients).tolist(),
            seconds=rng.lognormal(1, 1, clients).tolist(),
            last_round=rng.integers(0, 50, clients).tolist(),
            percentile=30.0,
        )
        seen = RoundView(round=60, cohort_size=5, available=rng.random(clients) < 0.9)
        score = policy.scores(state, seen)["score"]
        record = state.record
        rows = [k for k in range(clients) if seen.available[k] and record.last_round[k] > 0]
        assert np.array_equal(np.flatnonzero(~np.isnan(score)), rows)
        ordered = sorted(float(record.utility[k]) for k in rows)
        low, high = 0.999 * ordered[0], ordered[int(0.95 * len(rows))]
        preferred = sorted(record.seconds.tolist())[int(0.3 * clients)]
        for k in rows[::97]:
            u = (min(float(record.utility[k]), high) - low) / (high - low)
            slow = min(preferred / float(record.seconds[k]), 1.0)
            stale = math.sqrt(0.1 * math.log(60) / int(record.last_round[k]))
            assert score[k] == pytest.approx((u + stale) * slow**2)

    def test_preferred_duration(self) -> None:
        """All known durations count, also those of clients that are away or only expected."""
        policy = Oort(staleness=0.0)
        seconds = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]
        for percentile, preferred in ((5, 1.0), (30, 4.0), (35, 4.0), (95, 10.0)):
            state = known(
                policy,
                [1.0] * 10,
                seconds=seconds,
                last_round=[0, 1, 0, 1, 1, 1, 1, 1, 1, 1],
                percentile=percentile,
            )
            score = policy.scores(state, view(10, 2, away=[8]))["score"]
            assert score[9] == pytest.approx((preferred / 10) ** 2)
            np.testing.assert_array_equal(np.isnan(score), np.isin(np.arange(10), [0, 2, 8]))
        anybody = known(policy, [1.0] * 10, seconds=seconds, percentile=100.0)
        assert policy.scores(anybody, view(10, 2))["score"].tolist() == [1.0] * 10
        unknown = known(policy, [1.0] * 3, seconds=[0.0, 0.0, 6.0], percentile=5.0)
        assert policy.scores(unknown, view(3, 2))["score"].tolist() == [1.0] * 3

    def test_nothing_is_worth_anything(self) -> None:
        state = known(Oort(staleness=0.0), [0.0, 0.0, 0.0])
        assert Oort(staleness=0.0).scores(state, view(3, 2))["score"].tolist() == [0.0] * 3
        assert all(len(c) == 2 for c in cohorts(Oort(staleness=0.0), state, view(3, 2), 20))

    def test_what_is_told(self) -> None:
        policy = Oort()
        state = known(policy, [7.0, 8.0, 9.0], seconds=[1.0, 2.0, 3.0], last_round=[4, 0, 5])
        told = policy.scores(state, view(3, 1))
        np.testing.assert_array_equal(np.isnan(told["score"]), [False, True, False])
        np.testing.assert_array_equal(told["utility"], [7.0, NAN, 9.0])
        np.testing.assert_array_equal(told["duration_seconds"], [1.0, NAN, 3.0])
        np.testing.assert_array_equal(told["exploration_share"], [NAN, 1.0, NAN])
        fresh = dict(policy.scores(policy.init(Problem(num_clients=4, cohort_size=1)), view(4, 1)))
        np.testing.assert_array_equal(fresh.pop("exploration_share"), [0.25] * 4)
        assert all(np.isnan(values).all() for values in fresh.values())


class TestExploitation:
    def test_members_of_the_cut_off(self) -> None:
        """At rank 2 stands 0.97 (of u); 95 % of it admit 0.93 and not 0.92."""
        policy = Oort(staleness=0.0, clip=1.0)
        state = known(policy, [1.0, 0.97, 0.93, 0.92, 0.001])
        drawn = Counter(k for cohort in cohorts(policy, state, view(5, 2), 400) for k in cohort)
        assert set(drawn) == {0, 1, 2}
        strict = replace(policy, cut_off=1.0)
        assert set(map(tuple, cohorts(strict, state, view(5, 2), 50))) == {(0, 1)}

    def test_probabilities_are_those_of_the_scores(self) -> None:
        policy = Oort(staleness=0.0, clip=1.0, cut_off=0.1)
        utility = [0.0, 1.0, 2.0, 4.0, 10.0]
        state = known(policy, utility)
        # At rank 2 stands 0.4, a tenth of it admits all but the first.
        pairs = Counter(map(tuple, cohorts(policy, state, view(5, 2), 4000)))
        total = sum(utility)
        chance = {
            (i, j): p * q / (total * (total - p)) + p * q / (total * (total - q))
            for i, p in enumerate(utility)
            for j, q in enumerate(utility)
            if 0 < i < j
        }
        assert set(pairs) <= set(chance)
        observed = [pairs[pair] for pair in chance]
        assert stats.chisquare(observed, [4000 * p for p in chance.values()]).pvalue > LEVEL

    def test_the_slow_are_chosen_less(self) -> None:
        policy = Oort(staleness=0.0)
        state = known(policy, [1.0] * 4, seconds=[1.0, 1.0, 1.0, 3.0], percentile=30.0)
        assert {k for cohort in cohorts(policy, state, view(4, 3), 60) for k in cohort} == {0, 1, 2}

    def test_who_was_not_asked_for_long_comes_back(self) -> None:
        policy = Oort()
        state = known(policy, [1.0, 1.0, 1.0], last_round=[90, 1, 90])
        assert set(map(tuple, cohorts(policy, state, view(3, 1, round_=100), 40))) == {(1,)}


class TestExploration:
    @pytest.mark.parametrize("round_", [1, 2, 10, 75, 76, 77, 1000])
    def test_share(self, round_: int) -> None:
        """0.9 decays by 0.98 a round down to 0.2, which it reaches after round 75."""
        policy, clients = Oort(), 1000
        state = known(
            policy, [1.0] * clients, last_round=[k % 2 * max(round_ - 1, 1) for k in range(clients)]
        )
        eps = 0.9
        for _ in range(round_ - 1):
            eps = max(eps * 0.98, 0.2)
        for cohort in cohorts(policy, state, view(clients, 100, round_=round_), 3):
            assert sum(k % 2 == 0 for k in cohort) == math.floor(100 * eps)

    def test_of_a_fraction_of_a_place(self) -> None:
        """2 · 0.2 places: one, in 40 % of rounds (two-sided binomial test)."""
        policy = Oort()
        state = known(policy, [1.0] * 8, last_round=[1, 1, 1, 1, 0, 0, 0, 0])
        drawn = cohorts(policy, state, view(8, 2, round_=500), 1500)
        tried = [sum(k >= 4 for k in cohort) for cohort in drawn]
        assert set(tried) == {0, 1}
        assert stats.binomtest(sum(tried), 1500, 0.4).pvalue > LEVEL

    def test_by_expected_speed(self) -> None:
        policy, seconds = Oort(), [1.0, 2.0, 4.0, 8.0, 1.0]
        problem = Problem(num_clients=5, cohort_size=1, expected_seconds=np.array(seconds))
        state = policy.init(problem)
        answer(state, policy, 1, [4], loss=[1.0])
        explored = Counter(c[0] for c in cohorts(replace(policy, exploration_floor=1.0), state,
                                                 view(5, 1, round_=2), 4000))  # fmt: skip
        speed = [1 / s for s in seconds[:4]]
        expected = [4000 * s / sum(speed) for s in speed]
        assert stats.chisquare([explored[k] for k in range(4)], expected).pvalue > LEVEL

    @pytest.mark.parametrize("round_", [1, 2])
    def test_is_uniform_at_first_and_where_nothing_is_known(self, round_: int) -> None:
        policy = Oort(exploration_floor=1.0)
        expected = np.array([1.0, 2.0, 4.0, 8.0]) if round_ == 1 else None
        state = policy.init(Problem(num_clients=4, cohort_size=1, expected_seconds=expected))
        drawn = Counter(c[0] for c in cohorts(policy, state, view(4, 1, round_=round_), 3000))
        assert stats.chisquare([drawn[k] for k in range(4)]).pvalue > LEVEL

    def test_ends_when_nobody_is_unexplored(self) -> None:
        """All places go to the best: the two who are useless are never drawn to fill up."""
        policy = Oort(staleness=0.0)
        state = known(policy, [9.0, 9.0, 9.0, 0.1, 0.1])
        assert set(map(tuple, cohorts(policy, state, view(5, 3, round_=2), 40))) == {(0, 1, 2)}

    def test_places_that_are_left_are_filled_uniformly(self) -> None:
        """One of ten places is exploited, two clients are unexplored; seven are anybody's."""
        policy = Oort(staleness=0.0, exploration_floor=0.9)
        utility = [100.0] + [1.0] * 19
        state = known(policy, utility, last_round=[1] * 18 + [0, 0])
        drawn = Counter(k for c in cohorts(policy, state, view(20, 10), 600) for k in c)
        assert drawn[0] == drawn[18] == drawn[19] == 600
        others = [drawn[k] for k in range(1, 18)]
        # Seven of 17: the variance of a count is n p (1 - p), and the counts sum to n 7.
        p = 7 / 17
        statistic = sum((x - 600 * p) ** 2 for x in others) / (600 * p * (1 - p)) * 16 / 17
        assert stats.chi2.sf(statistic, 16) > LEVEL


class TestPacer:
    def steps(self, utilities: Sequence[float], pacer: Pacer) -> list[float]:
        """R after every window, if each of its rounds brings so much."""
        state, found = pacer.init(), []
        for window, utility in enumerate(utilities):
            for t in range(1, pacer.window + 1):
                pacer.update(state, utility, round_=window * pacer.window + t)
            found.append(float(state.percentile))
        return found

    def test_by_hand(self) -> None:
        # A and B:  –, (10, 10.9) flat, (10.9, 14) neither, (14, 90) sharp, (90, 99) flat (just),
        # (99, 50) neither, (50, 46) flat, (46, 0) neither, (0, 0) flat, (0, 1) sharp.
        utilities = [10.0, 10.9, 14.0, 90.0, 99.0, 50.0, 46.0, 0.0, 0.0, 1.0]
        assert self.steps(utilities, Pacer()) == [30, 35, 35, 30, 35, 35, 40, 40, 45, 40]

    def test_stays_within_bounds(self) -> None:
        rises = self.steps([1.0] * 5, Pacer(window=2, first_percentile=92.0))
        assert rises == [92, 97, 100, 100, 100]
        falls = self.steps([1.0, 10.0, 100.0, 1e3, 1e4], Pacer(window=3, first_percentile=12.0))
        assert falls == [12, 7, 5, 5, 5]

    def test_one_window_is_not_enough(self) -> None:
        assert self.steps([0.0], Pacer()) == [30]

    def test_hears_the_mean_utility_of_the_exploited(self) -> None:
        policy = Oort(pacer=Pacer(window=3))
        state = policy.init(Problem(num_clients=5, cohort_size=3))
        answer(state, policy, 1, [0, 1, 2], loss=[50.0, 50.0, 50.0])  # nobody was explored
        assert float(state.pacer.this_window) == 0.0
        answer(state, policy, 2, [0, 1, 3], loss=[2.0, 4.0, 100.0])
        assert float(state.pacer.this_window) == 3.0
        answer(state, policy, 3, [0, 1, 2], loss=[6.0, NAN, 8.0], completed=[True, False, True])
        assert float(state.pacer.this_window) == 0.0
        assert float(state.pacer.last_window) == 3.0 + 7.0


class TestFeedback:
    def test_utility_is_of_all_samples_trained_on(self) -> None:
        """Not the mean loss, nor of the last batch: |B| sqrt(mean loss²)."""
        policy = Oort()
        problem = Problem(num_clients=3, cohort_size=2, num_samples=np.array([50, 60, 70]))
        state = policy.init(problem)
        answer(
            state, policy, 1, [0, 2], latency=[3.0, 5.0],
            loss=[1.0, 1.0], root_mean_square_loss=[2.0, 3.0], trained_samples=[20.0, 30.0],
        )  # fmt: skip
        assert state.record.utility.tolist() == [40.0, 0.0, 90.0]
        assert state.record.seconds.tolist() == [3.0, 0.0, 5.0]
        assert state.record.last_round.tolist() == [1, 0, 1]
        assert state.record.times.tolist() == [1, 0, 1]
        answer(state, policy, 4, [2], latency=[2.0], loss=[0.5])
        assert state.record.utility.tolist() == [40.0, 0.0, 35.0]
        assert state.record.last_round.tolist() == [1, 0, 4]
        assert state.record.times.tolist() == [1, 0, 2]

    def test_without_losses_data_count(self) -> None:
        policy = Oort()
        problem = Problem(num_clients=2, cohort_size=2, num_samples=np.array([50, 60]))
        state = policy.init(problem)
        answer(state, policy, 1, [0, 1])
        assert state.record.utility.tolist() == [50.0, 60.0]

    @pytest.mark.parametrize(("clock", "lasted"), [(None, 4.0), (9.0, 9.0)])
    def test_who_does_not_answer_is_explored(self, clock: float | None, lasted: float) -> None:
        policy = Oort()
        expected = np.array([1.0, 1.0, 20.0, 1.0])
        state = policy.init(Problem(num_clients=4, cohort_size=4, expected_seconds=expected))
        answer(
            state, policy, 1, [0, 1, 2, 3], loss=[2.0, NAN, NAN, 6.0],
            completed=[True, False, False, True], latency=[3.0, math.inf, math.inf, 4.0],
            round_seconds=clock,
        )  # fmt: skip
        assert state.record.utility.tolist() == [2.0, 4.0, 4.0, 6.0]
        assert state.record.seconds.tolist() == [3.0, lasted, 20.0, 4.0]
        assert (state.record.last_round == 1).all()

    def test_nobody_answers(self) -> None:
        policy = Oort()
        state = known(policy, [5.0, 6.0, 7.0], seconds=[1.0, 2.0, 0.0], last_round=[1, 1, 0])
        none = [False, False]
        answer(state, policy, 3, [0, 2], completed=none, latency=[math.inf] * 2, loss=[NAN] * 2)
        assert state.record.utility.tolist() == [5.0, 6.0, 7.0]
        assert state.record.seconds.tolist() == [1.0, 2.0, 0.0]
        assert state.record.last_round.tolist() == [3, 1, 3]

    def test_one_that_never_answers_is_not_explored_for_ever(self) -> None:
        """The fastest by its own account, and silent: after the first round it is slow."""
        expected = np.array([0.01] + [1.0] * 19)
        problem = Problem(num_clients=20, cohort_size=4, expected_seconds=expected)
        selector = Selector(Oort(), problem)
        asked = []
        for t in range(1, 121):
            cohort = selector.select().clients
            asked.append(0 in cohort)
            selector.observe(
                Feedback(
                    round=t,
                    clients=cohort,
                    latency_seconds=np.where(cohort == 0, np.inf, 1.0 + cohort / 10),
                    completed=cohort != 0,
                    signals={"loss": np.where(cohort == 0, np.nan, 1.0)},
                    round_seconds=9.0 if 0 in cohort else None,
                )
            )
        assert sum(asked) <= 3

    def test_absurd_losses_do_no_harm(self) -> None:
        policy = Oort()
        state = policy.init(Problem(num_clients=4, cohort_size=4))
        for t in (1, 2):
            answer(state, policy, t, [0, 1, 2, 3], loss=[1e308, -5.0, 1.0, 0.0])
        score = policy.scores(state, view(4, 2, round_=3))["score"]
        assert np.isfinite(score).all()
        assert (score >= 0).all()


class TestBlacklist:
    def test_who_was_asked_too_often_is_left_out(self) -> None:
        policy = Oort(blacklist_rounds=4, blacklist_share=0.5)
        state = known(policy, [9.0, 9.0, 1.0, 1.0], times=[5, 6, 4, 1])
        assert set(map(tuple, cohorts(policy, state, view(4, 2), 30))) == {(2, 3)}
        off = replace(policy, blacklist_rounds=None)
        assert {0, 1} <= {k for c in cohorts(off, state, view(4, 2), 30) for k in c}

    def test_a_full_blacklist_holds_the_most_tired(self) -> None:
        """The authors' code cuts a list at a float there, and crashes."""
        policy = Oort(blacklist_rounds=0)
        times = [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]
        state = known(policy, [1.0] * 10, times=times)
        drawn = {k for c in cohorts(policy, state, view(10, 2), 200) for k in c}
        assert drawn == set(range(3, 10))  # 30 % of ten are three

    def test_yields_where_there_is_nobody_else(self) -> None:
        policy = Oort(blacklist_rounds=4, blacklist_share=0.5)
        state = known(policy, [9.0, 9.0, 1.0, 1.0], times=[5, 6, 4, 1])
        for cohort in cohorts(policy, state, view(4, 3), 30):
            assert {2, 3} < set(cohort)


class TestFaultsOfPublicCode:
    @given(
        last_round=st.lists(st.integers(0, 9), min_size=1, max_size=12),
        count=st.integers(1, 14),
        data=st.data(),
    )
    def test_too_few_or_absent_clients(
        self, last_round: list[int], count: int, data: st.DataObject
    ) -> None:
        """Whoever is explored, away or blacklisted: exactly min(m, available), all available."""
        clients = len(last_round)
        each = st.lists(st.integers(0, 5), min_size=clients, max_size=clients)
        times = data.draw(each)
        state = known(
            Oort(),
            [float(x) for x in data.draw(each)],
            seconds=[float(x) for x in data.draw(each)],
            last_round=last_round,
            times=times,
            percentile=data.draw(st.sampled_from([5.0, 30.0, 100.0])),
        )
        away = [k for k in range(clients) if data.draw(st.booleans())]
        policy = Oort(blacklist_rounds=data.draw(st.none() | st.integers(0, 4)))
        seen = view(clients, count, away=away)
        for cohort in cohorts(policy, state, seen, 3):
            assert len(set(cohort)) == len(cohort) == min(count, clients - len(away))
            assert seen.available[cohort].all()

    @pytest.mark.parametrize("round_", [1, 2, 50])
    def test_index_error_with_nobody_explored(self, round_: int) -> None:
        policy = Oort()
        state = policy.init(Problem(num_clients=6, cohort_size=4))
        assert all(len(c) == 4 for c in cohorts(policy, state, view(6, 4, round_=round_), 5))

    def test_index_error_with_no_more_explored_than_places(self) -> None:
        policy = Oort(exploration=0.0, exploration_floor=0.0)
        state = known(policy, [1.0, 2.0, 3.0])
        assert cohorts(policy, state, view(3, 3), 1) == [[0, 1, 2]]

    def test_an_outlier_does_not_flatten_the_others(self) -> None:
        """Scaled by the largest U before clipping, all but one would score the same."""
        policy = Oort(staleness=0.0)
        utility = [float(u) for u in range(1, 40)] + [1e9]
        score = policy.scores(known(policy, utility), view(40, 2))["score"]
        assert score[38] - score[19] == pytest.approx(19 / (39 - 0.999))
        assert score[39] == score[38] == 1.0

    def test_sizes_of_the_unexplored_are_no_utilities(self) -> None:
        policy = Oort()
        few, many = (
            Problem(num_clients=4, cohort_size=1, num_samples=np.array([10, 10, 10, n]))
            for n in (1, 10**9)
        )
        scores: list[FloatArray] = []
        for problem in (few, many):
            state = policy.init(problem)
            answer(state, policy, 1, [0, 1, 2], loss=[0.5, 1.0, 1.5])
            scores.append(policy.scores(state, view(4, 1, round_=2))["score"])
        np.testing.assert_array_equal(scores[0], scores[1])

    def test_newcomers_are_explored_after_everybody_was(self) -> None:
        selector = Selector(Oort(), Problem(num_clients=4, cohort_size=2))
        for t in range(1, 101):
            cohort = selector.select().clients
            loss = {"loss": np.ones(len(cohort))}
            selector.observe(
                Feedback(round=t, clients=cohort, latency_seconds=np.ones(2), signals=loss)
            )
        selector.join(20)
        seen: set[int] = set()
        for t in range(101, 201):
            cohort = selector.select().clients
            seen |= set(cohort.tolist())
            selector.observe(Feedback(round=t, clients=cohort, latency_seconds=np.ones(2)))
        assert len(seen) > 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"exploration": 1.5}, {"exploration_decay": -0.1}, {"exploration_floor": NAN},
        {"cut_off": 2.0}, {"clip": -1.0}, {"staleness": -0.1}, {"slow_penalty": math.inf},
        {"blacklist_rounds": -1}, {"blacklist_share": 1.1},
    ],
)  # fmt: skip
def test_bad_hyper_parameters(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        from_table(Oort, wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"window": 0}, {"step": 0.0}, {"first_percentile": 101.0}, {"flat": 6.0}, {"flat": -0.1}],
)
def test_bad_pacers(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        from_table(Pacer, wrong)


@pytest.mark.parametrize("check", [c for c in CHECKS if c.point in (2, 3, 7, 8, 11, 12)], ids=str)
def test_keeps_the_contract_with_a_blacklist(check: Check) -> None:
    check(Oort(blacklist_rounds=20, pacer=Pacer(window=3)))

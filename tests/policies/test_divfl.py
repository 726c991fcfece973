"""DivFL by hand and against plain loops: whom it chooses, in which turn, and why."""

from collections.abc import Sequence
from itertools import combinations
from math import dist
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from fedmuster import DivFL, Problem, RoundView, Selector
from fedmuster.core.errors import ConfigError, PolicyError
from fedmuster.core.explaining import Moment
from fedmuster.core.records import BoolArray, Feedback, FloatArray, Selection
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.divfl import UpdateState, facility_location

LEVEL = 1e-3
PLANE = DivFL(sketch_size=2)


def known(policy: DivFL, updates: Sequence[Sequence[float]]) -> UpdateState:
    """The state after an answer of every client."""
    clients = np.arange(len(updates))
    state = policy.init(Problem(num_clients=len(clients), cohort_size=1))
    policy.observe(
        state,
        Selection(round=1, clients=clients),
        Feedback(
            round=1,
            clients=clients,
            latency_seconds=np.ones(len(clients)),
            sketches=np.array(updates, dtype=np.float64),
        ),
    )
    return state


def view(num_clients: int, count: int, *, round_: int = 2, away: Sequence[int] = ()) -> RoundView:
    available = np.ones(num_clients, dtype=np.bool_)
    available[list(away)] = False
    return RoundView(round=round_, cohort_size=count, available=available)


def chosen(policy: DivFL, state: UpdateState, seen: RoundView, seed: int = 0) -> list[int]:
    return [int(k) for k in policy.select(state, seen, stream(seed, POLICY, 1)).clients]


class TestPlainLoops:
    @pytest.mark.parametrize("seed", range(3))
    def test_a_run_of_sixty_rounds(self, seed: int) -> None:
        """With failures, rests and absences; after everybody is known nothing is left to chance."""
        rng = np.random.default_rng(seed)
        num_clients, count, size = 12, 4, 5
        policy = DivFL(sketch_size=size)
        selector = Selector(policy, Problem(num_clients=num_clients, cohort_size=count), seed=seed)
        updates: dict[int, list[float]] = {}
        failed: dict[int, tuple[int, int]] = {}  # in a row, last round
        compared = 0
        for t in range(1, 61):
            available = rng.random(num_clients) < 0.8
            cohort = selector.select(available=available).clients.tolist()
            rests = {k for k, (times, last) in failed.items() if t < last + 2**times}
            ready = [k for k in range(num_clients) if available[k] and k not in rests]
            new = [k for k in ready if k not in updates]
            there = [k for k in ready if k in updates]
            if len(new) <= count <= len(new) + len(there):
                possible = plain_greedy(updates, there, count - len(new))
                assert set(cohort) - set(new) in possible
                compared += 1
            completed = rng.random(len(cohort)) < 0.85
            rows = rng.normal(size=(len(cohort), size)) + np.array(cohort)[:, None] % 3
            selector.observe(
                Feedback(
                    round=t,
                    clients=np.array(cohort, dtype=np.int64),
                    latency_seconds=np.ones(len(cohort)),
                    completed=completed,
                    sketches=rows,
                )
            )
            for row, k in enumerate(cohort):
                if completed[row]:
                    updates[k] = [float(np.float32(value)) for value in rows[row]]
                    failed.pop(k, None)
                else:
                    failed[k] = failed.get(k, (0, 0))[0] + 1, t
        assert compared >= 50

    @pytest.mark.parametrize("seed", range(20))
    def test_greedy_is_within_1_minus_1_over_e_of_the_best(self, seed: int) -> None:
        """Of the improvement on the worst single client."""
        rows = np.random.default_rng(seed).normal(size=(9, 2))
        apart: FloatArray = np.linalg.norm(rows[:, None] - rows, axis=2)
        worst = apart.mean(axis=0).max()

        def gain(cohort: Sequence[int]) -> float:
            return float(worst - apart[:, list(cohort)].min(axis=1).mean())

        cover = facility_location(apart, 3, stream(0, POLICY, seed))
        picks = cover.picks.tolist()
        best = max(gain(cohort) for cohort in combinations(range(9), 3))
        assert gain(picks) >= (1 - np.exp(-1)) * best
        assert gain(picks) == pytest.approx(cover.gains[cover.picks].sum())
        for k in set(range(9)) - set(picks):
            assert cover.gains[k] == pytest.approx(gain([*picks, k]) - gain(picks))


def plain_greedy(
    updates: dict[int, list[float]], candidates: list[int], count: int
) -> list[set[int]]:
    """The client that lowers the sum of all distances to the nearest chosen most, again and again.

    All cohorts are listed that luck may choose between. Everybody whose update is known is to be
    represented, also those that are away or rest.
    """
    possible: list[set[int]] = [set()]
    for _ in range(count):
        further = []
        for taken in possible:
            costs = {
                k: sum(min(dist(g, updates[i]) for i in taken | {k}) for g in updates.values())
                for k in candidates
                if k not in taken
            }
            least = min(costs.values())
            further += [taken | {k} for k, cost in costs.items() if cost <= least + 1e-6]
        possible = further
    return possible


class TestChoice:
    def test_by_hand(self) -> None:
        """Three bundles on a line; the middle of the largest, then one of each other bundle."""
        line = [0, 1, 2, 20, 21, 22, -30]
        state = known(PLANE, [[x, 0] for x in line])
        assert chosen(PLANE, state, view(7, 1)) == [2]
        assert chosen(PLANE, state, view(7, 2)) == [2, 4]
        assert chosen(PLANE, state, view(7, 3)) == [2, 4, 6]
        assert chosen(PLANE, state, view(7, 2, away=[3, 4, 5])) == [2, 6]

    def test_clients_that_are_away_are_represented(self) -> None:
        """The one at 9 stands for the two at 10 that are away."""
        state = known(PLANE, [[0, 0], [0.5, 0], [9, 0], [10, 0], [10, 0]])
        assert 2 in chosen(PLANE, state, view(5, 2, away=[3, 4]))

    def test_those_never_heard_from_come_first_and_uniformly(self) -> None:
        state = PLANE.init(Problem(num_clients=6, cohort_size=2))
        times = np.zeros(6)
        for seed in range(600):
            times[chosen(PLANE, state, view(6, 2), seed)] += 1
        assert chisquare(times).pvalue > LEVEL

    def test_failed_clients_rest_and_fill_up(self) -> None:
        state = known(PLANE, [[0, 0], [1, 0], [2, 0], [3, 0]])
        lost = Feedback(
            round=2,
            clients=np.array([1, 2]),
            latency_seconds=np.full(2, np.inf),
            completed=np.zeros(2, dtype=np.bool_),
        )
        PLANE.observe(state, Selection(round=2, clients=np.array([1, 2])), lost)
        assert chosen(PLANE, state, view(4, 2, round_=3)) == [0, 3]
        assert len(chosen(PLANE, state, view(4, 3, round_=3))) == 3
        assert chosen(PLANE, state, view(4, 1, round_=4)) in ([1], [2])

    def test_without_updates_it_is_random(self) -> None:
        policy = DivFL()
        selector = Selector(policy, Problem(num_clients=5, cohort_size=2))
        for t in range(1, 20):
            clients = selector.select().clients
            answer = Feedback(round=t, clients=clients, latency_seconds=np.ones(2))
            assert selector.observe(answer).accepted == 2
        assert not selector.state.known.any()
        assert selector.state.heard.all()

    def test_stochastic_greedy_looks_at_a_sample(self) -> None:
        rows = np.random.default_rng(0).normal(size=(40, 2)).tolist()
        whole, part = PLANE, DivFL(sketch_size=2, sample=5)
        state = known(whole, rows)
        cohorts = {tuple(chosen(part, state, view(40, 3), seed)) for seed in range(20)}
        assert len(cohorts) > 10
        assert {tuple(chosen(whole, state, view(40, 3), seed)) for seed in range(20)} == {
            tuple(chosen(whole, state, view(40, 3)))
        }

    def test_more_clients_than_can_be_compared_are_drawn(self) -> None:
        rows = np.random.default_rng(0).normal(size=(50, 2)).tolist()
        policy = DivFL(sketch_size=2, compare_up_to=8)
        state = known(policy, rows)
        cohorts = [chosen(policy, state, view(50, 4), seed) for seed in range(30)]
        assert all(len(set(cohort)) == 4 for cohort in cohorts)
        assert len({k for cohort in cohorts for k in cohort}) > 20
        assert len(chosen(policy, state, view(50, 20))) == 20
        assert np.isnan(policy.scores(state, view(50, 4))["gain"]).all()


class TestExplanation:
    def test_turns_and_gains(self) -> None:
        """Costs alone: 15.5, 12.5, 11.5, 12, 34.5; of five clients the mean counts."""
        state = known(PLANE, [[0, 0], [1, 0], [2, 0], [2.5, 0], [10, 0]])
        seen = view(5, 2)
        scores = PLANE.scores(state, seen)
        np.testing.assert_allclose(scores["gain"], [0.4, 0.4, 4.6, 0.1, 1.6])
        np.testing.assert_array_equal(scores["turn"], [np.nan, np.nan, 1, np.nan, 2])
        told = moment(seen.available, chosen(PLANE, state, seen), scores)
        assert "4.6" in told.rule.chosen(told, 2)
        assert "0.1" in told.rule.passed_over(told, 3)
        assert np.argsort(-told.rule.merit(told)).tolist()[:2] == [2, 4]

    def test_of_clients_without_a_gain(self) -> None:
        state = PLANE.init(Problem(num_clients=3, cohort_size=1))
        scores = PLANE.scores(state, view(3, 1))
        told = moment(np.ones(3, dtype=np.bool_), [0], scores)
        assert np.isnan(scores["gain"]).all()
        assert told.rule.chosen(told, 0)
        assert told.rule.passed_over(told, 1)


def moment(available: BoolArray, cohort: list[int], terms: Any) -> Moment:
    return Moment(
        rule=PLANE.rule(),
        meaning=PLANE.terms,
        label="divfl",
        round=2,
        cohort=np.array(cohort),
        available=available,
        terms=terms,
        absent={},
        known=np.ones(len(available), dtype=np.bool_),
    )


def test_updates_of_a_model_that_diverges_are_far_apart_and_no_error() -> None:
    state = known(PLANE, [[0.0, 0.0], [1e300, 0.0], [-1e300, 1e39], [1.0, 0.0]])
    assert np.isfinite(state.sketches).all()
    gain = PLANE.scores(state, view(4, 2))["gain"]
    assert np.isfinite(gain).all()


def test_it_needs_rounds() -> None:
    with pytest.raises(PolicyError, match="divfl"):
        Selector(DivFL(), Problem(num_clients=5, cohort_size=2)).select(count=1)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"sketch_size": 0}, "sketch_size"),
        ({"sample": 0}, "sample"),
        ({"compare_up_to": 0}, "compare_up_to"),
    ],
)
def test_bad_settings(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as error:
        DivFL(**settings)
    assert error.value.key == (key,)

"""Clustered sampling: who is drawn how often, with whom, and what it remembers of updates."""

from collections import Counter
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedmuster import BSFL, ClusteredSampling
from fedmuster.core.errors import ConfigError, DataError, FeedbackError
from fedmuster.core.policy import Policy
from fedmuster.core.records import BoolArray, Feedback, FloatArray, Problem, RoundView, Selection
from fedmuster.core.selector import Selector
from fedmuster.core.state import to_arrays
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.clustered_sampling import DirectionState
from fedmuster.testing import CHECKS, Check, Knowledge

SIMILAR = ClusteredSampling(by="similarity", sketch_size=2)
BOTH = [ClusteredSampling(), SIMILAR]


def state_of(
    policy: ClusteredSampling, sizes: list[int] | None, degrees: list[float] | None = None
) -> DirectionState:
    """With updates that pointed at ``degrees`` in the plane; NaN for the unseen."""
    clients = len(sizes if sizes is not None else degrees or [])
    samples = None if sizes is None else np.array(sizes)
    state = policy.init(Problem(num_clients=clients, cohort_size=1, num_samples=samples))
    if degrees is not None and policy.by == "similarity":
        angle = np.radians(degrees)
        pointed = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        state.directions[:] = np.where(np.isnan(pointed), 0.0, pointed)
    return state


def view_of(clients: int, count: int, available: BoolArray | None = None) -> RoundView:
    everyone = np.ones(clients, dtype=np.bool_)
    return RoundView(
        round=1, cohort_size=count, available=everyone if available is None else available
    )


def cohorts(
    policy: ClusteredSampling, state: DirectionState, view: RoundView, rounds: int
) -> list[Selection]:
    return [policy.select(state, view, stream(seed, POLICY, 1)) for seed in range(rounds)]


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=str)
@pytest.mark.parametrize("knowledge", [Knowledge(), Knowledge(data=False)], ids=["data", "none"])
def test_similarity_keeps_the_contract(check: Check, knowledge: Knowledge) -> None:
    check(ClusteredSampling(by="similarity"), knowledge=knowledge)


class TestInclusion:
    @pytest.mark.parametrize("policy", BOTH, ids=lambda policy: policy.by)
    @pytest.mark.parametrize(
        ("sizes", "count"),
        [
            ([10, 30, 20, 20], 2),
            ([5, 5, 5, 5, 5, 5, 5], 3),
            ([7, 1, 6, 2, 5, 3, 4, 4], 5),
            ([90, 3, 3, 2, 1, 1], 3),
            ([4, 3, 0, 0, 0], 3),
        ],
    )
    def test_is_how_often_clients_are_chosen(
        self, policy: ClusteredSampling, sizes: list[int], count: int
    ) -> None:
        """Against what each selection says, by a two-sided binomial test at level 1e-5 for each
        client, and so of less than 1e-3 for all tests here.
        """
        rounds = 800
        state = state_of(policy, sizes, [100.0 * k for k in range(len(sizes))])
        times: Counter[int] = Counter()
        said: dict[int, float] = {}
        for cohort in cohorts(policy, state, view_of(len(sizes), count), rounds):
            assert cohort.inclusion is not None
            for k, chance in zip(cohort.clients.tolist(), cohort.inclusion.tolist(), strict=True):
                times[k] += 1
                assert said.setdefault(k, chance) == chance
        assert sum(said.values()) == pytest.approx(count)
        for k, chance in said.items():
            assert stats.binomtest(times[k], rounds, min(chance, 1.0)).pvalue > 1e-5

    @pytest.mark.parametrize("policy", BOTH, ids=lambda policy: policy.by)
    def test_is_m_times_the_share_of_data(self, policy: ClusteredSampling) -> None:
        """40 of 160 samples are available to nobody."""
        available = np.array([True, True, False, True, True])
        sizes = [10, 50, 40, 20, 40]
        view, state = view_of(5, 2, available), state_of(policy, sizes, [0, 30, 60, 90, 120])
        for cohort in cohorts(policy, state, view, 20):
            assert cohort.inclusion is not None
            expected = [2 * sizes[k] / 120 for k in cohort.clients]
            assert cohort.inclusion.tolist() == pytest.approx(expected, rel=1e-15)

    @pytest.mark.parametrize("policy", BOTH, ids=lambda policy: policy.by)
    def test_the_mean_over_cohorts_is_that_over_all_data(self, policy: ClusteredSampling) -> None:
        """With weights 1/m, of whatever clients have; |t| < 4.5 fails with probability 7e-6."""
        rng = np.random.default_rng(0)
        sizes, worth = rng.integers(20, 60, 12), rng.normal(size=12)
        state = state_of(policy, sizes.tolist(), rng.uniform(0, 360, 12).tolist())
        means = np.array(
            [worth[c.clients].mean() for c in cohorts(policy, state, view_of(12, 4), 1000)]
        )
        error = means.std(ddof=1) / np.sqrt(len(means))
        assert abs(means.mean() - np.average(worth, weights=sizes)) < 4.5 * error

    def test_larger_than_its_part_is_chosen_always_and_the_rest_by_data(self) -> None:
        """90 of 100 with m = 3: one place, and two for 3, 3, 2, 1, 1."""
        for cohort in cohorts(
            ClusteredSampling(),
            state_of(ClusteredSampling(), [3, 3, 90, 2, 1, 1]),
            view_of(6, 3),
            30,
        ):
            assert cohort.inclusion is not None
            said = dict(zip(cohort.clients.tolist(), cohort.inclusion.tolist(), strict=True))
            assert said == {k: {2: 1.0, 3: 0.4, 4: 0.2, 5: 0.2}.get(k, 0.6) for k in said}

    @given(
        st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any),
        st.integers(1, 12),
        st.sampled_from(BOTH),
        st.integers(0, 2**32),
    )
    def test_as_many_as_wanted_whatever_the_sizes(
        self, sizes: list[int], count: int, policy: ClusteredSampling, seed: int
    ) -> None:
        rng = np.random.default_rng(seed)
        state = state_of(policy, sizes, rng.uniform(0, 360, len(sizes)).tolist())
        available = rng.random(len(sizes)) < 0.8
        view = view_of(len(sizes), count, available)
        chosen = policy.select(state, view, rng)
        assert len(set(chosen.clients.tolist())) == min(count, np.count_nonzero(available))
        assert available[chosen.clients].all()
        left = [size for k, size in enumerate(sizes) if available[k] and k not in chosen.clients]
        if any(size > 0 for size in left):  # then nobody without data was chosen
            assert all(sizes[k] > 0 for k in chosen.clients)


class TestWhoGoesTogether:
    def test_by_size_worked_by_hand(self) -> None:
        """Sizes 40, 30, 20, 20, 10 of 120 and m = 2.

        Poured in twelfths: client 0 has 8 of the first distribution and client 1 has 4 of it and
        2 of the second, of which 2, 3 and 4 have 4, 4 and 2. Pairs: 0 first (8/12), then 1 with
        2/12 · 1/(1 - 4/12) = 1/4, else in proportion 4 : 4 : 2 of the 3/4 left; 1 first (4/12),
        then in proportion 4 : 4 : 2 for sure. So 0 and 1 together 1/6 of the time, and 2 and 3
        never. By a chi-square test at level 1e-4.
        """
        rounds = 4000
        policy = ClusteredSampling()
        chance = {
            (0, 1): Fraction(1, 6),
            (0, 2): Fraction(1, 5),
            (0, 3): Fraction(1, 5),
            (0, 4): Fraction(1, 10),
            (1, 2): Fraction(2, 15),
            (1, 3): Fraction(2, 15),
            (1, 4): Fraction(1, 15),
        }
        found = Counter(
            tuple(c.clients.tolist())
            for c in cohorts(policy, state_of(policy, [40, 30, 20, 20, 10]), view_of(5, 2), rounds)
        )
        assert found.keys() <= chance.keys()
        expected = [float(rounds * share) for share in chance.values()]
        assert stats.chisquare([found[pair] for pair in chance], expected).pvalue > 1e-4

    def test_similar_clients_share_a_distribution(self) -> None:
        """Three bundles of two, as much data in each: one client of each bundle, always."""
        state = state_of(SIMILAR, [1, 2, 1, 2, 1, 2], [0, 120, 240, 3, 123, 243])
        found = {tuple(c.clients.tolist()) for c in cohorts(SIMILAR, state, view_of(6, 3), 200)}
        bundles = [{0, 3}, {1, 4}, {2, 5}]
        assert found == {
            cohort
            for cohort in combinations(range(6), 3)
            if all(len(bundle & set(cohort)) == 1 for bundle in bundles)
        }

    def test_the_unseen_are_a_bundle_of_their_own(self) -> None:
        nan = float("nan")
        state = state_of(SIMILAR, None, [0, nan, 180, 2, nan, 178])
        for cohort in cohorts(SIMILAR, state, view_of(6, 3), 100):
            chosen = set(cohort.clients.tolist())
            assert all(len(pair & chosen) == 1 for pair in ({0, 3}, {1, 4}, {2, 5}))

    def test_weights_vary_less_than_with_independent_draws(self) -> None:
        """Four bundles of a quarter each have a distribution each, and the mean hardly varies."""
        rng = np.random.default_rng(3)
        bundle = np.arange(20) % 4
        degrees = 90.0 * bundle + rng.uniform(-3, 3, 20)
        worth = bundle + rng.normal(scale=0.05, size=20)

        def spread(policy: ClusteredSampling) -> float:
            state = state_of(policy, [9] * 20, degrees.tolist())
            drawn = cohorts(policy, state, view_of(20, 4), 500)
            return float(np.std([worth[c.clients].mean() for c in drawn]))

        independent = float(worth.std() / np.sqrt(4))
        assert spread(SIMILAR) < 0.1 * independent
        assert spread(ClusteredSampling()) > 0.5 * independent  # it knows nothing of bundles


class TestUpdates:
    def test_are_remembered_by_direction(self) -> None:
        selector = Selector(SIMILAR, Problem(num_clients=4, cohort_size=4))
        rows = np.array([[3.0, 4.0], [0.0, 0.0], [1e300, 0.0], [1.0, 1.0]])
        completed = np.array([True, True, True, False])
        observe(selector, rows, completed)
        expected = [[0.6, 0.8], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
        np.testing.assert_allclose(selector.state.directions, expected, rtol=1e-6)
        observe(selector, -rows[::-1], ~completed)  # only of client 3, whose row is the last
        np.testing.assert_allclose(selector.state.directions[3], [-0.6, -0.8], rtol=1e-6)

    def test_change_who_is_chosen_together(self) -> None:
        selector = Selector(SIMILAR, Problem(num_clients=4, cohort_size=4), rest_after=0)
        observe(selector, np.array([[1.0, 0.0], [-1.0, 0.1], [1.0, 0.1], [-1.0, 0.0]]))
        for _ in range(20):
            chosen = selector.select(cohort_size=2).clients.tolist()
            assert len({0, 2} & set(chosen)) == 1
            selector.observe(empty(selector.round))

    def test_are_copied_and_in_any_order(self) -> None:
        """Points 4 and 10 of the contract, with sketches."""
        rows = np.random.default_rng(0).normal(size=(3, 2))
        states = []
        for order in ([0, 1, 2], [2, 0, 1]):
            state = state_of(SIMILAR, None, [float("nan")] * 3)
            lent = rows[order].copy()
            SIMILAR.observe(
                state,
                Selection(round=1, clients=np.arange(3)),
                Feedback(
                    round=1, clients=np.array(order), latency_seconds=np.ones(3), sketches=lent
                ),
            )
            lent[:] = 7.0
            states.append(state.directions)
        np.testing.assert_array_equal(states[0], states[1])

    def test_of_those_who_did_not_complete_are_not_read(self) -> None:
        selector = Selector(SIMILAR, Problem(num_clients=3, cohort_size=3))
        observe(selector, np.full((3, 2), np.nan), np.zeros(3, dtype=np.bool_))
        observe(selector, np.array([[np.nan, 1.0], [0.0, 1.0], [np.inf, 1.0]]))
        assert selector.refused == {"sketch not finite": 2}
        assert selector.state.directions.tolist() == [[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]]

    def test_survive_saving_and_joining(self, tmp_path: Any) -> None:
        selector = Selector(SIMILAR, Problem(num_clients=3, cohort_size=3))
        observe(selector, np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]))
        selector.save(tmp_path / "state.npz")
        again = Selector.restore(tmp_path / "state.npz", SIMILAR)
        np.testing.assert_array_equal(again.state.directions, selector.state.directions)
        again.join(1)
        assert again.state.directions[3].tolist() == [0.0, 0.0]
        np.testing.assert_array_equal(again.state.directions[:3], selector.state.directions)

    def test_of_the_wrong_length_leave_the_round_open(self) -> None:
        selector = Selector(SIMILAR, Problem(num_clients=3, cohort_size=3))
        with pytest.raises(FeedbackError, match=r"3.*5.*3.*2"):
            observe(selector, np.ones((3, 5)))
        assert selector.pending is not None

    def test_are_wanted_by_similarity_only(self) -> None:
        wanted: list[tuple[Policy[Any], int]] = [
            (ClusteredSampling(), 0),
            (ClusteredSampling(by="similarity"), 128),
            (BSFL(), 0),
        ]
        assert [policy.wanted_sketch_size for policy, _ in wanted] == [size for _, size in wanted]
        selector = Selector(ClusteredSampling(), Problem(num_clients=3, cohort_size=3))
        before = {name: array.copy() for name, array in to_arrays(selector.state).items()}
        observe(selector, np.ones((3, 5)))
        for name, array in to_arrays(selector.state).items():
            np.testing.assert_array_equal(array, before[name])


def observe(
    selector: Selector[DirectionState], sketches: FloatArray, completed: BoolArray | None = None
) -> None:
    """A round in which everybody is asked."""
    clients = selector.select().clients
    selector.observe(
        Feedback(
            round=selector.round,
            clients=clients,
            latency_seconds=np.ones(len(clients)),
            completed=completed,
            sketches=sketches,
        )
    )


def empty(round_: int) -> Feedback:
    return Feedback(round=round_, clients=np.empty(0, dtype=np.int64), latency_seconds=np.empty(0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "loss"}, "by = 'loss', expected one of 'size', 'similarity'"),
        ({"sketch_size": 0}, "sketch_size = 0, expected an integer in 1 … 65536"),
    ],
)
def test_bad_hyper_parameters(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ClusteredSampling(**arguments)


def test_too_many_clients_to_compare() -> None:
    problem = Problem(num_clients=5_001, cohort_size=3)
    with pytest.raises(DataError, match=r"5001.*'size'"):
        ClusteredSampling(by="similarity").init(problem)
    assert len(Selector(ClusteredSampling(), problem).select().clients) == 3


def test_more_data_than_can_be_counted() -> None:
    sizes = np.array([2**60, 2**60, 2**60])
    with pytest.raises(DataError, match="num_samples"):
        ClusteredSampling().init(Problem(num_clients=3, cohort_size=2, num_samples=sizes))

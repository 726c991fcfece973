"""Rules about rounds where answers come one by one: by hand, and who needs rounds."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedmuster import POLICIES
from fedmuster.bandits.means import DiscountedMean, utility_radius
from fedmuster.bandits.speed import SpeedEstimator
from fedmuster.core.errors import PolicyError
from fedmuster.core.explaining import Moment
from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, FloatArray, Problem, RoundView, Selection
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.cs_ucb import CSUCBQ
from fedmuster.policies.fedsuv.gaussian_process import GaussianProcess
from fedmuster.policies.fedsuv.policy import FedSUV
from fedmuster.policies.genie import Genie
from fedmuster.policies.oort.policy import Oort
from fedmuster.policies.oort.scores import Pacer
from fedmuster.policies.pause import PAUSE
from fedmuster.policies.rbcs_f import RBCSF
from fedmuster.policies.refl import REFL
from fedmuster.policies.tifl import LatencyTiers, TiFL

NEVER = math.inf


def hear(
    policy: Policy[Any],
    state: Any,
    clients: Sequence[int],
    latency: Sequence[float],
    *,
    heard: int,
    asked: int | None = None,
    features: FloatArray | None = None,
    **signals: Sequence[float],
) -> None:
    """Clients asked in round ``asked`` are heard of in round ``heard``; NEVER is no answer."""
    rows, seconds = np.array(clients), np.array(latency)
    policy.observe(
        state,
        Selection(
            round=heard if asked is None else asked,
            clients=rows,
            features=features,
            tickets=np.arange(len(rows)),
        ),
        Feedback(
            round=heard,
            clients=rows,
            latency_seconds=seconds,
            completed=np.isfinite(seconds),
            signals={name: np.array(values) for name, values in signals.items()},
        ),
    )


def view(round_: int, clients: int, count: int = 1) -> RoundView:
    available = np.ones(clients, dtype=np.bool_)
    return RoundView(round=round_, cohort_size=count, available=available)


class TestNeedRounds:
    @pytest.mark.parametrize(
        "name",
        ["fedcs", "extended-fedcs", "naive-mab-cs", "element-wise-mab-cs", "cucb",
         "clustered-sampling", "divfl", "fedcor", "safa", "all-clients"],
    )  # fmt: skip
    def test_rules_about_whole_cohorts(self, name: str) -> None:
        selector: Selector[Any] = Selector(name, Problem(num_clients=5, cohort_size=2))
        with pytest.raises(PolicyError, match=name):
            selector.select(count=1)
        assert len(selector.select().clients) >= 2

    @pytest.mark.parametrize("kind", [PAUSE, Genie])
    def test_clusters_of_a_cohort(self, kind: type[PAUSE] | type[Genie]) -> None:
        assert kind().rounds_only is None
        assert "0.25" in kind(rho=0.25).rounds_only

    def test_most_others_do_not(self) -> None:
        free = {name for name, kind in POLICIES.items() if kind().rounds_only is None}
        assert free >= {
            "bsfl", "cocs", "cs-ucb", "cs-ucb-q", "fastest", "fedsuv", "genie", "lifted", "linucb",
            "oort", "oracle", "pause", "power-of-choice", "random", "rbcs-f", "refl", "tifl",
        }  # fmt: skip


def test_a_discounted_sample_is_no_heavier_than_one_in_the_round_in_which_it_came() -> None:
    """Asked again in round 5, in which it answered: BSFL looks at its weight in round 4."""
    estimator = SpeedEstimator(estimator=DiscountedMean(discount=0.5), tau_min_seconds=1.0)
    state = estimator.init(2)
    one = Feedback(round=5, clients=np.array([0]), latency_seconds=np.array([2.0]))
    estimator.update(state, one)
    _, radius = estimator.terms(state, np.array([0]), round_=5, cohort_size=1)
    # The total weight of four rounds is (1 - 0.5^4) / 0.5 = 1.875, and that of the sample is 1.
    assert radius == pytest.approx([math.sqrt(2 * math.log(1.875) / 1.0)])
    _, radius = estimator.terms(state, np.array([0]), round_=7, cohort_size=1)
    # Six rounds: (1 - 0.5^6) / 0.5 = 1.96875; the sample of round 5 weighs 0.5 in round 6.
    assert radius == pytest.approx([math.sqrt(2 * math.log(1.96875) / 0.5)])


class TestQueues:
    def test_of_a_client_that_is_chosen_twice_in_a_round(self) -> None:
        """Cohorts of two of four clients, and everybody is owed half of the rounds."""
        policy = CSUCBQ(fairness=1.0)
        state = policy.init(Problem(num_clients=4, cohort_size=2))

        def owed(round_: int) -> list[float]:
            found: list[float] = policy.scores(state, view(round_, 4))["owed_rounds"].tolist()
            return found

        assert owed(7) == [3.0] * 4  # six rounds without anybody
        hear(policy, state, [0], [1.0], heard=7)
        assert owed(7) == [2.5, 3.0, 3.0, 3.0]  # 3.0 and the arrival of round 7, less one
        hear(policy, state, [0], [1.0], heard=7)
        assert owed(7) == [1.5, 3.0, 3.0, 3.0]  # the arrival of round 7 came already
        assert owed(8) == [1.5, 3.5, 3.5, 3.5]
        for _ in range(2):
            hear(policy, state, [0], [1.0], heard=8)
        assert owed(8)[0] == 0.0  # max(0, max(0, 1.5 + 0.5 - 1) - 1), never below 0
        assert owed(9)[0] == 0.0
        assert owed(10)[0] == 0.5

    def test_are_served_for_the_round_in_which_a_client_was_chosen(self) -> None:
        policy = CSUCBQ(fairness=1.0)
        state = policy.init(Problem(num_clients=4, cohort_size=2))
        hear(policy, state, [0], [1.0], asked=3, heard=7)
        # 1.5 after round 3, less one; and three arrivals in rounds 4 to 6.
        assert policy.scores(state, view(7, 4))["owed_rounds"][0] == 2.0


class TestRBCSF:
    def test_took_part_lately_if_its_last_job_has_just_ended(self) -> None:
        """A regression of the latency on (1, took part), with lambda = 1."""
        policy = RBCSF(alpha=0.0)
        state = policy.init(Problem(num_clients=3, cohort_size=2))
        hear(policy, state, [1], [4.0], asked=2, heard=5)  # context (1, 0): theta = (2, 0)
        expected = {t: policy.scores(state, view(t, 3))["expected_seconds"][1] for t in (5, 6, 7)}
        assert expected == {5: 2.0, 6: 2.0, 7: 2.0}
        hear(policy, state, [1], [6.0], asked=6, heard=6)
        # Context (1, 1), as its job ended in round 5: H = [[3, 1], [1, 2]], b = (10, 6).
        np.testing.assert_allclose(state.latency.moment[1], [10.0, 6.0])
        np.testing.assert_allclose(state.latency.inverse[1], np.array([[2, -1], [-1, 3]]) / 5)
        # theta = (14/5, 8/5); it counts as having taken part in rounds 6 and 7.
        expected = {t: policy.scores(state, view(t, 3))["expected_seconds"][1] for t in (6, 7, 8)}
        assert expected == pytest.approx({6: 22 / 5, 7: 22 / 5, 8: 14 / 5})

    def test_learns_in_the_context_in_which_it_was_chosen(self) -> None:
        policy = RBCSF()
        state = policy.init(Problem(num_clients=3, cohort_size=2, num_features=1))
        hear(policy, state, [1], [4.0], heard=1, features=np.array([[0.5]]))
        hear(policy, state, [1], [6.0], asked=2, heard=9, features=np.array([[0.25]]))
        np.testing.assert_allclose(state.latency.moment[1], [4 * 0.5 + 6 * 0.25, 6.0])
        assert state.last_round[1] == 9


class TestOort:
    def test_a_round_counts_once_with_the_mean_of_its_exploited_clients(self) -> None:
        policy = Oort(pacer=Pacer(window=2, first_percentile=30.0))
        state = policy.init(Problem(num_clients=6, cohort_size=2))
        pacer = state.pacer

        def windows() -> tuple[float, float, float]:
            return float(pacer.last_window), float(pacer.this_window), float(pacer.percentile)

        hear(policy, state, [0], [1.0], heard=1, loss=[50.0])
        hear(policy, state, [1], [1.0], heard=1, loss=[30.0])
        hear(policy, state, [0], [1.0], heard=2, loss=[4.0])
        assert windows() == (0.0, 0.0, 30.0)  # nobody was exploited in round 1
        hear(policy, state, [1], [1.0], asked=1, heard=2, loss=[8.0])
        hear(policy, state, [2], [1.0], heard=2, loss=[99.0])  # explored
        assert windows() == (0.0, 0.0, 30.0)  # round 2 is not over
        hear(policy, state, [0], [1.0], heard=3, loss=[2.0])
        assert windows() == (6.0, 0.0, 30.0)  # (4 + 8) / 2, and the first window is over
        hear(policy, state, [1], [1.0], heard=3, loss=[4.0])
        hear(policy, state, [0], [1.0], heard=4, loss=[3.0])
        assert windows() == (6.0, 3.0, 30.0)
        hear(policy, state, [1], [1.0], heard=4, loss=[3.4])
        hear(policy, state, [3], [1.0], heard=5, loss=[70.0])
        assert windows() == (6.2, 0.0, 35.0)  # 3 + 3.2 is within 10 % of 6
        hear(policy, state, [4], [1.0], heard=5, loss=[70.0])
        assert windows() == (6.2, 0.0, 35.0)
        hear(policy, state, [4], [1.0], heard=10, loss=[70.0])
        assert windows() == (0.0, 0.0, 35.0)  # nothing for long: one window, neither flat nor sharp

    def test_a_silent_client_is_as_useful_and_as_slow_as_those_heard_of_lately(self) -> None:
        policy = Oort()
        state = policy.init(Problem(num_clients=6, cohort_size=2))
        record = state.record
        hear(policy, state, [0], [NEVER], heard=1)
        assert (record.utility[0], record.seconds[0], record.last_round[0]) == (0.0, 0.0, 1)
        hear(policy, state, [1], [9.0], heard=2, loss=[100.0])
        hear(policy, state, [2], [3.0], heard=3, loss=[8.0])
        hear(policy, state, [3], [5.0], heard=4, loss=[4.0])
        hear(policy, state, [4], [NEVER], heard=4)
        assert (record.utility[4], record.seconds[4]) == (6.0, 5.0)  # of clients 2 and 3
        hear(policy, state, [1], [NEVER], asked=2, heard=4)
        # Of clients 2, 3 and 4, and no faster than it was.
        assert (record.utility[1], record.seconds[1]) == (6.0, 9.0)
        hear(policy, state, [3], [NEVER], heard=4)
        # Of clients 1, 2 and 4, not of itself.
        assert (record.utility[3], record.seconds[3]) == (20 / 3, 9.0)
        hear(policy, state, [0, 5], [NEVER, 2.0], heard=6, loss=[math.nan, 7.0])
        assert (record.utility[0], record.seconds[0]) == (7.0, 2.0)  # nobody else since round 5
        assert record.times.tolist() == [2, 2, 1, 2, 1, 1]


class TestREFL:
    def test_the_window_is_how_long_jobs_take(self) -> None:
        """m = 2 and a memory of 0.25: two answers keep a quarter of the past, one keeps half."""
        policy = REFL(memory=0.25)
        state = policy.init(Problem(num_clients=4, cohort_size=2))
        hear(policy, state, [0], [8.0], heard=1)
        assert float(state.window_seconds) == 8.0
        hear(policy, state, [1], [4.0], heard=1)
        assert float(state.window_seconds) == 6.0
        hear(policy, state, [2, 3], [3.0, 5.0], heard=2)
        assert float(state.window_seconds) == 0.25 * 6.0 + 0.75 * 4.0
        hear(policy, state, [0], [NEVER], heard=3)
        assert float(state.window_seconds) == 4.5

    def test_a_client_rests_from_the_round_in_which_it_answered(self) -> None:
        policy = REFL(rest_rounds=5)
        state = policy.init(Problem(num_clients=3, cohort_size=2))
        hear(policy, state, [0], [8.0], asked=3, heard=9)
        rested = [policy.scores(state, view(t, 3))["rested"][0] for t in (9, 13, 14)]
        assert rested == [0.0, 0.0, 1.0]


class TestTiFL:
    def test_every_mth_answer_costs_a_credit_and_every_interval_is_looked_at_once(self) -> None:
        """m = 2 and I = 2: every second answer costs a credit, every fourth brings a look."""
        policy = TiFL(num_tiers=2, interval=2, credits=(3, 3), profiled_share=1.0)
        state = policy.init(Problem(num_clients=4, cohort_size=2))
        odds, round_ = state.odds, 2
        for client in range(4):
            hear(policy, state, [client], [1.0 + client], heard=1, accuracy_before=[0.5])
        tiers = LatencyTiers(num_tiers=2)
        assert tiers.tier(state.tiers, slice(None)).tolist() == [0, 0, 1, 1]
        assert odds.drawn.tolist() == [0, 0]  # profiling is free
        story: list[tuple[int, float, list[int]]] = [
            (0, 0.6, [0, 0]), (0, 0.6, [1, 0]), (2, 0.6, [1, 0]), (3, 0.7, [1, 1]),
        ]  # fmt: skip
        for client, accuracy, drawn in story:
            assert np.isinf(odds.accuracy).all()
            hear(policy, state, [client], [1.0 + client], heard=round_, accuracy_before=[accuracy])
            assert odds.drawn.tolist() == drawn
        # Eight answers: the first look since clients are profiled.
        assert odds.accuracy.tolist() == pytest.approx([0.55, 0.65])
        assert odds.probability.tolist() == [0.5, 0.5]
        for client in (2, 2, 3):
            hear(policy, state, [client], [1.0 + client], heard=round_, accuracy_before=[0.6])
        assert odds.drawn.tolist() == [1, 2]
        assert odds.accuracy.tolist() == pytest.approx([0.55, 0.65])  # not before the twelfth
        hear(policy, state, [3], [4.0], heard=round_, accuracy_before=[0.6])
        # Tier 1 has fallen from 0.65 to 0.6 and is still the better one: 1 share of 3.
        assert odds.accuracy.tolist() == pytest.approx([0.55, 0.6])
        assert odds.probability.tolist() == pytest.approx([2 / 3, 1 / 3])
        assert odds.drawn.tolist() == [1, 3]
        assert TiFL(num_tiers=2, credits=(3, 3))._odds.chances(odds).tolist() == [1.0, 0.0]

    def test_answers_that_come_together_count_each(self) -> None:
        policy = TiFL(num_tiers=1, interval=3)
        state = policy.init(Problem(num_clients=6, cohort_size=2))
        hear(policy, state, range(6), [1.0] * 6, heard=1)
        hear(policy, state, range(5), [1.0] * 5, heard=2)
        assert state.odds.drawn.tolist() == [2]  # from 6 to 11: with the eighth and the tenth


class TestFedSUV:
    policy = FedSUV(delta=0.5, gp=GaussianProcess(fit=False, signal=1.0, noise=0.25))

    def test_one_client_in_m_is_the_least_known(self) -> None:
        """m = 3: the first choice, and then every choice after a third client was heard of."""
        policy, clients = self.policy, 6
        state = policy.init(Problem(num_clients=clients, cohort_size=3))
        state.boxes.utility_low[:] = [0.0, 5.0, 0.0, 0.0, 0.0, 0.0]
        state.boxes.utility_high[:] = [4.0, 6.0, 3.0, 2.0, 1.0, 0.5]
        state.boxes.validity_low[:], state.boxes.validity_high[:] = 0.0, 1.0
        chosen = {}
        for heard in range(8):
            state.validity.count[0] = heard
            chosen[heard] = [
                policy.select(state, view(2, clients, count), stream(0, POLICY, 2)).clients.tolist()
                for count in (1, 2, 3)
            ]
        # Client 0 has the largest diagonal, client 1 the highest upper utility.
        explored, exploited = [[0], [0, 1], [0, 1, 2]], [[1], [0, 1], [0, 1, 2]]
        assert [found == explored for found in chosen.values()] == [
            True, False, False, True, False, False, True, False,
        ]  # fmt: skip
        assert all(found in (explored, exploited) for found in chosen.values())

    def test_a_client_that_was_chosen_for_its_utility_is_not_said_to_be_the_least_known(
        self,
    ) -> None:
        terms = {
            "validity_low": np.zeros(3),
            "validity_high": np.ones(3),
            "utility_low": np.array([0.0, 5.0, 0.0]),
            "utility_high": np.array([4.0, 6.0, 3.0]),
            "diagonal": np.array([4.1, 1.4, 3.2]),
            "left_by": np.zeros(3),
        }
        everyone = np.ones(3, dtype=np.bool_)
        for chosen, least_known in ((0, True), (1, False)):
            moment = Moment(
                rule=self.policy.rule(),
                meaning={},
                label="fedsuv",
                round=9,
                cohort=np.array([chosen]),
                available=everyone,
                terms=terms,
                absent={},
                known=everyone,
            )
            assert (moment.rule.worth(moment) is not None) == least_known

    def test_every_choice_has_a_least_known_where_only_budgets_limit_a_cohort(self) -> None:
        state = self.policy.init(Problem(num_clients=6, cohort_size=6))
        state.boxes.utility_low[:], state.boxes.utility_high[:] = 0.0, np.arange(6.0)
        state.boxes.utility_low[4:] = 3.5
        state.boxes.validity_low[:], state.boxes.validity_high[:] = 0.0, 1.0
        for heard in range(5):
            state.validity.count[0] = heard
            chosen = self.policy.select(state, view(2, 6, 1), stream(0, POLICY, 2)).clients
            assert chosen.tolist() == [3]  # not 5, of the highest upper utility

    def test_bounds_hold_after_each_client_heard_of(self) -> None:
        """Without attributes: after one answer u, mean = u / 1.25 and variance = 0.25 / 1.25."""
        policy, clients = self.policy, 3
        state = policy.init(Problem(num_clients=clients, cohort_size=2))
        hear(policy, state, [0], [1.0], heard=4, loss=[1.0])
        radius = utility_radius(clients, 2, 0.5) * math.sqrt(0.2)
        assert state.boxes.utility_high[0] == pytest.approx(0.8 + radius)
        hear(policy, state, [1], [1.0], asked=1, heard=4, loss=[0.5])
        hear(policy, state, [2], [NEVER], heard=4)
        radius = utility_radius(clients, 3, 0.5) * math.sqrt(0.2)
        assert state.boxes.utility_high[1] == pytest.approx(0.4 + radius)
        # Of the silent one only the prior is known: its box is as narrow as it was at first.
        assert state.boxes.utility_high[2] == pytest.approx(utility_radius(clients, 2, 0.5))

    def test_one_absurd_value_does_not_make_all_others_look_alike(self) -> None:
        state = self.policy.init(Problem(num_clients=4, cohort_size=2))
        hear(self.policy, state, [0], [1.0], heard=1, loss=[3.0])
        hear(self.policy, state, [1], [1.0], heard=1, loss=[1e9])
        assert state.boxes.utility_scale == 3.0
        assert state.utility.tally.mean[1] == 30.0  # ten scales
        hear(self.policy, state, [0], [1.0], heard=1, loss=[5.0])
        # Of 5 and 30: the new value of client 0, not its mean of 4.
        assert state.boxes.utility_scale == 5.0

    def test_clients_leave_in_the_round_in_which_it_is_known(self) -> None:
        policy = FedSUV(delta=0.99, rho=1.0, gp=GaussianProcess(fit=False, noise=0.01))
        state = policy.init(Problem(num_clients=3, cohort_size=1))
        for _ in range(400):
            hear(policy, state, [0], [1.0], asked=2, heard=6, loss=[1.0])
            hear(policy, state, [1], [NEVER], asked=2, heard=6)
        assert state.candidates.left_round[1] == 7

"""Pisces by hand: scores, exploration, failures, outliers and credits; its index; whole runs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare
from sklearn.cluster import DBSCAN

from fedmuster.core.errors import ConfigError
from fedmuster.core.explaining import Moment
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.core.words import number, percent
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Federation, Simulation
from fedmuster.federation.triggers import Pace
from fedmuster.policies.pisces.outliers import noise
from fedmuster.policies.pisces.policy import Pisces, PiscesState
from fedmuster.testing import CHECKS
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import Logistic
from fedmuster.training.training import Training
from fedmuster.worlds import LatencyWorld

LEVEL = 1e-3
TRAINING = Training(model=Logistic(), local=LocalSGD(epochs=1), evaluate_every=50)


def started(policy: Pisces, num_clients: int, *, cohort_size: int = 4, **told: Any) -> PiscesState:
    return policy.init(Problem(num_clients=num_clients, cohort_size=cohort_size, **told))


def answer(
    policy: Pisces,
    state: PiscesState,
    clients: Sequence[int],
    *,
    completed: Sequence[bool] | None = None,
    **signals: Sequence[float],
) -> None:
    rows = np.array(clients)
    policy.observe(
        state,
        Selection(round=1, clients=rows),
        Feedback(
            round=1,
            clients=rows,
            latency_seconds=np.ones(len(rows)),
            completed=None if completed is None else np.array(completed),
            signals={name: np.array(values) for name, values in signals.items()},
        ),
    )


def view(num_clients: int, count: int, *, away: Sequence[int] = ()) -> RoundView:
    available = np.ones(num_clients, dtype=np.bool_)
    available[list(away)] = False
    return RoundView(round=1, cohort_size=count, available=available)


def chosen(policy: Pisces, state: PiscesState, seen: RoundView, seed: int = 0) -> list[int]:
    selection = policy.select(state, seen, stream(seed, POLICY, 1))
    return [int(client) for client in selection.clients]


def column(policy: Pisces, state: PiscesState, name: str) -> list[float]:
    scores = policy.scores(state, view(len(state.tried), 1))
    return [float(value) for value in scores[name]]


class TestScores:
    def test_by_hand(self) -> None:
        """n · rms loss / sqrt(mean staleness + 1)."""
        policy = Pisces()
        state = started(policy, 3, num_samples=np.array([10, 20, 30]))
        answer(policy, state, [0, 1], root_mean_square_loss=[0.5, 2.0], staleness=[3.0, 8.0])
        score = column(policy, state, "score")
        assert score[:2] == pytest.approx([10 * 0.5 / 2, 20 * 2.0 / 3])
        assert np.isnan(score[2])
        answer(policy, state, [1], root_mean_square_loss=[1.0], staleness=[0.0])
        assert column(policy, state, "score")[1] == pytest.approx(20 / 5**0.5)
        assert column(policy, state, "mean_staleness")[:2] == [3.0, 4.0]

    def test_the_last_five_stalenesses_count(self) -> None:
        policy = Pisces()
        state = started(policy, 1)
        for age in (100.0, 1.0, 2.0, 3.0, 4.0, 5.0):
            answer(policy, state, [0], loss=[6.0], staleness=[age])
        assert column(policy, state, "score") == pytest.approx([6.0 / 2])
        few = Pisces(window=2, staleness_power=1.0)
        state = started(few, 1)
        for age in (100.0, 1.0, 2.0):
            answer(few, state, [0], loss=[6.0], staleness=[age])
        assert column(few, state, "score") == pytest.approx([6.0 / 2.5])

    def test_in_rounds_nothing_is_stale(self) -> None:
        policy = Pisces()
        state = started(policy, 2)
        answer(policy, state, [0, 1], loss=[1.0, 3.0])
        assert column(policy, state, "score") == [1.0, 3.0]

    def test_trained_samples_and_the_rms_loss_count_first(self) -> None:
        policy = Pisces()
        state = started(policy, 1, num_samples=np.array([10]))
        answer(policy, state, [0], loss=[7.0], root_mean_square_loss=[2.0], trained_samples=[4.0])
        assert column(policy, state, "score") == [8.0]

    def test_without_losses_the_samples_count(self) -> None:
        policy = Pisces()
        state = started(policy, 3, num_samples=np.array([10, 20, 30]))
        answer(policy, state, [0, 1, 2], staleness=[0.0, 3.0, 3.0])
        assert column(policy, state, "score") == [10.0, 10.0, 15.0]
        assert chosen(replace(policy, exploration=0.0), state, view(3, 1)) == [2]

    def test_the_published_power_may_be_another(self) -> None:
        policy = Pisces(staleness_power=0.0)
        state = started(policy, 1)
        answer(policy, state, [0], loss=[2.0], staleness=[50.0])
        assert column(policy, state, "score") == [2.0]


class TestExploration:
    def test_eps_falls_with_each_lesson_down_to_its_floor(self) -> None:
        policy = Pisces()
        state = started(policy, 2)
        for lesson in range(60):
            assert column(policy, state, "exploration")[0] == pytest.approx(
                0.9 * 0.98**lesson if lesson <= 54 else 0.3
            )
            answer(policy, state, [lesson % 2], loss=[1.0])
        answer(policy, state, [])
        assert int(state.lessons) == 60

    def test_binomial_of_the_slots_are_explored(self) -> None:
        policy = Pisces(exploration=0.4, exploration_decay=1.0)
        state = started(policy, 20)
        answer(policy, state, range(10), loss=range(1, 11))
        explored = np.zeros(4)
        for seed in range(1_000):
            clients = chosen(policy, state, view(20, 3), seed)
            new = sum(client >= 10 for client in clients)
            explored[new] += 1
            assert clients[: 3 - new] == list(range(10 - (3 - new), 10))  # the highest scores
        chances = np.array([0.6**3, 3 * 0.4 * 0.6**2, 3 * 0.4**2 * 0.6, 0.4**3])
        assert chisquare(explored, 1_000 * chances).pvalue > LEVEL

    def test_the_untried_are_drawn_uniformly(self) -> None:
        policy = Pisces(exploration=1.0)
        state = started(policy, 12)
        answer(policy, state, [0, 5], loss=[1.0, 1.0])
        policy, times = replace(policy, exploration_decay=1.0), np.zeros(12)
        for seed in range(1_500):
            times[chosen(policy, state, view(12, 2, away=[3]), seed)] += 1
        assert times[[0, 3, 5]].tolist() == [0, 0, 0]
        assert chisquare(times[[1, 2, 4, 6, 7, 8, 9, 10, 11]]).pvalue > LEVEL

    def test_slots_that_one_kind_cannot_fill_go_to_the_other(self) -> None:
        only_new = Pisces(exploration=1.0, exploration_decay=1.0)
        only_best = Pisces(exploration=0.0, exploration_floor=0.0)
        for policy in (only_new, only_best):
            state = started(policy, 6)
            answer(policy, state, [0, 1, 2], loss=[1.0, 3.0, 2.0])
            new, best = {3, 4, 5}, {0, 1, 2}
            assert set(chosen(policy, state, view(6, 3))) == (new if policy is only_new else best)
            five = set(chosen(policy, state, view(6, 5)))
            assert len(five) == 5
            assert five > (new if policy is only_new else best)
            assert five >= ({1, 2} if policy is only_new else set())
            assert chosen(policy, state, view(6, 9)) == list(range(6))
            assert chosen(policy, state, view(6, 2, away=range(6))) == []


class TestFailures:
    def test_each_failure_costs_half(self) -> None:
        policy = Pisces()
        state = started(policy, 2)
        answer(policy, state, [0, 1], loss=[8.0, 1.0])
        for left in (4.0, 2.0, 1.0):
            answer(policy, state, [0], completed=[False], loss=[np.nan])
            assert column(policy, state, "utility") == [left, 1.0]
        answer(policy, state, [0], loss=[6.0])
        assert column(policy, state, "utility") == [6.0, 1.0]

    def test_a_client_that_never_answered_counts_as_half_the_usual(self) -> None:
        """The usual is 4 after the first answers, then 0.9 · 4 + 0.1 · 9."""
        policy = Pisces()
        state = started(policy, 5)
        answer(policy, state, [0, 1, 2], completed=[True, True, False], loss=[2.0, 6.0, np.nan])
        assert column(policy, state, "utility")[2] == 2.0
        answer(policy, state, [3], loss=[9.0])
        answer(policy, state, [4], completed=[False], loss=[np.nan])
        assert column(policy, state, "utility")[4] == pytest.approx((0.9 * 4 + 0.1 * 9) / 2)
        answer(policy, state, [4], completed=[False], loss=[np.nan])
        assert column(policy, state, "utility")[4] == pytest.approx((0.9 * 4 + 0.1 * 9) / 4)

    def test_before_anybody_has_answered_samples_stand_for_it(self) -> None:
        policy = Pisces()
        state = started(policy, 2, num_samples=np.array([10, 30]))
        answer(policy, state, [1], completed=[False], loss=[np.nan])
        assert column(policy, state, "utility")[1] == 15.0
        assert state.tried.tolist() == [False, True]


def dbscan(values: Sequence[float], radius: float, neighbours: int) -> list[bool]:
    labels = DBSCAN(eps=radius, min_samples=neighbours).fit(np.reshape(values, (-1, 1))).labels_
    return [bool(label == -1) for label in labels]


class TestOutliers:
    def test_noise_is_that_of_scikit_learn(self) -> None:
        found = 0
        for seed in range(300):
            rng = np.random.default_rng(seed)
            size = int(rng.integers(1, 60))
            values = rng.lognormal(0.0, 1.0, size) if seed % 2 else rng.integers(0, 80, size) / 8
            radius = float(rng.choice([0.125, 0.5, 1.0]))
            neighbours = int(rng.integers(1, 8))
            ours = noise(values, radius=radius, neighbours=neighbours).tolist()
            assert ours == dbscan(values.tolist(), radius, neighbours)
            found += 0 < sum(ours) < size
        assert found > 100

    def test_credits_by_hand(self) -> None:
        """m = 4: from four clients on; a cluster has 2 neighbours within 0.5.

        Losses 1.0, 1.2, 1.4 and 5.0: client 3 is alone. A second client at 5.2 would join it.
        """
        policy = Pisces(robust=True, exploration=0.0, exploration_floor=0.0)
        state = started(policy, 6)
        answer(policy, state, [0, 1], loss=[1.0, 1.2])
        answer(policy, state, [3], loss=[5.0])
        assert state.credits.tolist() == [5] * 6  # too few clients are known
        answer(policy, state, [2], loss=[1.4])
        assert state.credits.tolist() == [5] * 6  # the outlier did not answer now
        for left in (4, 3, 2, 1):
            answer(policy, state, [3], loss=[5.0])
            assert state.credits.tolist() == [5, 5, 5, left, 5, 5]
            assert chosen(policy, state, view(6, 1)) == [3]
        assert column(policy, state, "credits")[3] == 1.0
        answer(policy, state, [3], loss=[5.0])
        assert state.credits[3] == 0
        assert chosen(policy, state, view(6, 1)) == [2]
        assert chosen(policy, state, view(6, 6)) == [0, 1, 2, 4, 5]
        answer(policy, state, [3], loss=[1.0])  # a job that was still open
        assert state.credits[3] == 0

    def test_a_second_client_makes_a_cluster(self) -> None:
        policy = Pisces(robust=True)
        state = started(policy, 6)
        answer(policy, state, [0, 1, 2, 3, 4], loss=[1.0, 1.2, 1.4, 5.0, 5.2])
        assert state.credits.tolist() == [5] * 6
        answer(policy, state, [4], loss=[1.1])
        answer(policy, state, [3], loss=[5.1])  # which leaves it alone
        assert state.credits.tolist() == [5, 5, 5, 4, 5, 5]

    def test_losses_that_are_all_far_apart_are_nobodys_fault(self) -> None:
        policy = Pisces(robust=True)
        state = started(policy, 6)
        answer(policy, state, range(6), loss=[1.0, 3.0, 5.0, 7.0, 9.0, 11.0])
        assert state.credits.tolist() == [5] * 6

    def test_old_answers_are_forgotten(self) -> None:
        """After 5 m answers of others, the cluster of the first is gone."""
        policy = Pisces(robust=True, outlier_rounds=1)
        state = started(policy, 9)
        answer(policy, state, [0, 1, 2, 3], loss=[5.0, 5.1, 5.2, 5.3])
        answer(policy, state, [4, 5, 6], loss=[1.0, 1.1, 1.2])
        assert state.credits.tolist() == [5] * 9
        answer(policy, state, [0], loss=[5.0])  # the last four: 1.0, 1.1, 1.2 and 5.0
        assert state.credits.tolist() == [4] + [5] * 8

    def test_without_robustness_nobody_is_excluded(self) -> None:
        policy = Pisces()
        state = started(policy, 6)
        for _ in range(9):
            answer(policy, state, [0, 1, 2, 3], loss=[1.0, 1.2, 1.4, 5.0])
        assert state.credits.tolist() == [5] * 6
        assert (policy.cohort_rule, replace(policy, robust=True).cohort_rule) == (
            "exact",
            "at most",
        )

    @pytest.mark.parametrize("check", [c for c in CHECKS if c.point not in (14, 17)], ids=str)
    def test_it_keeps_the_contract(self, check: Any) -> None:
        """But for points 14 and 17, where two clients have more to learn: they are outliers."""
        check(Pisces(robust=True))


class TestIndex:
    def test_it_is_that_of_all_scores_at_any_time(self) -> None:
        """Answers one by one in any order, failures, clients that join, saving and restoring."""
        policy = Pisces(robust=True)
        rng = np.random.default_rng(4)
        selector = Selector(policy, Problem(num_clients=40, cohort_size=6), seed=3)
        tickets: list[tuple[int, int]] = []
        for turn in range(300):
            count = 6 - len(tickets)
            available = rng.random(selector.problem.num_clients) < 0.7
            if count > 0 and available.any():
                asked = selector.select(count=count, available=available)
                assert asked.tickets is not None
                tickets += zip(asked.tickets.tolist(), asked.clients.tolist(), strict=True)
            if tickets:
                ticket, client = tickets.pop(int(rng.integers(len(tickets))))
                if rng.random() < 0.2:
                    selector.give_up([ticket])
                else:
                    selector.observe(_answer_to(ticket, client, rng))
                _require_index(policy, selector.state)
            if turn == 150:
                selector.join(20)
                joined = selector.select(count=1)
                assert joined.tickets is not None
                selector.give_up(joined.tickets)
                _require_index(policy, selector.state)
            if turn % 50 == 49:
                again = Selector.from_bytes(selector.to_bytes(), policy, source="memory")
                _require_index(policy, again.state)
        assert selector.state.tried[40:].any()

    def test_who_has_joined_can_be_chosen_before_anything_is_learned(self) -> None:
        policy = Pisces(exploration=1.0, exploration_decay=1.0)
        problem = Problem(num_clients=3, cohort_size=3)
        selector = Selector(policy, problem, seed=1, newcomer_quota=1.0)
        everyone = selector.select(count=3)
        assert everyone.tickets is not None
        selector.give_up(everyone.tickets)
        newcomers = selector.join(2)
        assert selector.select(count=2).clients.tolist() == newcomers.tolist()
        only_best = Pisces(exploration=0.0, exploration_floor=0.0)
        state = started(only_best, 3)
        answer(only_best, state, [0, 1], loss=[1.0, 2.0])
        state.indexed[...] = 0  # as after clients have joined
        assert chosen(only_best, state, view(3, 1)) == [1]
        assert int(state.indexed) == 0


def _answer_to(ticket: int, client: int, rng: np.random.Generator) -> Feedback:
    return Feedback(
        tickets=np.array([ticket]),
        clients=np.array([client]),
        latency_seconds=np.array([1.0]),
        signals={"loss": rng.lognormal(size=1), "staleness": rng.integers(0, 9, 1).astype(float)},
    )


def _require_index(policy: Pisces, state: PiscesState) -> None:
    clients = len(state.tried)
    score = np.array(column(policy, state, "score"))
    assert np.array_equal(np.nan_to_num(score, nan=-np.inf), state.best.values[:clients])
    assert np.array_equal(state.tried, state.untried.values[:clients] == -np.inf)


class TestRuns:
    WORLD = LatencyWorld(num_clients=60, cohort_size=8, deadline_seconds=20.0, dropout=0.05)

    def played(self, policy: Pisces, **more: Any) -> Simulation[Any]:
        federation = Federation(concurrency=8, refill=1, trigger=Pace())
        simulation = Simulation(policy, self.WORLD, seed=1, federation=federation, **more)
        for _ in range(60):
            simulation.step()
        simulation.close()
        return simulation

    def test_it_hears_losses_and_stalenesses(self) -> None:
        state = self.played(Pisces(), training=TRAINING).selector.state
        heard = state.answers > 0
        assert np.count_nonzero(heard) > 20
        assert (state.utility[heard] > 0).all()
        assert len(np.unique(state.stalenesses)) > 3

    def test_it_works_without_losses(self) -> None:
        state = self.played(Pisces(robust=True)).selector.state
        heard = state.answers > 0
        assert np.count_nonzero(heard) > 20
        assert set(state.utility[heard]) <= {2.0**-n for n in range(60)}  # 1, halved by failures
        assert (state.credits == 5).all()

    def test_a_private_run_has_no_losses(self, tmp_path: Path) -> None:
        path = tmp_path / "spec.toml"
        path.write_text(
            """
            rounds = 12
            seeds = [1]
            [world]
            name = "latency"
            num_clients = 30
            cohort_size = 5
            [training]
            model = "logistic"
            evaluate_every = 100
            [privacy]
            epsilon = 40.0
            schedule = { name = "uniform", participations = 10 }
            [[policy]]
            name = "pisces"
            """
        )
        simulation = Experiment.load(path).simulation(tmp_path, run="x")
        assert simulation.settings.trigger == Pace()
        for _ in range(12):
            simulation.step()
        simulation.close()
        state, samples = simulation.selector.state, simulation.selector.problem.num_samples
        assert samples is not None
        heard = state.answers > 0
        assert heard.any()
        assert state.utility[heard].tolist() == samples[heard].tolist()


def test_every_client_is_explained() -> None:
    """By its score if it was tried; the others alike; an excluded client in its own way."""
    for policy in (Pisces(), Pisces(robust=True)):
        state = started(policy, 9)
        for _ in range(6):
            answer(policy, state, [0, 1, 2, 3], loss=[1.0, 1.2, 1.4, 5.0], staleness=[0, 1, 2, 3])
        rule, seen = policy.rule(), view(9, 4, away=[8])
        moment = Moment(
            rule=rule,
            meaning=policy.terms,
            label="pisces",
            round=1,
            cohort=np.array([0, 1, 4, 5]),
            available=seen.available,
            terms=policy.scores(state, seen),
            absent={},
            known=np.ones(9, dtype=np.bool_),
        )
        score = [1.0, 1.2 / 2**0.5, 1.4 / 3**0.5, 5.0 / 4**0.5]
        assert rule.merit(moment)[:3].tolist() == pytest.approx(score[:3])
        assert rule.merit(moment)[3] == (-np.inf if policy.robust else score[3])
        assert "2" in (rule.worth(moment) or "")
        assert percent(0.9 * 0.98**6) in rule.about(moment)
        for client in (0, 1):
            assert number(score[client]) in rule.chosen(moment, client)
        assert number(score[2]) in rule.passed_over(moment, 2)
        assert (number(score[3]) in rule.passed_over(moment, 3)) != policy.robust
        assert rule.chosen(moment, 4) == rule.chosen(moment, 5) != rule.passed_over(moment, 6)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("exploration", 1.5),
        ("exploration_floor", -0.1),
        ("exploration_decay", 2.0),
        ("staleness_power", -1.0),
        ("outlier_radius", float("inf")),
        ("window", 0),
        ("credits", 0),
        ("outlier_rounds", 0),
    ],
)
def test_refusals(setting: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Pisces(**{setting: value})
    assert refused.value.key == (setting,)

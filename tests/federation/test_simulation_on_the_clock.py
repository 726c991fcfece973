"""Simulations that need the clock: waiting, clients that are still busy, forecasts, scores."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.training.toy_federation import still_at_work

from fedmuster import BSFL, REFL, SAFA, NaiveMABCS, Random
from fedmuster.core.errors import ConfigError
from fedmuster.core.selector import Selector
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Simulation, Watch
from fedmuster.privacy.budget import Privacy
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import Logistic
from fedmuster.training.partition import Sampled
from fedmuster.training.training import Training
from fedmuster.worlds import (
    BSFLRates,
    DeviceWorld,
    ExponentialSizes,
    LatencyWorld,
    LTECell,
    Markov,
    OnOff,
    UniformSizes,
)

TRAINING = Training(model=Logistic(), local=LocalSGD(epochs=1), evaluate_every=5)
HURRIED = LatencyWorld(num_clients=30, cohort_size=5, deadline_seconds=1.5)


def test_when_nobody_is_there_the_server_waits_until_somebody_comes() -> None:
    world = DeviceWorld(num_clients=3, cohort_size=2, availability=OnOff())
    simulation = Simulation(Random(), world, seed=2)
    ends = np.cumsum([simulation.step().seconds for _ in range(1500)])
    again = world.start(2)
    waits = 0
    for number, begins in enumerate([0.0, *ends[:-1]], start=1):
        drawn = again.realise(number, now_seconds=float(begins))
        if drawn.available.any():
            continue
        waits += 1
        came = again.realise(number + 1, now_seconds=float(ends[number - 1]))
        assert came.available.any()
        before = again.realise(number + 1, now_seconds=float(ends[number - 1]) - 1e-3)
        assert not before.available.any()
    assert waits > 3


def test_a_client_whose_answer_is_on_its_way_is_not_asked_again() -> None:
    simulation = Simulation(REFL(rest_rounds=1), HURRIED, seed=1, training=TRAINING)
    met_busy = 0
    for _ in range(40):
        assert simulation.trainer is not None
        busy = still_at_work(simulation.trainer)
        row = simulation.step()
        assert not np.isin(row.clients, busy).any()
        assert row.num_available == 30 - len(busy)
        met_busy += len(busy)
    assert met_busy > 20


def test_when_everybody_is_busy_the_server_waits_for_the_first_to_be_done() -> None:
    world = LatencyWorld(num_clients=4, cohort_size=4, deadline_seconds=0.2)
    simulation = Simulation(REFL(rest_rounds=1), world, seed=1, training=TRAINING)
    assert simulation.trainer is not None
    waited = 0
    for _ in range(60):
        busy, begins = still_at_work(simulation.trainer), simulation.elapsed_seconds
        assert simulation.trainer.late is not None
        first = simulation.trainer.late.arrives_at_seconds.min(initial=np.inf)
        row = simulation.step()
        if len(busy) == 4:
            waited += 1
            assert len(row.clients) == 0
            assert begins + row.seconds == pytest.approx(first)
            assert len(still_at_work(simulation.trainer)) < 4
    assert waited > 0


@pytest.mark.parametrize("policy", [Random(), REFL(), SAFA()])
def test_a_round_in_which_nobody_answers_leaves_the_model(policy: Any) -> None:
    world = LatencyWorld(num_clients=4, cohort_size=4, deadline_seconds=1e-3)
    simulation = Simulation(policy, world, seed=1, training=TRAINING)
    assert simulation.trainer is not None
    before = simulation.trainer.parameters.copy()
    row = simulation.step()
    assert (len(row.clients), row.num_completed, row.learning.num_aggregated) == (4, 0, 0)
    np.testing.assert_array_equal(simulation.trainer.parameters, before)


@pytest.mark.parametrize("policy", [REFL(), SAFA()])
def test_late_answers_survive_a_checkpoint_bit_for_bit(policy: REFL | SAFA) -> None:
    world = replace(HURRIED, availability=Markov(up=0.5, down=0.3))
    simulation, other = (Simulation(policy, world, seed=3, training=TRAINING) for _ in range(2))
    for _ in range(15):
        simulation.step()
    other.load(simulation.checkpoint(), source="here")
    for _ in range(15):
        one, two = simulation.step(), other.step()
        assert (one.seconds, one.clients.tolist()) == (two.seconds, two.clients.tolist())
    assert simulation.trainer is not None
    assert other.trainer is not None
    np.testing.assert_array_equal(simulation.trainer.parameters, other.trainer.parameters)


@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_late_answers_have_been_paid_for_when_they_were_asked(tmp_path: Path, noise: str) -> None:
    """A run that is killed after its debits and goes on: secure noise is never sent twice."""
    privacy = Privacy(epsilon=40.0, noise="secure" if noise == "secure" else "seeded")
    experiment = Experiment(
        policies={"refl": REFL(rest_rounds=1)},
        world=HURRIED,
        rounds=12,
        regret=False,
        training=TRAINING,
        privacy=privacy,
    )
    first = experiment.simulation(tmp_path, run="one")
    checkpoint = first.checkpoint()
    for _ in range(6):
        first.step()
        if noise == "secure":
            checkpoint = first.checkpoint() if first.selector.round < 6 else checkpoint
    first.close()
    second = experiment.simulation(tmp_path, run="one")
    second.load(checkpoint, source="here")
    while not second.finished:
        second.step()
    assert second.budget is not None
    assert second.budget.standing().spent_max <= 40.0
    second.close()


def test_forecasts_are_as_often_right_as_the_setting_says() -> None:
    """Exact binomial tests at 1e-3."""
    world = LatencyWorld(
        num_clients=20_000, cohort_size=5, availability=Markov(), forecast_accuracy=0.8
    )
    run = world.start(1)
    drawn = run.realise(1)
    assert drawn.forecast is not None
    windows = drawn.forecast(10.0)
    truth = (drawn.available, run.realise(2).available)
    for said, true in zip(windows, truth, strict=True):
        right = int(np.count_nonzero(said == true))
        assert stats.binomtest(right, 20_000, 0.8).pvalue > 1e-3
    again = run.realise(1).forecast
    assert again is not None
    np.testing.assert_array_equal(again(10.0)[0], windows[0])


def test_the_journal_keeps_what_the_policy_thought_of_watched_clients(tmp_path: Path) -> None:
    world = LTECell(num_clients=20)
    watch = Watch(every=3, clients=4)
    cell = Experiment(
        policies={"naive": NaiveMABCS()}, world=world, rounds=10, regret=False, watch=watch
    )
    assert Experiment.from_table(_parsed(cell)) == cell
    prepare(tmp_path, cell)
    execute(tmp_path)
    journal = JournalReader(tmp_path)
    assert journal.clients["watched"].tolist() == [0, 5, 10, 15]
    assert journal.score_rounds.tolist() == [1, 4, 7, 10]
    simulation = Simulation(NaiveMABCS(), world, seed=0)
    for number in range(1, 11):
        if number in journal.score_rounds:
            drawn = simulation.world.realise(number, now_seconds=simulation.elapsed_seconds)
            image, policy = simulation.selector.to_bytes(), simulation.selector.policy
            selector = Selector.from_bytes(image, policy, source="here")
            selector.select(available=drawn.available, forecast=drawn.forecast)
            expected = selector.scores()["score"][[0, 5, 10, 15]]
            row = journal.scores["score"][journal.score_rounds.tolist().index(number)]
            np.testing.assert_array_equal(row, expected)
        simulation.step()


def _parsed(experiment: Experiment) -> dict[str, object]:
    import tomllib

    return tomllib.loads(experiment.to_toml())


def test_policies_without_scores_leave_the_journal_without(tmp_path: Path) -> None:
    cell = Experiment(policies={"random": Random()}, world=BSFLRates(), rounds=3, watch=Watch())
    prepare(tmp_path, cell)
    execute(tmp_path)
    journal = JournalReader(tmp_path)
    assert journal.scores == {}
    assert journal.score_rounds.tolist() == [1, 2, 3]


def test_the_worlds_sizes_reach_a_partition_that_takes_them_and_no_other() -> None:
    world = LatencyWorld(num_clients=10, cohort_size=3, data=UniformSizes(low=5, high=30))
    sampled = replace(TRAINING, partition=Sampled())
    simulation = Simulation(BSFL(), world, seed=1, training=sampled)
    assert simulation.trainer is not None
    np.testing.assert_array_equal(simulation.trainer.data.sizes, world.start(1).problem.num_samples)
    with pytest.raises(ConfigError):
        Simulation(BSFL(), world, seed=1, training=TRAINING)
    quality = replace(world, data=ExponentialSizes())
    with pytest.raises(ConfigError):
        Simulation(BSFL(), quality, seed=1, training=sampled)

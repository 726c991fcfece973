"""What a policy is told of a round in which clients train."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.random import Generator
from scipy.stats import entropy, spearmanr

from fedmuster import SAFA, ClusteredSampling, FedSUV, HiCSFL, Random
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Feedback, IntArray
from fedmuster.federation import RoundRow, Simulation
from fedmuster.privacy.budget import Privacy, Protection
from fedmuster.training.data.built_in import LinearRegression
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP, Linear, Logistic, Model
from fedmuster.training.partition import DirichletLabels
from fedmuster.training.training import Training
from fedmuster.training.training_records import Parameters, Updates
from fedmuster.worlds import LatencyWorld
from fedmuster.worlds.world import RoundDraw

TRAINING = Training(model=Logistic(), local=LocalSGD(epochs=1))
WORLD = LatencyWorld(num_clients=30, cohort_size=8, deadline_seconds=1.5)


def heard(simulation: Simulation[Any]) -> tuple[Feedback, RoundRow]:
    """What the policy is told of the next round, and the journal's row."""
    selector = simulation.selector
    with patch.object(selector, "observe", wraps=selector.observe) as observe:
        row = simulation.step()
    (feedback,) = observe.call_args.args
    return feedback, row


def poison(simulation: Simulation[Any], clients: IntArray) -> None:
    """From now on the updates of these clients are not finite."""
    assert simulation.trainer is not None
    engine = simulation.trainer.engine
    train = engine.train

    def poisoned(parameters: Parameters, asked: IntArray, number: int, order: int = 0) -> Updates:
        updates = train(parameters, asked, number)
        updates.deltas[np.isin(asked, clients), 3] = np.nan
        return updates

    simulation.trainer.engine = _Poisoned(engine, poisoned)


class _Poisoned:
    """An engine that trains in another way."""

    def __init__(self, engine: Any, train: Any) -> None:
        self.num_trainable = engine.num_trainable
        self.initial, self.losses = engine.initial, engine.losses
        self.evaluate, self.close = engine.evaluate, engine.close
        self.train = train


def test_clients_that_answer_tell_what_they_measured_and_the_others_nothing() -> None:
    simulation = Simulation(Random(), WORLD, seed=1, training=TRAINING)
    assert simulation.trainer is not None
    trainer, before = simulation.trainer, simulation.trainer.parameters
    feedback, row = heard(simulation)
    answered = feedback.answered
    assert 0 < answered.sum() < 8
    alone = trainer.engine.train(before, feedback.clients[answered], 1)
    for name, values in alone.signals.items():
        np.testing.assert_array_equal(feedback.signals[name][answered], values)
        assert np.isnan(feedback.signals[name][~answered]).all()
    assert row.learning.train_loss == alone.signals["loss"].mean()


def test_an_update_that_is_not_finite_is_no_answer_and_was_not_used() -> None:
    plain, simulation = (Simulation(SAFA(), WORLD, seed=1, training=TRAINING) for _ in range(2))
    expected, _ = heard(plain)
    assert expected.used is not None
    bad = np.flatnonzero(expected.used)[:2]
    poison(simulation, expected.clients[bad])
    feedback, row = heard(simulation)
    assert feedback.used is not None
    np.testing.assert_array_equal(np.flatnonzero(expected.answered ^ feedback.answered), bad)
    np.testing.assert_array_equal(np.flatnonzero(expected.used ^ feedback.used), bad)
    np.testing.assert_array_equal(row.learning.rejected, expected.clients[bad])
    assert row.num_completed == expected.answered.sum() - 2


def test_answers_that_are_not_used_are_heard() -> None:
    """SAFA waits for a quota of clients that it prefers; answers of others are for later."""
    simulation = Simulation(SAFA(), WORLD, seed=1, training=TRAINING)
    unused = 0
    for _ in range(5):
        feedback, _ = heard(simulation)
        unused += int(np.count_nonzero(feedback.answered & ~feedback.entered))
        assert np.isfinite(feedback.signals["loss"][feedback.answered]).all()
    assert unused > 0


def test_signals_of_the_world_survive_and_those_of_the_training_win() -> None:
    simulation = Simulation(Random(), WORLD, seed=1, training=TRAINING)
    draw = simulation.world.clients

    def telling(round_number: int, rng: Generator) -> RoundDraw:
        drawn = draw(round_number, rng)
        charge = np.arange(30.0)
        return replace(drawn, signals={"charge": charge, "loss": np.full(30, 1e6)})

    simulation.world = replace(simulation.world, clients=telling)
    feedback, _ = heard(simulation)
    answered = feedback.answered
    np.testing.assert_array_equal(feedback.signals["charge"][answered], feedback.clients[answered])
    assert (feedback.signals["loss"][answered] < 1e3).all()


def test_sketches_are_of_finite_updates_and_come_only_where_they_are_wanted() -> None:
    policy = ClusteredSampling(by="similarity")
    simulation = Simulation(policy, WORLD, seed=1, training=TRAINING)
    assert simulation.trainer is not None
    trainer, before = simulation.trainer, simulation.trainer.parameters
    first, _ = heard(Simulation(policy, WORLD, seed=1, training=TRAINING))
    poison(simulation, first.clients[first.answered][:1])
    feedback, _ = heard(simulation)
    completed = feedback.answered
    assert completed.sum() == first.answered.sum() - 1 > 0
    sent = trainer.engine.train(before, feedback.clients[completed], 1)
    assert feedback.sketches is not None
    np.testing.assert_array_equal(
        feedback.sketches[completed], trainer.sketches(sent, policy.wanted_sketch_size)
    )
    assert np.isnan(feedback.sketches[~completed]).all()
    assert heard(Simulation(Random(), WORLD, seed=1, training=TRAINING))[0].sketches is None


def test_where_privacy_is_kept_nothing_that_training_measured_is_told(tmp_path: Path) -> None:
    protection = Protection(privacy=Privacy(), ledger=tmp_path / "ledger.sqlite", run="run")
    simulation = Simulation(Random(), WORLD, seed=1, training=TRAINING, protection=protection)
    feedback, row = heard(simulation)
    simulation.close()
    assert dict(feedback.signals) == {}
    assert feedback.answered.any()
    assert np.isnan(row.learning.train_loss)


@pytest.mark.parametrize(("policy", "wanted"), [(FedSUV(), True), (Random(), False)])
def test_the_gain_in_accuracy_is_measured_for_policies_that_want_it(
    policy: Any, wanted: bool
) -> None:
    """FedSUV Eq. 3 needs it."""
    feedback, _ = heard(Simulation(policy, WORLD, seed=1, training=TRAINING))
    assert ("accuracy_gain" in feedback.signals) == wanted


@pytest.mark.parametrize("model", [Logistic(), MLP(hidden=(6,))], ids=lambda model: model.name)
def test_output_biases_are_those_of_the_updates(model: Model) -> None:
    training = replace(TRAINING, model=model)
    simulation = Simulation(HiCSFL(), WORLD, seed=1, training=training)
    assert simulation.trainer is not None
    trainer, before = simulation.trainer, simulation.trainer.parameters
    assert simulation.selector.problem.num_classes == 10
    feedback, _ = heard(simulation)
    answered = feedback.answered
    assert 0 < answered.sum() < 8
    alone = trainer.engine.train(before, feedback.clients[answered], 1)
    assert feedback.output_bias is not None
    np.testing.assert_array_equal(feedback.output_bias[answered], alone.deltas[:, -10:])
    assert np.isnan(feedback.output_bias[~answered]).all()
    state = simulation.selector.state
    np.testing.assert_array_equal(state.bias[feedback.clients[answered]], alone.deltas[:, -10:])
    others = Simulation(Random(), WORLD, seed=1, training=training)
    assert others.selector.problem.num_classes == 0
    assert heard(others)[0].output_bias is None


def test_a_model_without_output_biases_is_refused_where_the_policy_wants_them() -> None:
    training = replace(TRAINING, data=LinearRegression(), model=Linear())
    with pytest.raises(ConfigError) as error:
        Simulation(HiCSFL(), WORLD, seed=1, training=training)
    assert error.value.key == ("model",)


def test_entropies_that_hics_fl_estimates_order_clients_by_their_labels() -> None:
    """Spearman's rank correlation with the entropies of the labels that clients have."""
    training = replace(TRAINING, partition=DirichletLabels(alpha=0.2))
    world = LatencyWorld(num_clients=30, cohort_size=10)
    simulation = Simulation(HiCSFL(), world, seed=1, training=training)
    for _ in range(4):
        simulation.step()
    assert simulation.trainer is not None
    data = simulation.trainer.data
    counts = np.stack(
        [np.bincount(own, minlength=10) for own in np.split(data.targets, data.offsets[1:-1])]
    )
    truth = entropy(counts, axis=1)
    simulation.selector.select()
    estimate = simulation.selector.scores()["entropy"]
    found = spearmanr(truth, estimate)
    assert found.statistic > 0.5
    assert found.pvalue < 1e-3

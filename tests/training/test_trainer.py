"""One round of training: which updates count, what clients send, what is saved."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.training.toy_federation import play_round

from fedmuster.core.errors import StateError
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem
from fedmuster.training.aggregation import FedAdam
from fedmuster.training.data import Digits
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP, Logistic
from fedmuster.training.partition import IID, ExponentialQuality
from fedmuster.training.trainer import Trainer
from fedmuster.training.training import Training
from fedmuster.training.training_records import Parameters, Updates

CLIENTS = 12


def start(**settings: Any) -> Trainer:
    training = replace(
        Training(model=Logistic(), local=LocalSGD(learning_rate=0.05, epochs=1)), **settings
    )
    return training.start(num_clients=CLIENTS, seed=3)


def answers(round_number: int, clients: list[int], completed: list[bool]) -> Feedback:
    latency: FloatArray = np.where(completed, 0.5, np.inf)
    return Feedback(
        round=round_number,
        clients=np.array(clients, dtype=np.int64),
        latency_seconds=latency,
        completed=np.array(completed),
    )


class PoisonedEngine:
    """The trainer's own engine, but one client's update is not a number."""

    def __init__(self, trainer: Trainer, client: int) -> None:
        self._engine = trainer.engine
        self._client = client
        self.num_trainable = trainer.engine.num_trainable
        self.initial = trainer.engine.initial
        self.losses = trainer.engine.losses
        self.evaluate = trainer.engine.evaluate
        self.close = trainer.engine.close

    def train(
        self, parameters: Parameters, clients: IntArray, round_number: int, order: int | None = None
    ) -> Updates:
        updates = self._engine.train(parameters, clients, round_number)
        updates.deltas[updates.clients == self._client, 7] = np.nan
        return updates


def test_only_those_who_answered_train_and_the_average_is_weighted_by_data() -> None:
    trainer = start(partition=ExponentialQuality())
    before = trainer.parameters.copy()
    updates = trainer.engine.train(before, np.array([1, 4]), 1)
    sent, row = play_round(trainer, answers(1, [1, 2, 4], [True, False, True]))
    weights = trainer.data.sizes[[1, 4]]
    expected = before + (weights @ updates.deltas.astype(np.float64)) / weights.sum()
    np.testing.assert_allclose(trainer.parameters, expected, atol=1e-6)
    assert row.num_aggregated == 2
    assert row.train_loss == pytest.approx(updates.signals["loss"].mean())
    np.testing.assert_array_equal(sent.updates.clients, [1, 4])
    np.testing.assert_array_equal(sent.updates.signals["loss"], updates.signals["loss"])


def test_an_update_that_is_not_finite_is_left_out_and_its_sender_recorded() -> None:
    poisoned, clean = start(), start()
    poisoned.engine = PoisonedEngine(poisoned, client=4)
    sent, row = play_round(poisoned, answers(1, [1, 2, 4], [True, True, True]))
    _, expected = play_round(clean, answers(1, [1, 2, 4], [True, True, False]))
    np.testing.assert_array_equal(poisoned.parameters, clean.parameters)
    np.testing.assert_array_equal(row.rejected, [4])
    np.testing.assert_array_equal(sent.usable, [True, True, False])
    assert row.num_aggregated == expected.num_aggregated == 2
    assert row.train_loss == expected.train_loss


@pytest.mark.parametrize("completed", [[True, True, False], [False, False, False]])
def test_with_too_few_answers_the_model_stays(completed: list[bool]) -> None:
    trainer = start(min_answers=3)
    before = trainer.parameters.copy()
    sent, row = play_round(trainer, answers(1, [1, 2, 4], completed))
    np.testing.assert_array_equal(trainer.parameters, before)
    assert row.num_aggregated == 0
    assert len(sent.updates.clients) == sum(completed)


def test_evaluation_is_due_every_so_often_or_on_demand() -> None:
    trainer = start(evaluate_every=3)
    asked = [1, 2]
    rows = [play_round(trainer, answers(t, asked, [True, True])).row for t in range(1, 7)]
    assert [bool(np.isfinite(row.loss)) for row in rows] == [False, False, True] * 2
    last = play_round(trainer, answers(7, asked, [True, True]), evaluate=True).row
    assert np.isfinite(last.accuracy)


def test_a_restored_trainer_goes_on_with_the_same_bits() -> None:
    settings = {"server": FedAdam(learning_rate=0.01), "model": MLP(hidden=(8,))}
    one, two = start(**settings), start(**settings)
    for t in range(1, 4):
        play_round(one, answers(t, [0, 3, 5], [True, True, True]))
    two.load(one.to_bytes(), source="here")
    for t in range(4, 7):
        for trainer in (one, two):
            play_round(trainer, answers(t, [1, 2, 7], [True, True, True]))
    np.testing.assert_array_equal(one.parameters, two.parameters)


def test_another_model_is_not_loaded() -> None:
    with pytest.raises(StateError, match="another model"):
        start().load(start(model=MLP(hidden=(8,))).to_bytes(), source="there")


def test_the_policy_is_told_of_data_only_where_clients_differ() -> None:
    problem = Problem(num_clients=CLIENTS, cohort_size=3)
    equal = start(partition=IID(), data=Digits(train_limit=1200))
    assert equal.describe(problem).num_samples is None
    told = start(partition=ExponentialQuality())
    described = told.describe(problem)
    np.testing.assert_array_equal(described.num_samples, told.data.sizes)
    assert described.quality is not None


def test_what_a_polled_client_answers_is_the_loss_of_the_global_model() -> None:
    trainer = start(local=LocalSGD(learning_rate=1e-9, epochs=1, measure_gain=True))
    play_round(trainer, answers(1, [0, 1, 2], [True, True, True]))
    asked = trainer.ask_loss(np.array([2, 5]))
    updates = trainer.engine.train(trainer.parameters, np.array([2, 5]), 2)
    np.testing.assert_allclose(asked, updates.signals["loss_before"], rtol=1e-5)

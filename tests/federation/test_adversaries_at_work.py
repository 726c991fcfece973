"""Adversaries in whole runs: what they gain, what checked reports leave them, and resuming."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedmuster.core.config import from_text
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.federation import Federation, Simulation
from fedmuster.policies import Oort, PowerOfChoice, Random
from fedmuster.training.aggregation import FedGeometricMedian
from fedmuster.training.data import Digits
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import Logistic
from fedmuster.training.partition import DirichletLabels
from fedmuster.training.training import Training
from fedmuster.worlds import WORLDS, Adversaries, BSFLGroups, LTECell, World

SLOTS = Federation(buffer=3, refill=1)
TRAINING = Training(
    data=Digits(train_limit=500, test_limit=100),
    partition=DirichletLabels(alpha=0.5),
    model=Logistic(),
    local=LocalSGD(steps=2),
    evaluate_every=1000,
)


def world(**attack: Any) -> BSFLGroups:
    return BSFLGroups(
        num_clients=60,
        cohort_size=6,
        deadline_seconds=9.0,
        adversaries=Adversaries(**attack) if attack else None,
    )


def simulation(
    policy: Any,
    where: World,
    *,
    check: bool,
    federation: Federation | None = None,
    training: Training | None = TRAINING,
    seed: int = 5,
) -> Simulation[Any]:
    federation = replace(federation or Federation(rounds=True), check_reports=check)
    return Simulation(policy, where, seed=seed, federation=federation, training=training)


def places(run: Simulation[Any], steps: int) -> FloatArray:
    """How often each client was asked."""
    asked = [run.step().clients for _ in range(steps)]
    return np.bincount(np.concatenate(asked), minlength=60).astype(np.float64)


def liars_share(policy: Any, *, check: bool, **attack: Any) -> float:
    shares = []
    for seed in range(2):
        run = simulation(policy, world(**attack), check=check, seed=seed)
        assert run.world.adversaries is not None
        asked = places(run, 120)
        shares.append(asked[run.world.adversaries.mask].sum() / asked.sum())
    return float(np.mean(shares))


@pytest.mark.parametrize("policy", [Oort(), PowerOfChoice()])
def test_inflated_losses_pay_until_they_are_checked(policy: Any) -> None:
    """20 % of the clients, of whom honest ones would get about 20 % of the places."""
    assert liars_share(policy, check=False, loss_factor=10.0) > 0.5
    assert liars_share(policy, check=True, loss_factor=10.0) < 0.3


def test_reported_times_pay_until_they_are_checked() -> None:
    attack = {"latency_factor": 0.1, "overhead_seconds": 0.2}
    assert liars_share(Oort(), check=False, **attack) > 0.4
    assert liars_share(Oort(), check=True, **attack) < 0.3


def test_sleepers_gain_once_they_wake_and_not_where_reports_are_checked() -> None:
    attack = {"loss_factor": 10.0, "honest_rounds": 40}
    assert liars_share(Oort(), check=False, **attack) > 0.3
    assert liars_share(Oort(), check=True, **attack) < 0.3


def test_the_truth_is_in_the_journal_whatever_liars_say() -> None:
    """Random choice hears nothing, so its runs are the same but for what liars report."""
    lying, honest = (
        simulation(Random(), each, check=False)
        for each in (world(latency_factor=0.1, loss_factor=10.0), world())
    )
    for _ in range(5):
        one, other = lying.step(), honest.step()
        assert_array_equal(one.clients, other.clients)
        assert one.seconds == other.seconds
        assert one.learning.train_loss == other.learning.train_loss


def test_lte_uploads_take_as_long_as_they_take() -> None:
    """The cell knows the truth, whatever it tells the policy of the parts of a time."""
    cell = LTECell(num_clients=60, cohort_size=6)
    lying = replace(cell, adversaries=Adversaries(latency_factor=0.1))
    for federation in (Federation(rounds=True), SLOTS):
        rows = [
            simulation("random", each, check=False, federation=federation, training=None).step()
            for each in (cell, lying)
        ]
        assert rows[0].seconds == rows[1].seconds


@pytest.mark.parametrize("federation", [Federation(rounds=True), SLOTS])
@pytest.mark.parametrize("policy", ["oort", "power-of-choice", "tempo"])
def test_a_resumed_run_has_the_same_bits(policy: str, federation: Federation) -> None:
    attack = {"latency_factor": 0.1, "loss_factor": 10.0, "update_noise": 1.0, "sybils": True}
    where = world(**attack, honest_rounds=3, overhead_seconds=0.3)
    whole, first, second = (
        simulation(policy, where, check=True, federation=federation) for _ in range(3)
    )
    asked = [whole.step().clients for _ in range(14)]
    for _ in range(7):
        first.step()
    second.load(first.checkpoint(), source="a checkpoint")
    again = [second.step().clients for _ in range(7)]
    for one, other in zip(asked[7:], again, strict=True):
        assert_array_equal(one, other)
    assert whole.trainer is not None
    assert second.trainer is not None
    assert_array_equal(whole.trainer.parameters, second.trainer.parameters)
    assert whole.checkpoint().selector == second.checkpoint().selector


def test_sybils_train_on_the_same_data() -> None:
    run = simulation("random", world(sybils=True), check=False)
    assert run.trainer is not None
    assert run.world.adversaries is not None
    data, (first, second) = run.trainer.data, run.world.adversaries.clients[:2]
    rows: list[IntArray] = [
        np.arange(data.offsets[client], data.offsets[client + 1]) for client in (first, second)
    ]
    assert_array_equal(data.inputs[rows[0]], data.inputs[rows[1]])
    assert_array_equal(data.targets[rows[0]], data.targets[rows[1]])


def test_poison_reaches_the_model_and_a_robust_server_holds_out() -> None:
    """A fifth of noise, thirty times as large as an update."""

    def accuracy(training: Training, **attack: Any) -> float:
        run = simulation("random", world(**attack), check=False, training=training)
        rows = [run.step() for _ in range(60)]
        return float(rows[-1].learning.accuracy)

    plain = replace(TRAINING, evaluate_every=60)
    robust = replace(plain, server=FedGeometricMedian())
    attack = {"update_noise": 30.0}
    honest = accuracy(plain)
    assert accuracy(plain, **attack) < honest - 0.2
    assert accuracy(robust, **attack) > honest - 0.1


def test_an_update_that_overflows_is_rejected() -> None:
    run = simulation("random", world(update_factor=1e9, update_noise=1e9), check=False)
    rows = [run.step() for _ in range(10)]
    assert run.trainer is not None
    assert np.isfinite(run.trainer.parameters).all() or any(
        len(row.learning.rejected) for row in rows
    )


@pytest.mark.parametrize(
    ("attack", "key"),
    [
        ({"update_factor": -1.0}, ("world", "adversaries")),
        ({"loss_factor": 2.0}, ("world", "adversaries", "loss_factor")),
    ],
)
def test_attacks_on_a_training_that_is_not_there_are_refused(
    attack: dict[str, Any], key: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as refusal:
        simulation("random", world(**attack), check=False, training=None)
    assert refusal.value.key == key


def test_losses_of_the_world_itself_can_be_inflated() -> None:
    where = from_text(WORLDS, "validity-utility:adversaries={loss_factor=2}")
    simulation("fedsuv", where, check=True, training=None).step()

"""Answers that were trained from older models: how much of them enters the model."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from tests.training.toy_federation import (
    GOALS,
    NUM_PARAMETERS,
    SIZES,
    answers,
    play_round,
    still_at_work,
    toy_trainer,
)

from fedmuster.core.errors import ConfigError
from fedmuster.core.staleness import (
    AgeAndNovelty,
    ConstantWorth,
    Discard,
    HingeWorth,
    PolynomialWorth,
    Staleness,
)
from fedmuster.training.aggregation import FedAdam, FedAvg, ModelMixing
from fedmuster.training.servers import Answers, EdgeServer
from fedmuster.training.training_records import Updates

UNIFORM = FedAvg(weights="uniform")
CLIENTS = [1, 3, 4]
DELTAS: NDArray[np.float32] = (
    np.random.default_rng(8).normal(size=(3, NUM_PARAMETERS)).astype(np.float32)
)
STARTS: NDArray[np.float32] = (
    np.random.default_rng(9).normal(size=(3, NUM_PARAMETERS)).astype(np.float32)
)


def server_of(staleness: Staleness, **settings: Any) -> EdgeServer:
    """A server that asks clients one by one."""
    return toy_trainer(staleness, keeps_late=False, **settings).edge_servers[0]


def buffered(*ages: int) -> Answers:
    """Answers of these ages."""
    count = len(ages)
    return Answers(
        round=10,
        updates=Updates(clients=np.array(CLIENTS[:count]), deltas=DELTAS[:count], signals={}),
        starts=list(STARTS[:count]),
        ages=np.array(ages),
        used=np.ones(count, dtype=np.bool_),
        asked=np.arange(0),
    )


@pytest.mark.parametrize("by_data", [True, False])
@pytest.mark.parametrize(
    ("staleness", "worth"),
    [
        (PolynomialWorth(), [1, 1 / 2, 1 / 3]),
        (ConstantWorth(), [1, 1, 1]),
        (HingeWorth(slope=1.0, grace=2), [1, 1 / 2, 1 / 7]),
    ],
)
def test_an_old_update_is_shortened_and_not_weighed_less(
    staleness: Staleness, worth: list[float], by_data: bool
) -> None:
    """FedBuff: w + 1 / (sum n) sum n_k s_k delta_k. A mean whose weights shrink would undo it."""
    server = server_of(staleness, server=FedAvg() if by_data else UNIFORM)
    before = server.model.astype(np.float64)
    assert server.aggregate(buffered(0, 3, 8)) == 3
    weights = SIZES[CLIENTS].astype(np.float64) if by_data else np.ones(3)
    step = (weights * worth) @ DELTAS.astype(np.float64) / weights.sum()
    assert_allclose(server.model, before + step, atol=1e-6)


def test_what_is_too_old_does_not_enter_the_mean_at_all() -> None:
    server, without = (server_of(PolynomialWorth(max_age=3)) for _ in range(2))
    assert server.aggregate(buffered(0, 3, 4)) == 2
    assert without.aggregate(buffered(0, 3)) == 2
    assert_array_equal(server.model, without.model)


def test_what_is_too_old_does_not_count_towards_min_answers() -> None:
    server = server_of(PolynomialWorth(max_age=3), min_answers=3)
    before = server.model.copy()
    assert server.aggregate(buffered(0, 3, 4)) == 0
    assert_array_equal(server.model, before)
    assert server.aggregate(buffered(0, 3, 3)) == 3


def test_only_fresh_answers_enter_where_old_ones_are_discarded() -> None:
    server, fresh = server_of(Discard()), server_of(Discard())
    assert server.aggregate(buffered(0, 1, 2)) == 1
    assert fresh.aggregate(buffered(0)) == 1
    assert_array_equal(server.model, fresh.model)


def test_an_update_is_clipped_before_it_is_shortened() -> None:
    server = server_of(PolynomialWorth(), server=FedAvg(clip_norm=0.01))
    before = server.model.copy()
    server.aggregate(buffered(3))
    assert np.linalg.norm(server.model - before) == pytest.approx(0.005, rel=1e-3)


def test_an_optimiser_takes_the_shortened_mean_for_its_gradient() -> None:
    adam, plain = server_of(PolynomialWorth(), server=FedAdam()), server_of(PolynomialWorth())
    before = adam.model.copy()
    for server in (adam, plain):
        server.aggregate(buffered(0, 3, 8))
    delta = (plain.model - before).astype(np.float64)
    second_moment = 0.99 * 1e-6 + 0.01 * delta**2
    assert_allclose(adam.model, before + 0.001 * delta / (np.sqrt(second_moment) + 1e-3), atol=1e-6)


@pytest.mark.parametrize(("age", "mixed"), [(0, 0.6), (3, 0.3)])
def test_fedasync_mixes_the_client_s_model_into_the_server_s(age: int, mixed: float) -> None:
    """Algorithm 1: (1 - alpha_s) w + alpha_s w_k, and w_k began from an older model."""
    server = server_of(PolynomialWorth(), server=ModelMixing(mixing=0.6))
    before = server.model.copy()
    server.aggregate(buffered(age))
    theirs = STARTS[0] + DELTAS[0]
    assert_allclose(server.model, (1 - mixed) * before + mixed * theirs, atol=1e-6)


def test_fedasync_mixes_the_mean_of_a_buffer() -> None:
    server = server_of(ConstantWorth(), server=ModelMixing(mixing=0.5, weights="uniform"))
    before = server.model.copy()
    server.aggregate(buffered(0, 1, 2))
    assert_allclose(server.model, (before + (STARTS + DELTAS).mean(axis=0)) / 2, atol=1e-6)


def test_fedasync_does_not_keep_late_answers_of_rounds() -> None:
    with pytest.raises(ConfigError) as caught:
        toy_trainer(PolynomialWorth(), server=ModelMixing())
    assert caught.value.key == ("server",)
    with pytest.raises(ConfigError) as caught:
        toy_trainer(AgeAndNovelty(), server=ModelMixing(), keeps_late=False)
    assert caught.value.key == ("server",)
    toy_trainer(Discard(), server=ModelMixing())


def test_without_rounds_refl_takes_the_youngest_answers_for_the_fresh_ones() -> None:
    """The only old one has L = Lmax: 0.65 / (3 + 1) + 0.35 (1 - 1/e), against 1 for the others."""
    server = server_of(AgeAndNovelty(), server=UNIFORM)
    before = server.model.astype(np.float64)
    assert server.aggregate(buffered(1, 3, 1)) == 3
    weights = np.array([1.0, 0.65 / 4 + 0.35 * (1 - math.exp(-1)), 1.0])
    assert_allclose(server.model, before + weights @ DELTAS / weights.sum(), atol=1e-6)


def test_a_late_answer_of_a_round_is_as_old_as_the_rounds_since() -> None:
    """Asked in round 1 and merged with the third aggregation: 3^-0.5 of its update."""
    trainer = toy_trainer(PolynomialWorth(), server=UNIFORM)
    first = trainer.parameters.copy()
    play_round(trainer, answers(1, [0, 1], [0]), arrivals={1: 2.5}, ends_at_seconds=1.0)
    play_round(trainer, answers(2, [2], [2]), ends_at_seconds=2.0)
    assert_array_equal(still_at_work(trainer), [1])
    before = trainer.parameters.copy()
    row = play_round(trainer, answers(3, [2], [2]), ends_at_seconds=3.0).row
    late, fresh = 0.5 * (GOALS[1] + 0.1 - first), 0.5 * (GOALS[2] + 0.3 - before)
    assert_allclose(trainer.parameters, before + (fresh + 3**-0.5 * late) / 2, atol=1e-6)
    assert row.num_aggregated == 2
    assert len(still_at_work(trainer)) == 0


def test_a_late_answer_enters_a_round_that_nobody_else_answers() -> None:
    trainer = toy_trainer(ConstantWorth(), server=UNIFORM)
    first = trainer.parameters.copy()
    play_round(trainer, answers(1, [1], []), arrivals={1: 1.5}, ends_at_seconds=1.0)
    row = play_round(trainer, answers(2, [2], []), ends_at_seconds=2.0).row
    assert_allclose(trainer.parameters, first + 0.5 * (GOALS[1] + 0.1 - first), atol=1e-6)
    assert row.num_aggregated == 1


@pytest.mark.parametrize("kind", [PolynomialWorth, ConstantWorth, AgeAndNovelty])
@pytest.mark.parametrize(("max_age", "entered"), [(2, 2), (1, 1)])
def test_a_late_answer_that_is_too_old_is_lost(
    kind: type[Staleness], max_age: int, entered: int
) -> None:
    trainer, without = toy_trainer(kind(max_age=max_age)), toy_trainer(Discard())
    for t, slow in ((1, {1: 2.5}), (2, {}), (3, {})):
        feedback = answers(t, [0, *slow], [0])
        row = play_round(trainer, feedback, arrivals=slow, ends_at_seconds=float(t)).row
        play_round(without, feedback)
    assert row.num_aggregated == entered
    assert np.array_equal(trainer.parameters, without.parameters) == (entered == 1)
    assert len(still_at_work(trainer)) == 0

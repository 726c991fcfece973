"""REFL's late updates: their weights, when they count, what is kept of them."""

import math
from typing import Any

import numpy as np
import pytest
from tests.training.toy_federation import (
    CLIENTS,
    GOALS,
    SIZES,
    ToyEngine,
    answers,
    play_round,
    still_at_work,
    toy_trainer,
)

from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.staleness import AgeAndNovelty, CachedModels, Discard, Staleness
from fedmuster.training.aggregation import (
    Aggregation,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedTrimmedMean,
)
from fedmuster.training.combine import CoordinateMedian, UniformMean
from fedmuster.training.trainer import Trainer
from fedmuster.training.training_records import Parameters

UNIFORM = FedAvg(weights="uniform")
BETA = 0.35


class PlainREFL:
    """REFL's aggregation, from the paper's formulas, client by client in float64."""

    def __init__(self, model: Parameters) -> None:
        self.model = model.astype(np.float64)
        self.on_their_way: dict[int, tuple[float, int, FloatArray]] = {}

    def update(self, client: int, t: int) -> FloatArray:
        return np.asarray(0.5 * (GOALS[client].astype(np.float64) + 0.1 * t - self.model))

    def play(self, t: int, fresh: list[int], slow: dict[int, float], end: float) -> None:
        due = [entry for entry in self.on_their_way.values() if entry[0] <= end]
        held = {k: (arrives, t, self.update(k, t)) for k, arrives in slow.items()}
        updates = [self.update(k, t) for k in fresh]
        if updates:
            weights = [1.0] * len(updates)
            mean, n = sum(updates) / len(updates), len(updates)
            deviations = [
                np.sum((mean - (u + n * mean) / (n + 1)) ** 2) / np.sum(mean**2) for *_, u in due
            ]
            for (_, asked, u), deviation in zip(due, deviations, strict=True):
                boost = 1 - math.exp(-deviation / max(deviations))
                weights.append((1 - BETA) / (t - asked + 1) + BETA * boost)
                updates.append(u)
            total = sum(weights)
            for weight, u in zip(weights, updates, strict=True):
                self.model = self.model + weight / total * u
            waiting = self.on_their_way.items()
            self.on_their_way = {k: entry for k, entry in waiting if entry[0] > end}
        self.on_their_way |= held


def random_rounds(seed: int, count: int) -> list[tuple[list[int], dict[int, float], float]]:
    """(who answers, who is late and when, when it ends), where nobody busy is asked."""
    rng = np.random.default_rng(seed)
    free_at = np.zeros(CLIENTS)
    now, rounds = 0.0, []
    for _ in range(count):
        asked = np.flatnonzero((free_at <= now) & (rng.random(CLIENTS) < 0.8))
        end = now + 1.0
        slow = {int(k): end + rng.uniform(0.1, 3.0) for k in asked if rng.random() < 0.5}
        free_at[list(slow)] = list(slow.values())
        rounds.append(([int(k) for k in asked if k not in slow], slow, end))
        now = end
    return rounds


@pytest.mark.parametrize("seed", range(5))
def test_the_model_is_that_of_a_plain_implementation_of_the_paper(seed: int) -> None:
    trainer = toy_trainer(AgeAndNovelty(), server=UNIFORM)
    plain = PlainREFL(trainer.parameters)
    merged = 0
    for t, (fresh, slow, end) in enumerate(random_rounds(seed, 25), start=1):
        feedback = answers(t, sorted([*fresh, *slow]), fresh)
        _, row = play_round(trainer, feedback, arrivals=slow, ends_at_seconds=end)
        merged += row.num_aggregated - len(fresh)
        plain.play(t, fresh, slow, end)
        np.testing.assert_allclose(trainer.parameters, plain.model, atol=1e-5)
    assert merged > 10


def test_one_late_update_by_hand() -> None:
    """The only late one has L = Lmax, so 0.65 / 2 + 0.35 (1 - 1/e) = 0.54624 against 1."""
    trainer = toy_trainer(AgeAndNovelty(), server=UNIFORM)
    first = trainer.parameters.copy()
    play_round(trainer, answers(1, [0, 1], [0]), arrivals={1: 2.5}, ends_at_seconds=1.0)
    second = trainer.parameters.copy()
    np.testing.assert_allclose(second, first + 0.5 * (GOALS[0] + 0.1 - first), atol=1e-6)
    np.testing.assert_array_equal(still_at_work(trainer), [1])
    _, row = play_round(trainer, answers(2, [2], [2]), ends_at_seconds=2.5)
    stale, fresh = 0.5 * (GOALS[1] + 0.1 - first), 0.5 * (GOALS[2] + 0.2 - second)
    expected = second + (fresh + 0.5462422 * stale) / 1.5462422
    np.testing.assert_allclose(trainer.parameters, expected, atol=1e-6)
    assert row.num_aggregated == 2
    assert len(still_at_work(trainer)) == 0


@pytest.mark.parametrize(
    ("server", "data"),
    [
        (FedAvg(), True),
        (UNIFORM, False),
        (FedAvgM(momentum=0.0), True),
        (FedAvgM(momentum=0.0, combine=UniformMean()), False),
    ],
)
def test_weights_multiply_those_of_the_servers_mean(server: Aggregation, data: bool) -> None:
    trainer = toy_trainer(AgeAndNovelty(), server=server)
    first = trainer.parameters.copy()
    play_round(trainer, answers(1, [0, 4, 5], [0]), arrivals={4: 1.5, 5: 1.5}, ends_at_seconds=1.0)
    second = trainer.parameters.copy()
    play_round(trainer, answers(2, [2, 3], [2, 3]), ends_at_seconds=2.0)
    weight = SIZES.astype(np.float64) if data else np.ones(CLIENTS)
    old = {k: 0.5 * (GOALS[k] + 0.1 - first) for k in (4, 5)}
    new = {k: 0.5 * (GOALS[k] + 0.2 - second) for k in (2, 3)}
    total = weight[2] + weight[3]
    mean = (weight[2] * new[2] + weight[3] * new[3]) / total
    moved = {
        k: float(np.sum(((weight[k] * u + total * mean) / (weight[k] + total) - mean) ** 2))
        for k, u in old.items()
    }
    late_weight = {
        k: weight[k] * (0.65 / 2 + 0.35 * (1 - math.exp(-m / max(moved.values()))))
        for k, m in moved.items()
    }
    step = total * mean + sum(late_weight[k] * u for k, u in old.items())
    expected = second + step / (total + sum(late_weight.values()))
    np.testing.assert_allclose(trainer.parameters, expected, atol=1e-6)


def test_an_optimiser_takes_the_merged_mean_for_its_gradient() -> None:
    adam, plain = toy_trainer(AgeAndNovelty(), server=FedAdam()), toy_trainer(AgeAndNovelty())
    before = adam.parameters.copy()
    for trainer in (adam, plain):
        # So that the second moment is that of one step, the first round brings nothing.
        play_round(trainer, answers(1, [0, 1], []), arrivals={1: 1.5}, ends_at_seconds=1.0)
        play_round(trainer, answers(2, [2, 3], [2, 3]), ends_at_seconds=2.0)
    delta = plain.parameters - before
    second_moment = 0.99 * 1e-6 + 0.01 * delta.astype(np.float64) ** 2
    expected = before + 0.01 * 0.1 * delta / (np.sqrt(second_moment) + 1e-3)
    np.testing.assert_allclose(adam.parameters, expected, atol=1e-6)


def test_an_update_that_changes_nothing_weighs_by_age_alone() -> None:
    trainer = toy_trainer(AgeAndNovelty(), server=UNIFORM)
    twin = toy_trainer(Discard(), server=UNIFORM)
    play_round(trainer, answers(1, [1], []), arrivals={1: 0.5}, ends_at_seconds=0.0)
    fresh = ToyEngine().train(trainer.parameters, np.array([2]), 2).deltas
    assert trainer.late is not None
    trainer.late.vectors[:] = fresh  # as if it said the same as the fresh one
    play_round(trainer, answers(2, [2], [2]), ends_at_seconds=1.0)
    play_round(twin, answers(2, [2], [2]))
    np.testing.assert_allclose(trainer.parameters, twin.parameters, atol=1e-6)


def test_statistics_of_batch_normalisation_do_not_make_an_update_new() -> None:
    """Lmax and so all weights follow from the trained parameters alone."""
    one, two = (
        toy_trainer(AgeAndNovelty(), server=UNIFORM, engine=ToyEngine(num_trainable=n))
        for n in (4, 2)
    )
    for trainer in (one, two):
        play_round(
            trainer, answers(1, [0, 1, 2], []), arrivals={0: 1, 1: 1, 2: 1}, ends_at_seconds=0
        )
        play_round(trainer, answers(2, [3], [3]), ends_at_seconds=1.0)
    start = one.engine.initial()
    old = 0.5 * (GOALS[:3] + 0.1 - start)
    new = 0.5 * (GOALS[3] + 0.2 - start)
    for trainer, length in ((one, 4), (two, 2)):
        moved = np.sum((old - new)[:, :length] ** 2, axis=1)
        weights = 0.65 / 2 + 0.35 * (1 - np.exp(-moved / moved.max()))
        expected = start + (new + weights @ old) / (1 + weights.sum())
        np.testing.assert_allclose(trainer.parameters, expected, atol=1e-6)


def test_without_fresh_updates_what_has_arrived_waits_but_its_sender_is_free() -> None:
    trainer = toy_trainer(AgeAndNovelty())
    play_round(trainer, answers(1, [0, 1], []), arrivals={0: 1.5, 1: 9.0}, ends_at_seconds=1.0)
    before = trainer.parameters.copy()
    _, row = play_round(trainer, answers(2, [2], []), ends_at_seconds=2.0)
    np.testing.assert_array_equal(trainer.parameters, before)
    assert row.num_aggregated == 0
    np.testing.assert_array_equal(still_at_work(trainer), [1])
    _, row = play_round(trainer, answers(3, [2], [2]), ends_at_seconds=3.0)
    assert row.num_aggregated == 2


def test_a_newer_late_update_replaces_one_that_waits() -> None:
    trainer = toy_trainer(AgeAndNovelty())
    for t in (1, 2, 3):
        play_round(trainer, answers(t, [0], []), arrivals={0: t + 0.5}, ends_at_seconds=float(t))
    _, row = play_round(trainer, answers(4, [2], [2]), ends_at_seconds=4.0)
    assert row.num_aggregated == 2


def test_late_updates_count_towards_min_answers_and_wait_until_it_is_reached() -> None:
    trainer = toy_trainer(AgeAndNovelty(), min_answers=3)
    play_round(trainer, answers(1, [0], []), arrivals={0: 1.5}, ends_at_seconds=1.0)
    assert play_round(trainer, answers(2, [1], [1]), ends_at_seconds=2.0).row.num_aggregated == 0
    assert (
        play_round(trainer, answers(3, [1, 2], [1, 2]), ends_at_seconds=3.0).row.num_aggregated == 3
    )


@pytest.mark.parametrize(("max_age", "merged"), [(None, 2), (3, 2), (2, 1)])
def test_updates_that_are_too_old_are_lost(max_age: int | None, merged: int) -> None:
    trainer = toy_trainer(AgeAndNovelty(max_age=max_age))
    play_round(trainer, answers(1, [0, 1], [1]), arrivals={0: 3.5}, ends_at_seconds=1.0)
    for t in (2, 3):
        play_round(trainer, answers(t, [1], [1]), ends_at_seconds=float(t))
        np.testing.assert_array_equal(still_at_work(trainer), [0])
    assert (
        play_round(trainer, answers(4, [1], [1]), ends_at_seconds=4.0).row.num_aggregated == merged
    )
    assert len(still_at_work(trainer)) == 0


def test_an_answer_that_came_while_the_server_tidied_up_counts_in_the_next_round() -> None:
    trainer = toy_trainer(AgeAndNovelty())
    _, row = play_round(trainer, answers(1, [0, 1], [1]), arrivals={0: 0.9}, ends_at_seconds=1.0)
    assert row.num_aggregated == 1
    assert len(still_at_work(trainer)) == 0
    assert play_round(trainer, answers(2, [1], [1]), ends_at_seconds=2.0).row.num_aggregated == 2


def test_late_clients_do_not_train_where_their_answers_are_discarded() -> None:
    one, two = toy_trainer(Discard()), toy_trainer(Discard())
    for t in (1, 2, 3):
        feedback = answers(t, [0, 1, 2], [0, 2])
        play_round(one, feedback, arrivals={1: t + 0.5}, ends_at_seconds=float(t))
        play_round(two, feedback)
    np.testing.assert_array_equal(one.parameters, two.parameters)
    assert len(still_at_work(one)) == 0
    assert one.to_bytes() == two.to_bytes()


def test_only_used_answers_enter_but_all_are_heard() -> None:
    one, two = toy_trainer(Discard()), toy_trainer(Discard())
    sent, row = play_round(one, answers(1, [0, 1, 2], [0, 2], used=[2]))
    play_round(two, answers(1, [0, 1, 2], [2]))
    np.testing.assert_array_equal(one.parameters, two.parameters)
    assert row.num_aggregated == 1
    np.testing.assert_array_equal(sent.updates.clients, [0, 2])
    assert np.isfinite(sent.updates.signals["loss"]).all()


def test_an_update_that_is_not_finite_was_not_used() -> None:
    trainer = toy_trainer(Discard(), engine=ToyEngine(poisoned=[2]))
    sent, row = play_round(trainer, answers(1, [0, 1, 2], [0, 1, 2], used=[0, 2]))
    np.testing.assert_array_equal(sent.usable, [True, True, False])
    assert row.num_aggregated == 1


@pytest.mark.parametrize("config", [AgeAndNovelty(), CachedModels()])
def test_a_restored_trainer_goes_on_with_the_same_bits(config: Staleness) -> None:
    one, two = toy_trainer(config, server=FedAdam()), toy_trainer(config, server=FedAdam())
    for t, (fresh, slow, end) in enumerate(random_rounds(3, 20), start=1):
        if t > 1:
            two = toy_trainer(config, server=FedAdam())
            two.load(one.to_bytes(), source="here")
        np.testing.assert_array_equal(still_at_work(one), still_at_work(two))
        rows = []
        for trainer in (one, two):
            feedback = answers(t, sorted([*fresh, *slow]), fresh, used=fresh[: 1 + len(fresh) // 2])
            rows.append(play_round(trainer, feedback, arrivals=slow, ends_at_seconds=end).row)
        np.testing.assert_array_equal(one.parameters, two.parameters)
        assert rows[0].num_aggregated == rows[1].num_aggregated
        assert one.to_bytes() == two.to_bytes()


def test_what_was_written_with_another_staleness_rule_is_refused() -> None:
    for one, two in (
        (AgeAndNovelty(), Discard()),
        (Discard(), CachedModels()),
        (CachedModels(), AgeAndNovelty()),
    ):
        with pytest.raises(StateError):
            toy_trainer(one).load(toy_trainer(two).to_bytes(), source="there")


@pytest.mark.parametrize("config", [AgeAndNovelty(), CachedModels()])
def test_late_clients_send_what_is_released_when_they_train(config: Staleness) -> None:
    asked: list[list[int]] = []

    def release(clients: IntArray, deltas: Any) -> Any:
        asked.append(clients.tolist())
        return np.float32(2.0) * deltas

    private, plain = toy_trainer(config), toy_trainer(config)
    first = answers(1, [0, 1], [0])
    sent, _ = play_round(private, first, arrivals={1: 1.5}, ends_at_seconds=1.0, release=release)
    play_round(plain, first, arrivals={1: 1.5}, ends_at_seconds=1.0)
    assert asked == [[0], [1]]
    assert sent.updates.signals == {}
    pending: dict[str, Any] = private.edge_servers[0].late_arrays()
    name = "vectors" if isinstance(config, AgeAndNovelty) else "pending.vectors"
    start = private.engine.initial() if isinstance(config, CachedModels) else np.zeros(1)
    told = plain.edge_servers[0].late_arrays()[name] - start
    np.testing.assert_allclose(pending[name] - start, 2 * told, atol=1e-6)


@pytest.mark.parametrize("config", [AgeAndNovelty(), CachedModels()])
def test_a_late_update_that_is_not_finite_is_rejected(config: Staleness) -> None:
    trainer = toy_trainer(config, engine=ToyEngine(poisoned=[1]))
    first = answers(1, [0, 1, 2], [0])
    _, row = play_round(trainer, first, arrivals={1: 1.5, 2: 1.5}, ends_at_seconds=1.0)
    np.testing.assert_array_equal(row.rejected, [1])
    np.testing.assert_array_equal(still_at_work(trainer), [2])


@pytest.mark.parametrize("config", [AgeAndNovelty(), CachedModels()])
@pytest.mark.parametrize(
    "server", [FedMedian(), FedTrimmedMean(), FedAdam(combine=CoordinateMedian())]
)
def test_servers_that_weigh_nobody_are_refused(config: Staleness, server: Aggregation) -> None:
    with pytest.raises(ConfigError):
        toy_trainer(config, server=server)


def norm(trainer: Trainer, before: Parameters) -> float:
    return float(np.linalg.norm(trainer.parameters - before))


def test_late_updates_are_clipped_like_others() -> None:
    trainer = toy_trainer(AgeAndNovelty(), server=FedAvg(clip_norm=0.01))
    before = trainer.parameters.copy()
    play_round(trainer, answers(1, [0], []), arrivals={0: 1.0}, ends_at_seconds=0.5)
    play_round(trainer, answers(2, [1], [1]), ends_at_seconds=1.0)
    assert 0 < norm(trainer, before) <= 0.01 * (1 + 1e-6)

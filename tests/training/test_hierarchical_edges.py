"""Edges on their own: who counts where, what is released, saved and refused."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.training.toy_federation import (
    GOALS,
    ToyEngine,
    answers,
    at,
    edge_models,
    play_round,
    toy_trainer,
)

from fedmuster.core import state as states
from fedmuster.core.errors import ConfigError, DataError, StateError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.staleness import AgeAndNovelty, CachedModels, Discard, Staleness
from fedmuster.training.aggregation import FedAdam, FedAvg
from fedmuster.training.trainer import Trainer
from fedmuster.training.training import Training
from fedmuster.training.training_records import Parameters

UNIFORM = FedAvg(weights="uniform")


def toy(num_edges: int, global_every: int = 100, **settings: Any) -> Trainer:
    return toy_trainer(
        Discard(),
        server=settings.pop("server", UNIFORM),
        num_edges=num_edges,
        global_every=global_every,
        **settings,
    )


def halfway(
    model: Parameters | FloatArray, clients: list[int] | IntArray, round_number: int
) -> FloatArray:
    """Where a toy edge stands after a round with these clients."""
    if len(clients) == 0:
        return np.asarray(model)
    goals = GOALS[clients].mean(axis=0, dtype=np.float64) + 0.1 * round_number
    return np.asarray((model + goals) / 2)


def test_an_edge_without_answers_keeps_its_model() -> None:
    trainer = toy(3)
    initial = trainer.parameters.copy()
    sent, row = play_round(trainer, answers(1, [0, 2, 5], [0, 2]), edges=at(0, 0, 1))
    np.testing.assert_allclose(
        trainer.edge_servers[0].model, halfway(initial, [0, 2], 1), atol=1e-6
    )
    for idle in edge_models(trainer)[1:]:
        np.testing.assert_array_equal(idle, initial)
    assert row.num_aggregated == 2
    np.testing.assert_array_equal(sent.updates.clients, [0, 2])


def test_a_round_of_nobody_changes_nothing_but_signals_keep_their_names() -> None:
    trainer = toy(3, global_every=1)
    initial = trainer.parameters.copy()
    for feedback, edges in ((answers(1, [0, 2], []), at(1, 2)), (answers(2, [], []), at())):
        sent, row = play_round(trainer, feedback, edges=edges)
        assert sent.updates.signals["loss"].shape == (0,)
        assert row.num_aggregated == 0
    np.testing.assert_array_equal(trainer.parameters, initial)


def test_each_edge_needs_its_own_answers() -> None:
    trainer = toy(2, min_answers=2)
    initial = trainer.parameters.copy()
    everybody = [0, 1, 3]
    _, row = play_round(trainer, answers(1, everybody, everybody), edges=at(1, 0, 1))
    np.testing.assert_array_equal(trainer.edge_servers[0].model, initial)
    np.testing.assert_allclose(
        trainer.edge_servers[1].model, halfway(initial, [0, 3], 1), atol=1e-6
    )
    assert row.num_aggregated == 2


def test_an_update_that_is_not_finite_is_missed_at_its_own_edge_only() -> None:
    poisoned, clean = toy(2, engine=ToyEngine(poisoned=[4])), toy(2)
    sent, row = play_round(poisoned, answers(1, [4, 1, 2, 3], [1, 2, 3, 4]), edges=at(1, 0, 1, 1))
    play_round(clean, answers(1, [4, 1, 2, 3], [1, 2, 3]), edges=at(1, 0, 1, 1))
    np.testing.assert_array_equal(edge_models(poisoned), edge_models(clean))
    np.testing.assert_array_equal(row.rejected, [4])
    np.testing.assert_array_equal(sent.usable, [False, True, True, True])
    assert row.num_aggregated == 3


def test_edges_are_averaged_after_every_so_many_rounds() -> None:
    """With nobody at edge 1 in even rounds; a toy's updates are linear, and with equally many steps
    everywhere it would not matter when models are averaged."""
    often, seldom = toy(2, global_every=1), toy(2, global_every=5)
    together = often.parameters.astype(np.float64)
    w = [together, together]
    for t in range(1, 11):
        asked, edges = [0, 4, 5], at(0, 0, t % 2)
        for trainer in (often, seldom):
            play_round(trainer, answers(t, asked, asked), edges=edges)
        groups = [np.array(asked)[edges == edge] for edge in (0, 1)]
        together = np.mean([halfway(together, group, t) for group in groups], axis=0)
        w = [halfway(model, group, t) for model, group in zip(w, groups, strict=True)]
        agree = t % 5 == 0
        if agree:
            w = [np.mean(w, axis=0)] * 2
        np.testing.assert_array_equal(often.edge_servers[0].model, often.edge_servers[1].model)
        assert np.array_equal(seldom.edge_servers[0].model, seldom.edge_servers[1].model) == agree
        np.testing.assert_allclose(often.parameters, together, atol=1e-6)
        np.testing.assert_allclose(edge_models(seldom), w, atol=1e-6)
    assert not np.allclose(often.parameters, seldom.parameters, atol=1e-4)


def test_each_edge_has_a_server_with_a_memory_of_its_own() -> None:
    """What Adam remembers at one edge is what it remembers where there is no other."""
    server = FedAdam(learning_rate=0.1)
    both, first, second = (toy(2, server=server) for _ in range(3))
    for t in range(1, 4):
        play_round(both, answers(t, [0, 1, 2], [0, 1, 2]), edges=at(0, 1, 1))
        play_round(first, answers(t, [0], [0]), edges=at(0))
        play_round(second, answers(t, [1, 2], [1, 2]), edges=at(1, 1))
    np.testing.assert_array_equal(both.edge_servers[0].model, first.edge_servers[0].model)
    np.testing.assert_array_equal(both.edge_servers[1].model, second.edge_servers[1].model)


def test_clients_are_released_once_a_round_in_their_order_wherever_they_are() -> None:
    calls: list[tuple[IntArray, NDArray[np.float32]]] = []

    def release(clients: IntArray, deltas: NDArray[np.float32]) -> NDArray[np.float32]:
        calls.append((clients.copy(), deltas.copy()))
        return deltas + np.float32(1.0)

    private, plain = toy(2), toy(2)
    feedback, edges = answers(1, [5, 0, 3, 2], [5, 3, 2]), at(1, 0, 0, 1)
    initial = plain.parameters.copy()
    sent, row = play_round(private, feedback, release=release, edges=edges)
    play_round(plain, feedback, edges=edges)
    assert len(calls) == 1
    clients, deltas = calls[0]
    np.testing.assert_array_equal(clients, [5, 3, 2])
    np.testing.assert_array_equal(deltas, ToyEngine().train(initial, clients, 1).deltas)
    for noisy, kept in zip(edge_models(private), edge_models(plain), strict=True):
        np.testing.assert_allclose(noisy, kept + 1, atol=1e-6)
    assert sent.updates.signals == {}
    assert np.isnan(row.train_loss)


def test_whoever_sets_the_global_model_sets_every_edge() -> None:
    trainer = toy(3)
    trainer.parameters = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(edge_models(trainer), [[0, 1, 2, 3]] * 3)
    np.testing.assert_array_equal(trainer.parameters, [0, 1, 2, 3])


def test_a_flat_training_goes_on_from_before_there_were_edges() -> None:
    flat, other = toy(1), toy(1)
    play_round(flat, answers(1, [0, 1], [0, 1]))
    arrays, meta = states.from_bytes(flat.to_bytes(), source="here")
    assert {"parameters", "server.momentum"} < arrays.keys()
    other.load(states.to_bytes(arrays, {"format": meta["format"]}), source="there")
    np.testing.assert_array_equal(other.parameters, flat.parameters)


def test_a_training_with_other_edges_is_not_loaded() -> None:
    for saved, here in ((1, 3), (3, 1), (2, 3)):
        with pytest.raises(StateError, match=f"there was .* with {saved} edge .* has {here}"):
            toy(here).load(toy(saved).to_bytes(), source="there")


@pytest.mark.parametrize("edges", [at(0), at(0, 3), at(-1, 0), np.zeros(2), at(0, 1)[:, None]])
def test_edges_that_do_not_fit_are_refused_before_anything_changes(edges: Any) -> None:
    trainer = toy(3, global_every=1)
    before = trainer.to_bytes()
    with pytest.raises(DataError, match=r"(?s)edges is .* expected an integer 0 … 2 for each"):
        play_round(trainer, answers(1, [0, 1], [0, 1]), edges=edges)
    assert trainer.to_bytes() == before


def test_with_several_edges_they_must_be_told() -> None:
    with pytest.raises(DataError, match=r"edges is None, expected .* there are 2 edge servers"):
        play_round(toy(2), answers(1, [0, 1], [0, 1]))


@pytest.mark.parametrize("staleness", [AgeAndNovelty(), CachedModels()])
def test_rules_that_compare_answers_belong_to_flat_fl(staleness: Staleness) -> None:
    with pytest.raises(ConfigError):
        Training().start(num_clients=5, seed=1, staleness=staleness, num_edges=2)


@pytest.mark.parametrize("name", ["num_edges", "global_every"])
@pytest.mark.parametrize("value", [0, 1.5, True])
def test_numbers_of_edges_and_rounds_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} = {value}, expected an integer >= 1"):
        toy_trainer(Discard(), **{name: value})


def test_a_config_of_global_rounds_is_checked() -> None:
    with pytest.raises(ConfigError, match="global_every"):
        Training(global_every=0)

"""Hierarchical training: a model at every edge, and now and then the mean of them all."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.training.toy_federation import at, edge_models, play_round

from fedmuster.core.records import Feedback, FloatArray, IntArray
from fedmuster.training.aggregation import Aggregation, FedAdam, FedAvg
from fedmuster.training.data import Digits
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import Logistic
from fedmuster.training.partition import ExponentialQuality
from fedmuster.training.trainer import LearningRow, Trainer
from fedmuster.training.training import Training
from fedmuster.training.training_records import FederatedData

EPOCHS, RATE, CLIENTS, CLASSES = 3, 0.5, 7, 10
UNIFORM = FedAvg(weights="uniform")


def start(*, num_edges: int, **settings: Any) -> Trainer:
    """Logistic regression on unequal data with full batches: no batch is left to chance."""
    training = Training(
        data=Digits(train_limit=300, test_limit=100),
        partition=ExponentialQuality(),
        model=Logistic(),
        local=LocalSGD(learning_rate=RATE, batch_size=0, epochs=EPOCHS),
        server=UNIFORM,
        evaluate_every=1,
    )
    return replace(training, **settings).start(num_clients=CLIENTS, seed=3, num_edges=num_edges)


def moving_round(round_number: int, num_edges: int) -> tuple[Feedback, IntArray]:
    """Some of the clients, in any order, each at some edge; not all answer, not all count."""
    rng = np.random.default_rng([7, round_number])
    asked = rng.permutation(CLIENTS)[: rng.integers(4, CLIENTS + 1)]
    completed = rng.random(len(asked)) < 0.8
    feedback = Feedback(
        round=round_number,
        clients=asked,
        latency_seconds=np.where(completed, 1.0, np.inf),
        completed=completed,
        used=rng.random(len(asked)) < 0.8,
    )
    return feedback, rng.integers(num_edges, size=len(asked))


def softmax_gradient(w: FloatArray, x: FloatArray, y: IntArray) -> FloatArray:
    scores = x @ w
    share = np.exp(scores - scores.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    share[np.arange(len(y)), y] -= 1
    return np.asarray(x.T @ share / len(y))


def with_ones(inputs: NDArray[np.float32]) -> FloatArray:
    flat = inputs.reshape(len(inputs), -1).astype(np.float64)
    return np.concatenate([flat, np.ones((len(flat), 1))], axis=1)


def samples(data: FederatedData, client: int) -> tuple[FloatArray, IntArray]:
    own = slice(data.offsets[client], data.offsets[client + 1])
    return with_ones(data.inputs[own]), data.targets[own]


def flat_vector(w: FloatArray) -> FloatArray:
    return np.concatenate([w[:-1].T.ravel(), w[-1]])


def log_loss(w: FloatArray, x: FloatArray, y: IntArray) -> float:
    scores = x @ w
    return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]))


def reference_round(
    w: dict[int, FloatArray],
    data: FederatedData,
    feedback: Feedback,
    edges: IntArray,
    weigh: dict[int, float],
) -> dict[int, FloatArray]:
    """Steps i to iii of COCS III-A, client by client."""
    sent: dict[int, dict[int, FloatArray]] = {m: {} for m in w}
    for row, client in enumerate(feedback.clients.tolist()):
        edge = int(edges[row])
        if feedback.entered[row]:
            local = w[edge].copy()
            for _ in range(EPOCHS):
                local -= RATE * softmax_gradient(local, *samples(data, client))
            sent[edge][client] = local
    after = dict(w)
    for edge, local_models in sent.items():
        if local_models:
            total = sum(weigh[client] for client in local_models)
            after[edge] = np.sum([weigh[c] / total * v for c, v in local_models.items()], axis=0)
    return after


@pytest.mark.parametrize("weights", ["uniform", "data"])
def test_it_is_the_loop_of_the_paper(weights: Any) -> None:
    """COCS III-A with M = 3, 7 clients that move among the edges, T_ES = 2, 6 rounds."""
    trainer = start(num_edges=3, global_every=2, server=FedAvg(weights=weights))
    data = trainer.data
    weigh = {c: 1.0 if weights == "uniform" else float(data.sizes[c]) for c in range(CLIENTS)}
    w = {m: np.zeros((data.inputs[0].size + 1, CLASSES)) for m in range(3)}
    test = with_ones(data.test_inputs), data.test_targets
    moved = set()
    for t in range(1, 7):
        feedback, edges = moving_round(t, 3)
        moved |= set(zip(feedback.clients.tolist(), edges.tolist(), strict=True))
        w = reference_round(w, data, feedback, edges, weigh)
        mean = (w[0] + w[1] + w[2]) / 3
        if t % 2 == 0:
            w = dict.fromkeys(w, mean)
        _, row = play_round(trainer, feedback, edges=edges)
        for edge, model in enumerate(edge_models(trainer)):
            np.testing.assert_allclose(model, flat_vector(w[edge]), atol=1e-6, rtol=0)
        np.testing.assert_allclose(trainer.parameters, flat_vector(mean), atol=1e-6, rtol=0)
        assert row.num_aggregated == np.count_nonzero(feedback.entered)
        assert row.loss == pytest.approx(log_loss(mean, *test), abs=1e-5)
        asked = [log_loss(mean, *samples(data, client)) for client in (2, 5)]
        np.testing.assert_allclose(trainer.ask_loss(np.array([2, 5])), asked, atol=1e-5)
    assert len(moved) > 2 * CLIENTS  # they do move


def same_rows(one: LearningRow, two: LearningRow) -> bool:
    return repr(one) == repr(two)


@pytest.mark.parametrize("server", [FedAvg(), FedAdam(learning_rate=0.05)], ids=lambda s: s.name)
def test_with_everybody_at_one_edge_and_nobody_elsewhere_it_is_flat(server: Aggregation) -> None:
    """One edge, whatever T_ES, is flat FL; of three, the one that has everybody is."""
    flat = start(num_edges=1, server=server)
    told = start(num_edges=1, server=server, global_every=4)
    lonely = start(num_edges=3, server=server, global_every=100)
    initial = flat.parameters.copy()
    for t in range(1, 6):
        feedback, edges = moving_round(t, 1)
        expected, row = play_round(flat, feedback)
        heard, other = play_round(told, feedback, edges=edges)
        elsewhere, _ = play_round(lonely, feedback, edges=edges + 2)
        assert same_rows(row, other)
        np.testing.assert_array_equal(told.parameters, flat.parameters)
        np.testing.assert_array_equal(lonely.edge_servers[2].model, flat.parameters)
        sketches = flat.sketches(expected.updates, 4)
        for trainer, each in ((told, heard), (lonely, elsewhere)):
            np.testing.assert_array_equal(each.usable, expected.usable)
            np.testing.assert_array_equal(trainer.sketches(each.updates, 4), sketches)
            for name, values in expected.updates.signals.items():
                np.testing.assert_array_equal(each.updates.signals[name], values)
    for idle in edge_models(lonely)[:2]:
        np.testing.assert_array_equal(idle, initial)


def test_edges_that_are_always_averaged_with_one_client_each_are_flat_fl() -> None:
    """Equal numbers at all edges and T_ES = 1: the mean of means is the mean."""
    flat, edges = start(num_edges=1), start(num_edges=3, global_every=1)
    for t in range(1, 4):
        feedback = Feedback(
            round=t, clients=np.array([1, 6, 3]), latency_seconds=np.ones(3), completed=None
        )
        play_round(flat, feedback)
        play_round(edges, feedback, edges=at(2, 0, 1))
    np.testing.assert_allclose(edges.parameters, flat.parameters, atol=1e-6)


def test_a_trainer_restored_between_global_aggregations_goes_on_with_the_same_bits() -> None:
    settings: dict[str, Any] = {
        "num_edges": 3,
        "global_every": 3,
        "server": FedAdam(learning_rate=0.05),
    }
    one, two = start(**settings), start(**settings)
    for t in range(1, 5):
        feedback, edges = moving_round(t, 3)
        play_round(one, feedback, edges=edges)
    two.load(one.to_bytes(), source="here")
    assert len({model.tobytes() for model in edge_models(two)}) > 1  # the edges have moved apart
    for t in range(5, 9):
        feedback, edges = moving_round(t, 3)
        rows = [play_round(trainer, feedback, edges=edges).row for trainer in (one, two)]
        assert same_rows(*rows)
        np.testing.assert_array_equal(edge_models(one), edge_models(two))
    assert one.to_bytes() == two.to_bytes()


def test_updates_are_the_same_bits_however_clients_are_grouped() -> None:
    trainer = start(num_edges=3, local=LocalSGD(learning_rate=0.1, batch_size=8, epochs=2))
    for server in trainer.edge_servers:
        server.model = server.model.copy()  # clients train together where they share one vector
    clients = np.arange(CLIENTS)
    whole = trainer.engine.train(trainer.parameters, clients, 4)
    for edges in (at(0, 1, 2, 0, 1, 2, 0), at(2, 2, 2, 2, 2, 2, 1)):
        starts = trainer.starts(clients, edges, 4)
        parts = trainer.send(clients, starts, np.full(CLIENTS, 4)).updates
        np.testing.assert_array_equal(parts.deltas, whole.deltas)
        assert parts.signals.keys() == whole.signals.keys()
        for name, values in whole.signals.items():
            np.testing.assert_array_equal(parts.signals[name], values)

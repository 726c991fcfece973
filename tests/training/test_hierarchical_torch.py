"""Hierarchical training of a network, against the engine called by hand for each edge."""

from typing import Any

import numpy as np
import pytest
from tests.training.toy_federation import play_round

from fedmuster.core.records import Feedback
from fedmuster.training.aggregation import FedAvg
from fedmuster.training.data import Digits
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import Logistic
from fedmuster.training.networks import BSFLCNN, COCSCNN, SmallCNN
from fedmuster.training.partition import Shards
from fedmuster.training.training import Training

CLIENTS = np.array([0, 3, 5, 6])


@pytest.mark.parametrize("network", [SmallCNN(), COCSCNN(), BSFLCNN()], ids=lambda n: n.name)
def test_two_edges_train_a_network(network: Any) -> None:
    """BSFL's CNN has batch-norm statistics, which are averaged like the rest."""
    training = Training(
        data=Digits(train_limit=70, test_limit=20),
        partition=Shards(labels_per_client=2),
        model=network,
        local=LocalSGD(learning_rate=0.05, batch_size=5, epochs=1),
        server=FedAvg(weights="uniform"),
        global_every=2,
    )
    trainer = training.start(num_clients=7, seed=2, num_edges=2)
    for t in (1, 2, 3):
        edges = np.roll([0, 1, 1, 0], t)
        before = [trainer.edge_servers[edge].model.copy() for edge in (0, 1)]
        feedback = Feedback(round=t, clients=CLIENTS, latency_seconds=np.ones(4))
        sent, row = play_round(trainer, feedback, edges=edges, evaluate=True)
        after = []
        for edge in (0, 1):
            alone = trainer.engine.train(before[edge], CLIENTS[edges == edge], t)
            np.testing.assert_array_equal(
                sent.updates.signals["loss"][edges == edge], alone.signals["loss"]
            )
            after.append(before[edge] + alone.deltas.mean(axis=0, dtype=np.float64))
        if t == 2:
            after = [(after[0] + after[1]) / 2] * 2
        for edge in (0, 1):
            np.testing.assert_allclose(trainer.edge_servers[edge].model, after[edge], atol=1e-6)
        assert np.isfinite(row.loss)
        assert row.num_aggregated == 4


def test_own_data_and_modules_have_edges_too() -> None:
    from torch import nn

    data = Digits(train_limit=70, test_limit=20).load(1)
    own = Training(model=Logistic(), global_every=3).with_own(
        data=data, module=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    )
    trainer = own.start(num_clients=7, seed=2, num_edges=2)
    feedback = Feedback(round=1, clients=CLIENTS, latency_seconds=np.ones(4))
    play_round(trainer, feedback, edges=np.array([0, 0, 1, 1]))
    assert not np.array_equal(trainer.edge_servers[0].model, trainer.edge_servers[1].model)
    plain = Training(model=Logistic()).with_own(data=data).start(num_clients=7, seed=2, num_edges=2)
    play_round(plain, feedback, edges=np.array([0, 0, 1, 1]))
    np.testing.assert_array_equal(plain.edge_servers[0].model, plain.edge_servers[1].model)

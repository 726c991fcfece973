"""Engines with worker processes, several of them in one process."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from fedmuster.training.data.built_in import Digits
from fedmuster.training.networks import OwnModel
from fedmuster.training.training import Training

TRAINING = Training(
    data=Digits(train_limit=120, test_limit=40),
    model=OwnModel(factory="tests.experiments.tiny_network:make"),
)


@pytest.mark.slow
def test_an_engine_does_not_overwrite_the_data_of_another_s_workers() -> None:
    """Memory that they share must not be given away while they read it."""
    clients = np.arange(8)
    alone = TRAINING.start(num_clients=8, seed=2)
    expected = alone.engine.train(alone.parameters, clients, 1)
    with closing(replace(TRAINING, workers=2).start(num_clients=8, seed=2)) as first:
        for number in range(2):
            with closing(replace(TRAINING, workers=2).start(num_clients=6 - number, seed=9)):
                found = first.engine.train(first.parameters, clients, 1)
            np.testing.assert_array_equal(found.deltas, expected.deltas)

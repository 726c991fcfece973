"""What is learned, the same for everybody who chooses clients."""

from collections.abc import Mapping
from typing import Final

import numpy as np
from flwr.app import ArrayRecord
from flwr.app.user_config import UserConfigValue

from fedmuster.learning.data import Digits
from fedmuster.learning.local import LocalSGD
from fedmuster.learning.models import MLP
from fedmuster.learning.partition import DirichletLabels
from fedmuster.learning.records import Parameters
from fedmuster.learning.trainer import Trainer
from fedmuster.learning.training import Training

TRAINING: Final = Training(
    data=Digits(),
    partition=DirichletLabels(alpha=0.3),
    model=MLP(hidden=(32,)),
    local=LocalSGD(learning_rate=0.05, batch_size=20, epochs=1),
)
CLIENT: Final = "client"
"""The metric with the number of the client that trained."""


def start(config: Mapping[str, UserConfigValue]) -> Trainer:
    """The data, dealt as the seed says, and the model."""
    return TRAINING.start(num_clients=int(config["nodes"]), seed=int(config["seed"]))


def to_arrays(model: Parameters) -> ArrayRecord:
    """The model as Flower sends it."""
    return ArrayRecord([model])


def to_model(arrays: ArrayRecord) -> Parameters:
    """And back."""
    (model,) = arrays.to_numpy_ndarrays()
    return np.asarray(model, dtype=np.float32)

"""What is learned, the same for everybody who chooses clients."""

from collections.abc import Mapping
from typing import Final

from fedmuster.training.data import Digits
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP
from fedmuster.training.partition import DirichletLabels
from fedmuster.training.trainer import Trainer
from fedmuster.training.training import Training

LABEL_ALPHA: Final = 0.5
HIDDEN: Final = 32
CLIENT: Final = "client"
"""The metric with the number of the client that trained."""


def start(config: Mapping[str, bool | float | int | str]) -> Trainer:
    """The data, dealt as the seed of the run's settings says, and the model."""
    training = Training(
        data=Digits(),
        partition=DirichletLabels(alpha=LABEL_ALPHA),
        model=MLP(hidden=(HIDDEN,)),
        local=LocalSGD(learning_rate=0.05, batch_size=20, epochs=1),
    )
    return training.start(num_clients=int(config["nodes"]), seed=int(config["seed"]))

"""What trains a model: NumPy for linear models and MLPs, PyTorch for everything else."""

from typing import Protocol

import numpy as np

from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.learning.records import Evaluation, Parameters, Updates


class Engine(Protocol):
    """A model on federated data. Every method is a pure function of its arguments."""

    @property
    def num_trainable(self) -> int:
        """How many parameters are trained; those behind them in the vector are statistics of batch
        normalisation, which a server averages whatever its optimiser."""
        ...

    def initial(self) -> Parameters:
        """The model before the first round, from the engine's seed."""
        ...

    def train(self, parameters: Parameters, clients: IntArray, round_number: int) -> Updates:
        """Train these clients, each from the same global ``parameters``, on its own data."""
        ...

    def losses(
        self, parameters: Parameters, clients: IntArray, *, batch_size: int | None = None
    ) -> FloatArray:
        """[n], mean loss of ``parameters`` on each client's data, or on some of its samples."""
        ...

    def evaluate(self, parameters: Parameters) -> Evaluation:
        """The model on the test set."""
        ...

    def close(self) -> None:
        """End worker processes, if there are any."""
        ...


def check_call(
    engine: str, parameters: Parameters, size: int, clients: IntArray, num_clients: int
) -> None:
    """Complain unless a model of ``size`` and clients among ``num_clients`` are given."""
    if parameters.shape != (size,) or parameters.dtype != np.float32:
        raise DataError(
            f"{engine}: parameters have shape {parameters.shape} and type {parameters.dtype}, "
            f"expected ({size},) and float32"
        )
    if len(clients) and not 0 <= clients.min() <= clients.max() < num_clients:
        raise DataError(f"{engine}: clients {clients} are not all among 0 … {num_clients - 1}")

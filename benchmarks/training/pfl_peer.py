"""Apple's pfl-research: federated averaging in its simulated backend, with PyTorch.

pfl never shuffles a user's data, so users are handed their samples in the order of the round.
"""

from collections.abc import Iterator

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.training.turns import Turns
from benchmarks.training.workloads import Tensors, Workload
from fedmuster.core.records import IntArray


class WithLoss(nn.Module):
    """A network as pfl wants it."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.network = workload.network()
        self._workload = workload

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of a batch."""
        return self._workload.loss(self.network(inputs), targets)

    def metrics(self, _inputs: Tensor, _targets: Tensor) -> dict[str, float]:
        """Nothing: evaluation is off."""
        return {}


def play(turns: Turns, _name: str, workload: Workload) -> Tensors:
    """Train with pfl's own loop, without evaluation."""
    data = workload.data()
    inputs, targets = torch.from_numpy(data.inputs), torch.from_numpy(data.targets)

    def users() -> Iterator[tuple[int, IntArray]]:
        for number in turns:
            clients = workload.cohort(number)
            orders = workload.orders(number, clients, data.sizes[clients])
            yield from zip(clients.tolist(), orders, strict=True)

    def dataset(user: tuple[int, IntArray]) -> PyTorchTensorDataset:
        client, order = user
        rows = torch.from_numpy(data.offsets[client] + order)
        return PyTorchTensorDataset((inputs[rows], targets[rows]), user_id=str(client))

    sampled = users()
    training = FederatedDataset(dataset, sampled.__next__)
    network = WithLoss(workload)
    trained = FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=workload.total_rounds,
            evaluation_frequency=workload.total_rounds + 1,
            train_cohort_size=workload.cohort_size,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(
            training_data=training, val_data=training, postprocessors=[WeightByDatapoints()]
        ),
        model=PyTorchModel(
            model=network,
            local_optimizer_create=torch.optim.SGD,
            central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
        ),
        model_train_params=NNTrainHyperParams(
            local_learning_rate=workload.local.learning_rate,
            local_num_epochs=1,
            local_batch_size=workload.batch_size,
        ),
        send_metrics_to_platform=False,
    )
    next(sampled, None)  # ends the last turn
    return [tensor.detach().numpy() for tensor in trained.pytorch_model.parameters()]

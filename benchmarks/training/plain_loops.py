"""Federated averaging as a loop over clients in PyTorch: the plain one, and a lean one."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.training.turns import Turns
from benchmarks.training.workloads import Tensors, Workload
from fedmuster.core.records import IntArray

Loop = Callable[[nn.Module, Tensor, Tensor, IntArray, Workload], None]


def with_data_loader(
    network: nn.Module, inputs: Tensor, targets: Tensor, order: IntArray, workload: Workload
) -> None:
    """Train on a client's samples as most people write it."""
    starts = range(0, len(order), workload.batch_size)
    loader = DataLoader(
        TensorDataset(inputs, targets),
        batch_sampler=[order[start : start + workload.batch_size].tolist() for start in starts],
    )
    optimiser = torch.optim.SGD(network.parameters(), lr=workload.local.learning_rate)
    for batch, labels in loader:
        optimiser.zero_grad()
        torch.autograd.backward(workload.loss(network(batch), labels))
        optimiser.step()


def with_slices(
    network: nn.Module, inputs: Tensor, targets: Tensor, order: IntArray, workload: Workload
) -> None:
    """The same without a loader and an optimiser: slices of tensors, one call for all steps."""
    rows = torch.from_numpy(order)
    parameters: list[Tensor] = list(network.parameters())
    for batch, labels in zip(
        torch.split(inputs[rows], workload.batch_size),
        torch.split(targets[rows], workload.batch_size),
        strict=True,
    ):
        loss = workload.loss(network(batch), labels)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-workload.local.learning_rate)


LOOPS: dict[str, Loop] = {"data loader": with_data_loader, "slices": with_slices}


def play(
    turns: Turns, _name: str, workload: Workload, *, loop: str, channels_last: bool = False
) -> Tensors:
    """Train one client after the other; the new model is the mean of theirs, by samples."""
    data = workload.data()
    inputs, targets = torch.from_numpy(data.inputs), torch.from_numpy(data.targets)
    network = workload.network()
    if channels_last:
        inputs = inputs.to(memory_format=torch.channels_last)
        for parameter in network.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.to(memory_format=torch.channels_last)
    parameters: list[Tensor] = list(network.parameters())
    model = [parameter.detach().clone() for parameter in parameters]
    slices = [slice(*bounds) for bounds in pairwise(data.offsets.tolist())]
    for number in turns:
        clients = workload.cohort(number)
        sizes = data.sizes[clients]
        mean = [torch.zeros_like(tensor) for tensor in model]
        for client, size, order in zip(
            clients, sizes, workload.orders(number, clients, sizes), strict=True
        ):
            own = slices[client]
            with torch.no_grad():
                torch._foreach_copy_(parameters, model)
            LOOPS[loop](network, inputs[own], targets[own], order, workload)
            with torch.no_grad():
                torch._foreach_add_(mean, parameters, alpha=float(size / sizes.sum()))
        model = mean
    return [tensor.numpy() for tensor in model]

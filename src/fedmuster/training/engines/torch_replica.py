"""What one process does for the PyTorch engine: train a client, measure a model. Needs PyTorch."""

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedmuster.core.arrays import IntArray
from fedmuster.core.errors import ConfigError
from fedmuster.core.streams import LOSSES, MODEL, TEST, TRAIN
from fedmuster.training.engines.torch_modules import TorchModel, seed_torch
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.training_records import FederatedData, Parameters


class Builds(Protocol):
    """A description of a network, see :mod:`fedmuster.training.networks`."""

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """The module."""
        ...


Build = Builds | Callable[[], nn.Module]

Task = tuple[Any, ...]
"""The name of a method of :class:`Replica` and its arguments."""

TRAIN_SIGNALS = ("loss", "root_mean_square_loss", "update_norm")
GAIN_SIGNALS = ("loss_before", "loss_after", "accuracy_before", "accuracy_gain")

BLOCK = 250
"""Samples that are evaluated at once: more would fall out of the processor's cache."""


class Replica:
    """A model with all data, which trains one client at a time.

    Every task is a function of its arguments and of the global model, whatever was done before.

    Args:
        build: makes the module.
        data: what the clients own.
        local: how they train.
        seed: of the initial model and of dropout.
    """

    def __init__(self, build: Build, data: FederatedData, local: LocalSGD, seed: int) -> None:
        self._data, self._local, self._seed = data, local, seed
        self._inputs, self._targets = _tensor(data.inputs), _tensor(data.targets)
        self._test_inputs = _tensor(data.test_inputs)
        self._test_targets = _tensor(data.test_targets)
        if isinstance(build, nn.Module):
            raise ConfigError(
                f"TorchEngine: build is the module {type(build).__name__}, expected a function "
                "that makes one: write lambda: module, or give the class"
            )
        seed_torch(seed, MODEL)
        module = build() if callable(build) else build.build(data.input_shape, data.num_classes)
        self.model = TorchModel(module, data.input_shape, data.num_classes or 1)
        self.initial = self.model.vector()
        size = self.model.size
        self.use(np.empty(size, dtype=np.float32), np.empty(size, dtype=np.float32))

    def use(self, start: Parameters, delta: Parameters) -> None:
        """Read the global model from ``start`` and write updates into ``delta`` from now on."""
        self.start, self.delta = start, delta
        self._start = torch.from_numpy(start)
        self._start_views = self.model.views(self._start)
        self._delta = torch.from_numpy(delta)
        self._delta_views = self.model.views(self._delta)

    def run(self, task: Task) -> list[float]:
        """Do a task: :meth:`train`, :meth:`losses` or :meth:`test`."""
        name, *arguments = task
        method: Callable[..., list[float]] = getattr(self, name)
        return method(*arguments)

    def train(
        self, client: int, round_number: int, batch_rows: IntArray, batch_sizes: IntArray
    ) -> list[float]:
        """Train a client: its update into ``self.delta``, its signals as the result.

        Args:
            client: who.
            round_number: when.
            batch_rows: its row of :class:`~fedmuster.training.local_sgd.Batches`,
            batch_sizes: and of their sizes.
        """
        self.model.load(self._start_views)
        first, behind = self._data.offsets[client : client + 2]
        mine = torch.arange(first, behind)
        gain = self._local.measure_gain
        before = self._measure(self._inputs, self._targets, mine) if gain else (0.0, 0.0)
        seed_torch(self._seed, TRAIN, round_number, client)
        rows = torch.from_numpy(batch_rows + first)
        plan = [rows[step, :size] for step, size in enumerate(batch_sizes.tolist()) if size]
        losses = self._descend(plan, self._local.rate(round_number))
        self.model.save(self._delta_views)
        self._delta.sub_(self._start)
        norm = torch.linalg.vector_norm(
            self._delta[: self.model.num_trainable], dtype=torch.float64
        )
        signals = [_mean(losses), _mean(losses.square()) ** 0.5, norm.item()]
        if gain:
            after = self._measure(self._inputs, self._targets, mine)
            count = max(len(mine), 1)
            signals += [before[0] / count, after[0] / count]
            signals += [before[1] / count, (after[1] - before[1]) / count]
        return signals

    def losses(self, client: int, rows: IntArray) -> list[float]:
        """Mean loss of the global model on some samples of a client, counted from its first."""
        self.model.load(self._start_views)
        seed_torch(self._seed, LOSSES, client)
        some = torch.from_numpy(rows + self._data.offsets[client])
        total, _ = self._measure(self._inputs, self._targets, some)
        return [total / max(len(some), 1)]

    def test(self, begin: int, end: int) -> list[float]:
        """Sum of losses and number of hits of the global model on some test samples."""
        self.model.load(self._start_views)
        seed_torch(self._seed, TEST, begin)
        rows = torch.arange(begin, end)
        return list(self._measure(self._test_inputs, self._test_targets, rows))

    def _descend(self, plan: list[Tensor], rate: float) -> Tensor:
        """SGD as :class:`LocalSGD` writes it; the loss of every sample when it was trained on."""
        local, model = self._local, self.model
        weights = [p.detach() for p in model.trained]
        start = self._start_views[: len(weights)]
        velocities: list[Tensor | None] = [None] * len(weights)
        seen = [torch.empty(0)]
        model.train()
        for rows in plan:
            if len(rows) == 1:
                model.train_on_single_sample()
            losses = self._loss(model.outputs(self._inputs[rows]), self._targets[rows])
            for parameter in model.trained:
                parameter.grad = None
            torch.autograd.backward(losses, torch.full_like(losses, 1.0 / len(losses)))
            seen.append(losses.detach())
            if len(rows) == 1:
                model.train()
            # A parameter that the forward pass did not use stays as it is, as in torch.optim.
            used = [i for i, parameter in enumerate(model.trained) if parameter.grad is not None]
            moving = [weights[i] for i in used]
            steps = [g for p in model.trained if (g := p.grad) is not None]
            if local.weight_decay:
                torch._foreach_add_(steps, moving, alpha=local.weight_decay)
            if local.proximal:
                away = torch._foreach_sub(moving, [start[i] for i in used])
                torch._foreach_add_(steps, away, alpha=local.proximal)
            if local.momentum:
                for place, i in enumerate(used):
                    velocity = velocities[i]
                    if velocity is not None:
                        steps[place] = velocity.mul_(local.momentum).add_(steps[place])
                    velocities[i] = steps[place]
            torch._foreach_add_(moving, steps, alpha=-rate)
        return torch.cat(seen).double()

    def _measure(self, inputs: Tensor, targets: Tensor, rows: Tensor) -> tuple[float, float]:
        """Sum of losses and number of hits of the module as it is on some samples."""
        self.model.eval()
        loss = torch.zeros((), dtype=torch.float64)
        hits = torch.zeros((), dtype=torch.int64)
        with torch.no_grad():
            for block in torch.split(rows, BLOCK):
                # Indexing copies: kernels may round otherwise where memory is aligned otherwise.
                outputs, expected = self.model.outputs(inputs[block]), targets[block]
                loss += self._loss(outputs, expected).double().sum()
                if self._data.num_classes:
                    hits += (outputs.argmax(dim=1) == expected).sum()
        return loss.item(), float(hits.item())

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Of each sample."""
        if self._data.num_classes:
            return functional.cross_entropy(outputs, targets, reduction="none")
        return functional.mse_loss(outputs.reshape(-1), targets, reduction="none")


def _mean(losses: Tensor) -> float:
    """Of a client without data: 0, for it has nothing to gain."""
    return losses.mean().item() if len(losses) else 0.0


def _tensor(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Tensor:
    with warnings.catch_warnings():
        # PyTorch warns of arrays that are read-only; nobody writes into the data.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)

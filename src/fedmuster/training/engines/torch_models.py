"""PyTorch models: a replica that trains one client at a time, modules as vectors, ResNet-18."""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import numpy as np

from fedmuster.core.arrays import IntArray
from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.core.streams import LOSSES, MODEL, TEST, TRAIN, stream
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.training_records import FederatedData, Parameters

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
    from torch.nn.modules.batchnorm import _BatchNorm
except ImportError as error:
    raise MissingExtraError("torch", extra="torch", purpose="training this model") from error


class Builds(Protocol):
    """A description of a network, see :mod:`fedmuster.training.networks`."""

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """The module."""


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

        ``batch_rows`` and ``batch_sizes`` are those of the client in
        :class:`~fedmuster.training.local_sgd.Batches`.
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
        model.module.train()
        for rows in plan:
            if len(rows) == 1:
                model.train_on_single_sample()
            losses = self._loss(model.outputs(self._inputs[rows]), self._targets[rows])
            for parameter in model.trained:
                parameter.grad = None
            torch.autograd.backward(losses, torch.full_like(losses, 1.0 / len(losses)))
            seen.append(losses.detach())
            if len(rows) == 1:
                model.module.train()
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
        self.model.module.eval()
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
        if self._data.num_classes:
            return functional.cross_entropy(outputs, targets, reduction="none")
        return functional.mse_loss(outputs.reshape(-1), targets, reduction="none")


def _mean(losses: Tensor) -> float:
    return losses.mean().item() if len(losses) else 0.0


def _tensor(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Tensor:
    with warnings.catch_warnings():
        # PyTorch warns of arrays that are read-only; nobody writes into the data.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


class TorchModel:
    """A module and the order of its numbers: parameters that are trained, then statistics.

    Statistics are the floating-point buffers that the module saves (running means and variances of
    batch normalisation). Everything else (counters, constants, frozen parameters) stays as it was
    made. The module is copied; its parameters must be float32.
    """

    def __init__(self, module: nn.Module, input_shape: tuple[int, ...], num_outputs: int) -> None:
        self.module = copy.deepcopy(module)
        self.trained = [p for p in self.module.parameters() if p.requires_grad]
        wrong = {p.dtype for p in self.module.parameters()} - {torch.float32}
        if wrong or not self.trained:
            raise ConfigError(
                f"{type(module).__name__}: expected parameters of type torch.float32, at least one "
                f"of them trainable; got {', '.join(map(str, wrong)) or 'none'}"
            )
        samples = torch.zeros(2, *input_shape)
        self._lonely_norms, last = self._try_out(samples, num_outputs)
        self._channels_last = self._put_channels_last_if_possible(samples)
        saved = self.module.state_dict(keep_vars=True)
        buffers = list(self.module.named_buffers())
        self._statistics = [b for name, b in buffers if name in saved and b.is_floating_point()]
        known = set(map(id, self._statistics))
        self._others = [(b, b.clone()) for _, b in buffers if id(b) not in known]
        self._tensors = [*(p.detach() for p in self.trained), *self._statistics]
        self.num_trainable = sum(p.numel() for p in self.trained)
        self.size = sum(t.numel() for t in self._tensors)
        self.output_bias = self._places(None if last is None else last.bias)
        """The places in the vector of the biases of the layer that makes the outputs, if it is
        linear and they are trained."""

    def views(self, vector: Tensor) -> list[Tensor]:
        """The flat ``vector`` cut into the shapes of the module's tensors, without a copy."""
        parts = torch.split(vector, [t.numel() for t in self._tensors])
        return [part.view(t.shape) for part, t in zip(parts, self._tensors, strict=True)]

    def load(self, views: list[Tensor]) -> None:
        """Set the module to the vector that ``views`` cut up."""
        torch._foreach_copy_(self._tensors, views)
        for buffer, original in self._others:
            buffer.copy_(original)

    def save(self, views: list[Tensor]) -> None:
        """Write the module into the vector that ``views`` cut up."""
        torch._foreach_copy_(views, self._tensors)

    def vector(self) -> Parameters:
        """The module as it is now."""
        vector = torch.empty(self.size)
        self.save(self.views(vector))
        return np.asarray(vector.numpy())

    def train_on_single_sample(self) -> None:
        """Use running statistics where a batch of one leaves batch normalisation one value.

        One value per channel has no variance, and PyTorch refuses to train on it.
        """
        for norm in self._lonely_norms:
            norm.eval()

    def outputs(self, inputs: Tensor) -> Tensor:
        """The module's outputs for some samples."""
        outputs: Tensor = self.module(_channels_last(inputs) if self._channels_last else inputs)
        return outputs

    def _places(self, parameter: Tensor | None) -> slice | None:
        """Where the numbers of a parameter stand in the vector; None if it is not trained."""
        begin = 0
        for each in self.trained:
            if each is parameter:
                return slice(begin, begin + each.numel())
            begin += each.numel()
        return None

    def _try_out(
        self, samples: Tensor, num_outputs: int
    ) -> tuple[list[nn.Module], nn.Linear | None]:
        """Check the outputs; which batch norms see one value per channel and sample, and which
        linear layer makes the outputs."""
        lonely, made = [], []

        def look(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if inputs[0].numel() == len(samples) * inputs[0].shape[1]:
                lonely.append(norm)

        def note(layer: nn.Module, _: tuple[Tensor, ...], result: Tensor) -> None:
            if isinstance(layer, nn.Linear):
                made.append((layer, result))

        modules = list(self.module.modules())
        norms = [m for m in modules if isinstance(m, _BatchNorm)]
        hooks = [norm.register_forward_pre_hook(look) for norm in norms]
        hooks += [m.register_forward_hook(note) for m in modules if isinstance(m, nn.Linear)]
        self.module.eval()
        name, shape = type(self.module).__name__, tuple(samples.shape[1:])
        try:
            with torch.no_grad():
                outputs = self.module(samples)
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
            raise ConfigError(
                f"{name} does not take samples of shape {shape}: {error}; fit it to the data"
            ) from error
        for hook in hooks:
            hook.remove()
        expected = (len(samples), num_outputs)
        fitting = {expected, expected[:1]} if num_outputs == 1 else {expected}
        if not isinstance(outputs, Tensor) or tuple(outputs.shape) not in fitting:
            got = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
            raise ConfigError(
                f"{name} turns {len(samples)} samples of shape {shape} into {got}, expected a "
                f"tensor of shape {expected}: one number per class (1 in a regression)"
            )
        makers = [layer for layer, result in made if result is outputs]
        return lonely, makers[-1] if makers else None

    def _put_channels_last_if_possible(self, samples: Tensor) -> bool:
        """Put the channels last in memory, where convolutions are faster for it.

        A module that calls ``view`` on images may refuse; it keeps the usual order.
        """
        if samples.dim() != 4 or all(p.dim() != 4 for p in self.module.parameters()):
            return False
        trial = copy.deepcopy(self.module).train()
        _put_channels_last(trial)
        try:
            trial(_channels_last(samples))
        except RuntimeError:
            return False
        _put_channels_last(self.module)
        return True


def _put_channels_last(module: nn.Module) -> None:
    for parameter in module.parameters():
        if parameter.dim() == 4:
            parameter.data = _channels_last(parameter.data)


def _channels_last(images: Tensor) -> Tensor:
    # Not contiguous(), which leaves images of one channel as they are: their layers' outputs too.
    return images.to(memory_format=torch.channels_last)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch calculate in one thread meanwhile: with several the bits depend on how many."""
    threads = torch.get_num_threads()
    if threads != 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if threads != 1:
            torch.set_num_threads(threads)


own_randomness = partial(torch.random.fork_rng, devices=[])
"""A context that restores PyTorch's global random stream afterwards."""


def seed_torch(seed: int, name: str, *key: int) -> None:
    """Start PyTorch's global random stream (initial weights, dropout) from one of ours."""
    torch.default_generator.manual_seed(int(stream(seed, name, *key).integers(2**63)))


class _Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, 3, stride)
        self.second = _convolution(outputs, outputs, 3, 1)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else _convolution(inputs, outputs, 1, stride)

    def forward(self, images: Tensor) -> Tensor:
        residual = self.second(functional.relu(self.first(images)))
        return functional.relu(residual + self.shortcut(images))


def resnet18(channels: int, num_outputs: int) -> nn.Module:
    """Four stages of two blocks (64, 128, 256, 512 channels) between a stem and a mean.

    References:
        K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016.
    """
    layers: list[nn.Module] = [_convolution(channels, 64, 3, 1), nn.ReLU()]
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_Block(width, outputs, stride), _Block(outputs, outputs, 1)]
        width = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_outputs)]
    return nn.Sequential(*layers)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )

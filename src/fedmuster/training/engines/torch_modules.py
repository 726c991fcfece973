"""Convolutional and dense layers, one after the other. Needs PyTorch."""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from torch import Tensor, nn
from torch.nn import functional

from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.core.streams import stream
from fedmuster.training.networks import Convolution, side_after
from fedmuster.training.training_records import Parameters


def stacked(
    input_shape: tuple[int, ...],
    convolutions: Sequence[Convolution],
    hidden: Sequence[int],
    hidden_then: str,
    *,
    num_outputs: int,
) -> nn.Module:
    """Convolutions, then hidden dense layers (each followed by ``hidden_then``), then outputs."""
    layers: list[nn.Module] = []
    shape = input_shape
    for convolution in convolutions:
        shape = _convolve(layers, shape, convolution)
    layers.append(nn.Flatten())
    width = math.prod(shape)
    for units in hidden:
        layers.append(nn.Linear(width, units))
        layers += [
            nn.ReLU() if step == "relu" else nn.BatchNorm1d(units) for step in hidden_then.split()
        ]
        width = units
    layers.append(nn.Linear(width, num_outputs))
    return nn.Sequential(*layers)


def _convolve(
    layers: list[nn.Module], shape: tuple[int, ...], layer: Convolution
) -> tuple[int, ...]:
    """Append a convolution and what follows it; the shape of its output."""
    sides = [side_after(side, layer) for side in shape[1:]]
    padding = layer.kernel // 2 if layer.padded else 0
    layers.append(nn.Conv2d(shape[0], layer.channels, layer.kernel, padding=padding))
    for step in layer.then.split():
        if step == "norm":
            layers.append(nn.BatchNorm2d(layer.channels))
        elif step == "relu":
            layers.append(nn.ReLU())
        else:
            height, width = (2 if pooled else 1 for _, pooled in sides)
            layers.append(nn.MaxPool2d((height, width)))
    return layer.channels, *(side for side, _ in sides)


# ResNet-18 in the form for small images. Needs PyTorch.


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


# A PyTorch module, whatever it is made of, as one flat vector.

try:
    import torch
    from torch import Tensor, nn
    from torch.nn.modules.batchnorm import _BatchNorm
except ImportError as error:
    raise MissingExtraError("torch", extra="torch", purpose="training this model") from error


class TorchModel:
    """A module and the order of its numbers: parameters that are trained, then statistics.

    Statistics are the floating-point buffers that the module saves (running means and variances of
    batch normalisation). Everything else (counters, constants, frozen parameters) stays as the
    module was made with.

    Args:
        module: copied, so yours does not change; its parameters must be float32.
        input_shape: of one sample.
        num_outputs: how many numbers a sample must give.
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
        self._lonely_norms = self._try_out(samples, num_outputs)
        self._channels_last = self._put_channels_last_if_possible(samples)
        saved = self.module.state_dict(keep_vars=True)
        buffers = list(self.module.named_buffers())
        self._statistics = [b for name, b in buffers if name in saved and b.is_floating_point()]
        known = set(map(id, self._statistics))
        self._others = [(b, b.clone()) for _, b in buffers if id(b) not in known]
        self._tensors = [*(p.detach() for p in self.trained), *self._statistics]
        self.num_trainable = sum(p.numel() for p in self.trained)
        self.size = sum(t.numel() for t in self._tensors)

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

    def train(self) -> None:
        """Make ready to train on batches of several samples."""
        self.module.train()

    def train_on_single_sample(self) -> None:
        """Make ready to train on a batch of one.

        Where that leaves batch normalisation but one value per channel there is no variance, and
        PyTorch refuses: the running statistics stand in.
        """
        for norm in self._lonely_norms:
            norm.eval()

    def eval(self) -> None:
        """Make ready to evaluate."""
        self.module.eval()

    def outputs(self, inputs: Tensor) -> Tensor:
        """What the module makes of some samples."""
        outputs: Tensor = self.module(_channels_last(inputs) if self._channels_last else inputs)
        return outputs

    def _try_out(self, samples: Tensor, num_outputs: int) -> list[nn.Module]:
        """Check the outputs; which batch norms see one value per channel and sample."""
        lonely = []

        def look(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if inputs[0].numel() == len(samples) * inputs[0].shape[1]:
                lonely.append(norm)

        norms = [m for m in self.module.modules() if isinstance(m, _BatchNorm)]
        hooks = [norm.register_forward_pre_hook(look) for norm in norms]
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
        return lonely

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


@contextmanager
def own_randomness() -> Iterator[None]:
    """Give PyTorch's global random stream back as it was."""
    with torch.random.fork_rng(devices=[]):
        yield


def seed_torch(seed: int, name: str, *key: int) -> None:
    """Start PyTorch's global random stream (initial weights, dropout) from one of ours."""
    torch.default_generator.manual_seed(int(stream(seed, name, *key).integers(2**63)))

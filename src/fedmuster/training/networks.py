"""The networks of the papers, and your own. PyTorch is imported only to build one."""

import inspect
import math
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from fedmuster.core.config import check_types
from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.training.models import MODELS, Network, OwnFactory

if TYPE_CHECKING:
    from torch import nn


class Convolution(NamedTuple):
    """A convolutional layer and what follows it.

    Args:
        channels: of its output.
        kernel: its width and height.
        then: any of "norm" (batch normalisation), "relu" and "pool" (maximum over 2×2), in order.
            A maximum commutes with ReLU, values and gradients alike, so "pool relu" is "relu pool"
            for a quarter of the work.
        padded: whether the image keeps its size ("same" padding) or loses ``kernel - 1`` pixels.
    """

    channels: int
    kernel: int
    then: str
    padded: bool = True

    @classmethod
    def each(cls, channels: Iterable[int], *layer: Any) -> tuple["Convolution", ...]:
        """Layers that differ only in their channels."""
        return tuple(cls(number, *layer) for number in channels)

    def side_after(self, side: int) -> tuple[int, bool]:
        """The width (or height) of an image after this layer, and whether it was pooled."""
        side -= 0 if self.padded else self.kernel - 1
        pooled = "pool" in self.then and side > 1
        return side // 2 if pooled else side, pooled


class StackedNetwork(Network):
    """Convolutions of images [channels, height, width], then hidden dense layers, then outputs."""

    __slots__ = ()

    convolutions: ClassVar[tuple[Convolution, ...]] = ()
    """Without any, samples may have any shape."""
    hidden: ClassVar[tuple[int, ...]]
    """Units of each hidden layer."""
    after_hidden: ClassVar[str] = "relu"
    """Any of "relu" and "norm", in order: what follows each hidden layer."""

    @property
    def normalises(self) -> bool:
        """Whether "norm" has an effect."""
        return True

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """The module, with fresh parameters from PyTorch's random stream."""
        if self.convolutions:
            _require_image(self, input_shape)
            _require_room(self, input_shape)
        _require_torch(self)
        from torch import nn

        layers: list[nn.Module] = []
        shape = input_shape
        for layer in self.convolutions:
            padding = layer.kernel // 2 if layer.padded else 0
            layers.append(nn.Conv2d(shape[0], layer.channels, layer.kernel, padding=padding))
            after = [layer.side_after(side) for side in shape[1:]]
            shape = (layer.channels, *(side for side, _ in after))
            pooling = nn.MaxPool2d(tuple(2 if pooled else 1 for _, pooled in after))
            steps = {"norm": nn.BatchNorm2d(shape[0]), "relu": nn.ReLU(), "pool": pooling}
            layers += [steps[step] for step in self._steps(layer.then)]
        layers.append(nn.Flatten())
        width = math.prod(shape)
        for units in self.hidden:
            layers.append(nn.Linear(width, units))
            layers += [
                nn.ReLU() if step == "relu" else nn.BatchNorm1d(units)
                for step in self._steps(self.after_hidden)
            ]
            width = units
        layers.append(nn.Linear(width, num_classes or 1))
        return nn.Sequential(*layers)

    def _steps(self, text: str) -> list[str]:
        return [step for step in text.split() if step != "norm" or self.normalises]


@MODELS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class SmallCNN(StackedNetwork):
    """Two 5×5 convolutions (16 and 32 channels), each pooled, and a hidden layer of 64."""

    name: ClassVar[str] = "small-cnn"
    convolutions: ClassVar[tuple[Convolution, ...]] = Convolution.each((16, 32), 5, "pool relu")
    hidden: ClassVar[tuple[int, ...]] = (64,)


@MODELS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class BSFLCNN(StackedNetwork):
    """BSFL's CNN for Fashion-MNIST and CIFAR-10.

    Deviations:
        1. The paper (§VI) says "a CNN" and no more. The layers are those of its authors' published
           code: 3×3 convolutions of 32, 64, 128 and 128 channels with batch normalisation, all but
           the last pooled, and hidden layers of 256 and 128.

    References:
        D. Ben Ami, K. Cohen, Q. Zhao, "Client Selection for Generalization in Accelerated Federated
        Learning: A Multi-Armed Bandit Approach", IEEE Access 2025.
    """

    name: ClassVar[str] = "bsfl-cnn"
    convolutions: ClassVar[tuple[Convolution, ...]] = (
        *Convolution.each((32, 64, 128), 3, "norm pool relu"),
        Convolution(128, 3, "norm relu"),
    )
    hidden: ClassVar[tuple[int, ...]] = (256, 128)


@MODELS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class PAUSEMLP(StackedNetwork):
    """PAUSE's fully connected network for MNIST, 784-32-16-10 (§V-A)."""

    name: ClassVar[str] = "pause-mlp"
    hidden: ClassVar[tuple[int, ...]] = (32, 16)


@dataclass(frozen=True, kw_only=True, slots=True)
class _PAUSECNN(StackedNetwork):
    after_hidden: ClassVar[str] = "relu norm"

    batch_norm: bool = True

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def normalises(self) -> bool:
        return self.batch_norm


@MODELS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class PAUSECNN3(_PAUSECNN):
    """PAUSE's smaller CNN for CIFAR-10 (§V-A).

    Args:
        batch_norm: as in the authors' code. Its running statistics cannot be released with
            noise, so private training needs it off.

    Deviations:
        1. The paper counts three convolutions and two hidden layers and gives no sizes. Those of
           its authors' published code are taken: 3×3 convolutions of 32, 64 and 128 channels
           without padding, each pooled and batch-normalised, and *three* hidden layers of 128, 64
           and 32, batch-normalised too.
    """

    name: ClassVar[str] = "pause-cnn-3"
    convolutions: ClassVar[tuple[Convolution, ...]] = Convolution.each(
        (32, 64, 128), 3, "pool relu norm", False
    )
    hidden: ClassVar[tuple[int, ...]] = (128, 64, 32)


@MODELS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class PAUSECNN5(_PAUSECNN):
    """PAUSE's larger CNN for CIFAR-10 (§V-A): five convolutions and two hidden layers.

    Args:
        batch_norm: as in the authors' code. Its running statistics cannot be released with
            noise, so private training needs it off.

    Deviations:
        1. The paper gives no sizes. Those of its authors' published code are taken: convolutions
           without padding, 3×3 of 32, 32, 64, 64 and 4×4 of 128 channels, pooled after the second,
           fourth and fifth, batch-normalised after all but the second; hidden layers of 64 and 32.
        2. Of images of 28×28 one pixel is left before the last pooling, which is then left out.
    """

    name: ClassVar[str] = "pause-cnn-5"
    convolutions: ClassVar[tuple[Convolution, ...]] = (
        Convolution(32, 3, "relu norm", padded=False),
        Convolution(32, 3, "pool relu", padded=False),
        Convolution(64, 3, "relu norm", padded=False),
        Convolution(64, 3, "pool relu norm", padded=False),
        Convolution(128, 4, "pool relu norm", padded=False),
    )
    hidden: ClassVar[tuple[int, ...]] = (64, 32)


@MODELS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class MABCSCNN(StackedNetwork):
    """MAB-CS's (and FedCS's) network for CIFAR-10: six convolutions, three dense layers (§IV-B).

    3×3 convolutions of 32, 32, 64, 64, 128 and 128 channels, each through ReLU and then batch
    normalisation, and hidden layers of 512 and 192.

    Deviations:
        1. The paper pools after every two convolutions and counts 4.6 million parameters (18.3 MB).
           These contradict each other: three poolings leave 1.4 million. Pooling after the first
           and the second pair alone gives 4,583,146 parameters, 18.3 MB, so that is what is built.

    References:
        N. Yoshida, T. Nishio, M. Morikura, K. Yamamoto, "MAB-based Client Selection for Federated
        Learning with Uncertain Resources in Mobile Networks", IEEE Globecom Workshops 2020.
    """

    name: ClassVar[str] = "mab-cs-cnn"
    convolutions: ClassVar[tuple[Convolution, ...]] = (
        Convolution(32, 3, "relu norm"),
        Convolution(32, 3, "relu norm pool"),
        Convolution(64, 3, "relu norm"),
        Convolution(64, 3, "relu norm pool"),
        *Convolution.each((128, 128), 3, "relu norm"),
    )
    hidden: ClassVar[tuple[int, ...]] = (512, 192)


@MODELS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class COCSCNN(StackedNetwork):
    """COCS's network for CIFAR-10: two pooled 5×5×64 convolutions, hidden layers of 384 and 192.

    Deviations:
        1. The paper does not say whether images are padded; here they are ("same" padding).
    """

    name: ClassVar[str] = "cocs-cnn"
    convolutions: ClassVar[tuple[Convolution, ...]] = Convolution.each((64, 64), 5, "pool relu")
    hidden: ClassVar[tuple[int, ...]] = (384, 192)


@MODELS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class ResNet18(Network):
    """ResNet-18 for small images: a 3×3 stem without pooling (He et al. 2016, §4.2), 11.2 M."""

    name: ClassVar[str] = "resnet-18"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """The module, with fresh parameters from PyTorch's random stream."""
        _require_image(self, input_shape)
        _require_torch(self)
        from fedmuster.training.engines.torch_models import resnet18

        return resnet18(input_shape[0], num_classes or 1)


@MODELS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class OwnModel(OwnFactory, Network):
    """Your own ``nn.Module``.

    Args:
        factory: ``"package.module:function"``. The function (or class) returns the module. It is
            given ``input_shape`` and ``num_classes`` where it has parameters of these names,
            nothing where it needs nothing, and both by position otherwise.
    """

    name: ClassVar[str] = "own"

    factory: str

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """The module that your factory makes."""
        _require_torch(self)
        from torch import nn

        built = _call(self.function(), input_shape=input_shape, num_classes=num_classes)
        complaint = f"returned {type(built).__name__}, expected an nn.Module"
        self.require_kind(isinstance(built, nn.Module), complaint)
        module: nn.Module = built
        return module


def _require_room(network: StackedNetwork, input_shape: tuple[int, ...]) -> None:
    def fits(side: int) -> bool:
        for layer in network.convolutions:
            side, _ = layer.side_after(side)
            if side < 1:
                return False
        return True

    if not all(map(fits, input_shape[1:])):
        least = next(side for side in range(1, 1000) if fits(side))
        raise ConfigError(
            f"{type(network).__name__}: the images have shape {input_shape}, expected at least "
            f"{least} × {least} pixels for its convolutions; take a smaller network, or an MLP"
        )


def _require_image(network: Network, input_shape: tuple[int, ...]) -> None:
    if len(input_shape) != 3:
        raise ConfigError(
            f"{type(network).__name__}: a sample has shape {input_shape}, expected an image "
            "(channels, height, width); take an MLP for other data"
        )


def _require_torch(network: Network) -> None:
    try:
        import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            "torch", extra="torch", purpose=f"the network {network.name!r}"
        ) from error


def _call(factory: Any, **known: Any) -> Any:
    parameters = inspect.signature(factory).parameters
    wanted = {name: value for name, value in known.items() if name in parameters}
    if wanted:
        return factory(**wanted)
    needed = [p for p in parameters.values() if p.default is p.empty and p.kind not in _OPTIONAL]
    return factory(*known.values()) if needed else factory()


_OPTIONAL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

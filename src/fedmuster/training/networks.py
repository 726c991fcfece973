"""The networks of the papers, and your own: light descriptions that need PyTorch only to build.

A description says which layers there are; ``build`` fits them to the data. All of them take images
[channels, height, width], the MLP and your own whatever you have. In a regression
(``num_classes = 0``) the last layer has a single unit.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from fedmuster.core.config import check_types
from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.training.models import check_factory, factory_error, imported

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


@dataclass(frozen=True, kw_only=True, slots=True)
class SmallCNN:
    """Two 5×5 convolutions (16 and 32 channels), each pooled, and a hidden layer of 64."""

    name: ClassVar[str] = "small-cnn"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """The module, with fresh parameters from PyTorch's random stream."""
        layers = (Convolution(16, 5, "pool relu"), Convolution(32, 5, "pool relu"))
        return _stack(self, input_shape, num_classes, layers, hidden=(64,))


@dataclass(frozen=True, kw_only=True, slots=True)
class BSFLCNN:
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

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """The module, with fresh parameters from PyTorch's random stream."""
        pooled = [Convolution(channels, 3, "norm pool relu") for channels in (32, 64, 128)]
        layers = (*pooled, Convolution(128, 3, "norm relu"))
        return _stack(self, input_shape, num_classes, layers, hidden=(256, 128))


@dataclass(frozen=True, kw_only=True, slots=True)
class PAUSEMLP:
    """PAUSE's fully connected network for MNIST, 784-32-16-10 (§V-A)."""

    name: ClassVar[str] = "pause-mlp"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """The module, with fresh parameters from PyTorch's random stream."""
        return _stack(self, input_shape, num_classes, (), hidden=(32, 16))


@dataclass(frozen=True, kw_only=True, slots=True)
class PAUSECNN3:
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

    batch_norm: bool = True

    def __post_init__(self) -> None:
        check_types(self)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """The module, with fresh parameters from PyTorch's random stream."""
        norm = " norm" if self.batch_norm else ""
        layers = [Convolution(c, 3, f"pool relu{norm}", padded=False) for c in (32, 64, 128)]
        return _stack(
            self, input_shape, num_classes, layers, hidden=(128, 64, 32), hidden_then=f"relu{norm}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PAUSECNN5:
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

    batch_norm: bool = True

    def __post_init__(self) -> None:
        check_types(self)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """The module, with fresh parameters from PyTorch's random stream."""
        norm = " norm" if self.batch_norm else ""
        layers = (
            Convolution(32, 3, f"relu{norm}", padded=False),
            Convolution(32, 3, "pool relu", padded=False),
            Convolution(64, 3, f"relu{norm}", padded=False),
            Convolution(64, 3, f"pool relu{norm}", padded=False),
            Convolution(128, 4, f"pool relu{norm}", padded=False),
        )
        return _stack(
            self, input_shape, num_classes, layers, hidden=(64, 32), hidden_then=f"relu{norm}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MABCSCNN:
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

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """The module, with fresh parameters from PyTorch's random stream."""
        layers = (
            Convolution(32, 3, "relu norm"),
            Convolution(32, 3, "relu norm pool"),
            Convolution(64, 3, "relu norm"),
            Convolution(64, 3, "relu norm pool"),
            Convolution(128, 3, "relu norm"),
            Convolution(128, 3, "relu norm"),
        )
        return _stack(self, input_shape, num_classes, layers, hidden=(512, 192))


@dataclass(frozen=True, kw_only=True, slots=True)
class COCSCNN:
    """COCS's network for CIFAR-10: two pooled 5×5×64 convolutions, hidden layers of 384 and 192.

    Deviations:
        1. The paper does not say whether images are padded; here they are ("same" padding).
    """

    name: ClassVar[str] = "cocs-cnn"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """The module, with fresh parameters from PyTorch's random stream."""
        layers = [Convolution(64, 5, "pool relu")] * 2
        return _stack(self, input_shape, num_classes, layers, hidden=(384, 192))


@dataclass(frozen=True, kw_only=True, slots=True)
class ResNet18:
    """ResNet-18 for small images: a 3×3 stem without pooling (He et al. 2016, §4.2), 11.2 M."""

    name: ClassVar[str] = "resnet-18"

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """The module, with fresh parameters from PyTorch's random stream."""
        _require_image(self, input_shape)
        _require_torch(self)
        from fedmuster.training.engines.torch_modules import resnet18

        return resnet18(input_shape[0], num_classes or 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnModel:
    """Your own ``nn.Module``.

    Args:
        factory: ``"package.module:function"``. The function (or class) returns the module. It is
            given ``input_shape`` and ``num_classes`` where it has parameters of these names,
            nothing where it needs nothing, and both by position otherwise.
    """

    name: ClassVar[str] = "own"

    factory: str

    def __post_init__(self) -> None:
        check_types(self)
        check_factory(self)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """The module that your factory makes."""
        _require_torch(self)
        from torch import nn

        built = _call(imported(self), input_shape=input_shape, num_classes=num_classes)
        if not isinstance(built, nn.Module):
            raise factory_error(self, f"returned {type(built).__name__}, expected an nn.Module")
        module: nn.Module = built
        return module


Network = (
    SmallCNN | BSFLCNN | PAUSEMLP | PAUSECNN3 | PAUSECNN5 | MABCSCNN | COCSCNN | ResNet18 | OwnModel
)

NETWORKS: Final[dict[str, type[Network]]] = {
    "small-cnn": SmallCNN,
    "bsfl-cnn": BSFLCNN,
    "pause-mlp": PAUSEMLP,
    "pause-cnn-3": PAUSECNN3,
    "pause-cnn-5": PAUSECNN5,
    "mab-cs-cnn": MABCSCNN,
    "cocs-cnn": COCSCNN,
    "resnet-18": ResNet18,
    "own": OwnModel,
}


def _stack(
    network: Network,
    input_shape: tuple[int, ...],
    num_classes: int,
    convolutions: Sequence[Convolution],
    *,
    hidden: Sequence[int],
    hidden_then: str = "relu",
) -> "nn.Module":
    if convolutions:
        _require_image(network, input_shape)
        _require_room(network, input_shape, convolutions)
    _require_torch(network)
    from fedmuster.training.engines.torch_modules import stacked

    return stacked(input_shape, convolutions, hidden, hidden_then, num_outputs=num_classes or 1)


def side_after(side: int, layer: Convolution) -> tuple[int, bool]:
    """How wide (or high) an image is after a layer, and whether there was something to pool."""
    side -= 0 if layer.padded else layer.kernel - 1
    pooled = "pool" in layer.then and side > 1
    return side // 2 if pooled else side, pooled


def _require_room(
    network: Network, input_shape: tuple[int, ...], convolutions: Sequence[Convolution]
) -> None:
    def fits(side: int) -> bool:
        for layer in convolutions:
            side, _ = side_after(side, layer)
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

"""Models: linear and logistic regression and the multi-layer perceptron, which NumPy trains.

A config says which layers there are; their sizes follow from the data. In a regression
(``num_classes = 0``) the last layer has a single unit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.registry import Registry, import_object
from fedmuster.training.engines.numpy_engine import NumpyEngine
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.training_records import Engine, FederatedData

if TYPE_CHECKING:
    from torch import nn


class Model(ABC):
    """A model: derive from :class:`DenseModel` or :class:`Network`."""

    __slots__ = ()

    name: ClassVar[str]

    @abstractmethod
    def engine(self, data: FederatedData, local: LocalSGD, seed: int, workers: int) -> Engine:
        """What trains this model on ``data``, in ``workers`` processes."""


MODELS: Final[Registry[Model]] = Registry(
    "model",
    Model,
    modules=(__name__, "fedmuster.training.networks"),
    methods=("engine",),
    group="fedmuster.models",
)


class DenseModel(Model):
    """Dense layers, which NumPy trains for all clients of a round at once."""

    __slots__ = ()

    @abstractmethod
    def widths(self, num_inputs: int, num_classes: int) -> tuple[int, ...]:
        """The number of inputs of each layer, and the number of outputs of the last."""

    def engine(self, data: FederatedData, local: LocalSGD, seed: int, workers: int) -> Engine:
        """A :class:`NumpyEngine`, in this process."""
        return NumpyEngine(self, data, local, seed)


class Network(Model):
    """A PyTorch module."""

    __slots__ = ()

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        """The module, with fresh parameters from PyTorch's random stream."""

    def engine(self, data: FederatedData, local: LocalSGD, seed: int, workers: int) -> Engine:
        """A :class:`~fedmuster.training.engines.torch_engine.TorchEngine`."""
        from fedmuster.training.engines.torch_engine import TorchEngine

        return TorchEngine(self, data, local, seed, workers=workers)


@MODELS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Linear(DenseModel):
    """Linear regression: one number for each sample, squared error."""

    name: ClassVar[str] = "linear"

    def widths(self, num_inputs: int, num_classes: int) -> tuple[int, ...]:
        """A single layer with one output."""
        if num_classes:
            raise ConfigError(
                f"Linear: the data has {num_classes} classes, expected a regression; "
                'take the model "logistic"',
                key=("model",),
            )
        return num_inputs, 1


@MODELS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Logistic(DenseModel):
    """Multinomial logistic regression: a score for each class, softmax and cross-entropy."""

    name: ClassVar[str] = "logistic"

    def widths(self, num_inputs: int, num_classes: int) -> tuple[int, ...]:
        """A single layer with an output for each class."""
        if not num_classes:
            raise ConfigError(
                "Logistic: the data is a regression, expected classes; "
                'take the model "linear" or "mlp"',
                key=("model",),
            )
        return num_inputs, num_classes


@MODELS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class MLP(DenseModel):
    """Dense layers with ReLU between them, for classes and for regression alike.

    Args:
        hidden: the number of units of each hidden layer.

    Example:
        >>> MLP(hidden=(32, 16)).widths(784, 10)
        (784, 32, 16, 10)
    """

    name: ClassVar[str] = "mlp"

    hidden: tuple[int, ...] = (64,)

    def __post_init__(self) -> None:
        check_types(self)
        require(
            len(self.hidden) >= 1 and min(self.hidden) >= 1,
            self,
            "hidden",
            'integers >= 1, at least one; without hidden layers take "logistic" or "linear"',
        )

    def widths(self, num_inputs: int, num_classes: int) -> tuple[int, ...]:
        """The hidden layers between the inputs and a score for each class."""
        return num_inputs, *self.hidden, num_classes or 1


class OwnFactory:
    """A config whose ``factory``, "module:function", names a function of the user."""

    __slots__ = ()

    factory: str

    def __post_init__(self) -> None:
        check_types(self)
        module, _, function = self.factory.partition(":")
        names = (*module.split("."), *function.split("."))
        expected = "module:function, for example 'my_package.my_module:make'"
        require(all(map(str.isidentifier, names)), self, "factory", expected)

    def function(self) -> Callable[..., Any]:
        """The function, also where it lies in the working directory."""
        try:
            found: Any = import_object(self.factory)
        except ConfigError as error:
            name = type(self).__name__
            raise ConfigError(f"{name}: factory {error}", key=("factory",)) from error
        self.require_kind(callable(found), f"is {type(found).__name__}, expected a function")
        function: Callable[..., Any] = found
        return function

    def require_kind(self, fits: bool, complaint: str) -> None:
        """Complain about the factory unless it ``fits``."""
        if not fits:
            text = f"{type(self).__name__}: factory {self.factory} {complaint}"
            raise ConfigError(text, key=("factory",))

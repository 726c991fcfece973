"""Models that NumPy trains: linear and logistic regression, and the multi-layer perceptron.

A config says what a model is; its size follows from the data.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Linear:
    """Linear regression: one number for each sample, squared error."""

    name: ClassVar[str] = "linear"

    def widths(self, num_inputs: int, num_classes: int) -> tuple[int, ...]:
        """How many numbers enter each layer, and how many leave the last."""
        if num_classes:
            raise ConfigError(
                f"Linear: the data has {num_classes} classes, expected a regression; "
                'take the model "logistic"',
                key=("model",),
            )
        return num_inputs, 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Logistic:
    """Multinomial logistic regression: a score for each class, softmax and cross-entropy."""

    name: ClassVar[str] = "logistic"

    def widths(self, num_inputs: int, num_classes: int) -> tuple[int, ...]:
        """How many numbers enter each layer, and how many leave the last."""
        if not num_classes:
            raise ConfigError(
                "Logistic: the data is a regression, expected classes; "
                'take the model "linear" or "mlp"',
                key=("model",),
            )
        return num_inputs, num_classes


@dataclass(frozen=True, kw_only=True, slots=True)
class MLP:
    """Dense layers with ReLU between them, for classes and for regression alike.

    Args:
        hidden: how many units each hidden layer has.

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
        """How many numbers enter each layer, and how many leave the last."""
        return num_inputs, *self.hidden, num_classes or 1


DenseModel = Linear | Logistic | MLP

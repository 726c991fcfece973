"""Models that NumPy trains: linear and logistic regression, and the multi-layer perceptron.

A config says what a model is; its size follows from the data.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

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


# Functions that a config names: ``my_package.my_module:function``.


def check_factory(owner: Any) -> None:
    """Used by ``__post_init__``: complain unless ``owner.factory`` can be such a name."""
    module, _, function = owner.factory.partition(":")
    names = (*module.split("."), *function.split("."))
    expected = "module:function, for example 'my_package.my_module:make'"
    require(all(map(str.isidentifier, names)), owner, "factory", expected)


def imported(owner: Any) -> Callable[..., Any]:
    """The function that ``owner.factory`` names, also where it lies in the working directory."""
    module, _, function = owner.factory.partition(":")
    try:
        with _working_directory_importable():
            found: Any = importlib.import_module(module)
    except ImportError as error:
        raise factory_error(
            owner, f"cannot be imported ({error}); install it, or put its folder on PYTHONPATH"
        ) from error
    for name in function.split("."):
        if not hasattr(found, name):
            raise factory_error(owner, f"is not there: {module} has no {function}")
        found = getattr(found, name)
    if not callable(found):
        raise factory_error(owner, f"is {type(found).__name__}, expected a function")
    function_found: Callable[..., Any] = found
    return function_found


def factory_error(owner: Any, complaint: str) -> ConfigError:
    """What is wrong with ``owner.factory``."""
    return ConfigError(
        f"{type(owner).__name__}: factory {owner.factory} {complaint}", key=("factory",)
    )


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    # An installed command, unlike python -m, does not look where the user stands.
    here = str(Path.cwd())
    if here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)

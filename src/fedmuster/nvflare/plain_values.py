"""Models and what workflows remember, as JSON and arrays: saved and read without pickle."""

import importlib
from typing import Any, Final

import numpy as np

from fedmuster.core.errors import StateError
from fedmuster.core.state import Array

_PLAIN: Final = (bool, int, float, str, type(None))
_SEQUENCES: Final[dict[str, type]] = {"list": list, "tuple": tuple}


class NotPlainError(TypeError):
    """A value that cannot be written without pickle."""


def pack(value: Any) -> tuple[Any, dict[str, Array]]:
    """A tree for JSON, and the arrays that it refers to by name.

    Plain are None, numbers, strings, arrays and scalars of numpy, tensors of PyTorch, and lists,
    tuples and dicts of these; :class:`NotPlainError` for any other.

    Example:
        >>> unpack(*pack({"weight": (np.ones(2), 3), 7: None}))
        {'weight': (array([1., 1.]), 3), 7: None}
    """
    arrays: dict[str, Array] = {}
    try:
        return _pack(value, arrays), arrays
    except RecursionError:
        raise NotPlainError("it is nested too deeply, or contains itself") from None


def unpack(tree: Any, arrays: dict[str, Array]) -> Any:
    """What :func:`pack` was given, though the tree may have been to JSON and back."""
    try:
        return _unpack(tree, arrays)
    except (LookupError, ValueError, TypeError, AttributeError, ImportError) as error:
        raise StateError(f"a saved value cannot be read: {error}") from error


def _pack(value: Any, arrays: dict[str, Array]) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind.__name__ in _SEQUENCES and kind is _SEQUENCES[kind.__name__]:
        return [kind.__name__, [_pack(item, arrays) for item in value]]
    if isinstance(value, dict):  # also an OrderedDict, as PyTorch's models have
        return ["dict", [[_pack(key, arrays), _pack(item, arrays)] for key, item in value.items()]]
    if is_tensor(value):
        return ["tensor", str(value.dtype).removeprefix("torch."), _keep(to_numpy(value), arrays)]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return ["array", _keep(value, arrays)]
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return ["scalar", _keep(np.asarray(value), arrays)]
    raise NotPlainError(f"a {kind.__module__}.{kind.__qualname__} cannot be saved without pickle")


def _keep(array: Array, arrays: dict[str, Array]) -> str:
    name = str(len(arrays))
    arrays[name] = array
    return name


def _unpack(tree: Any, arrays: dict[str, Array]) -> Any:
    if not isinstance(tree, list):
        return tree
    kind, *rest = tree
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](_unpack(item, arrays) for item in rest[0])
    if kind == "dict":
        return {_unpack(key, arrays): _unpack(item, arrays) for key, item in rest[0]}
    if kind == "tensor":
        torch = importlib.import_module("torch")  # there, where a tensor was saved
        return torch.from_numpy(arrays[rest[1]].copy()).to(getattr(torch, rest[0]))
    if kind == "array":
        return arrays[rest[0]]
    if kind == "scalar":
        return arrays[rest[0]][()]
    raise ValueError(f"unknown kind {kind!r}")


def is_tensor(value: object) -> bool:
    """Whether a value is a tensor of PyTorch, told without importing PyTorch."""
    names = {(base.__module__, base.__name__) for base in type(value).mro()}
    return ("torch", "Tensor") in names


def to_numpy(tensor: Any) -> Array:
    """A tensor's numbers; of types that numpy does not have (bfloat16) as float32."""
    tensor = tensor.detach().cpu()
    try:
        return np.asarray(tensor.numpy())
    except TypeError:
        return np.asarray(tensor.float().numpy())

"""What the files of a run hold, without pickle: a model, and plain values."""

import importlib
import json
import os
import random
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord

from fedmuster.core import files as npz
from fedmuster.core.errors import StateError
from fedmuster.core.state import damaged_values
from fedmuster.core.stored_archives import read_archive

_CONTENTS = "__contents__"
_STRATEGY = "__strategy__"
_WHAT: Final = "model of fedmuster"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_NUMPY = "numpy.ndarray"  # Flower's name for what numpy.save wrote

_sync = getattr(os, "fdatasync", os.fsync)  # of which not every system has the first


class Kept(NamedTuple):
    """What the file of a round holds."""

    model: ArrayRecord
    strategy: bytes


def write(path: Path, kept: Kept, *, run: str, round_number: int) -> None:
    """Overwrite a file that no checkpoint points to, and have it on disk when this returns.

    In place, because that is three times faster than to replace a file; a crash meanwhile spoils
    only what no checkpoint needs.
    """
    image = _image(kept, run=run, round_number=round_number)
    known = path.exists()
    with path.open("r+b" if known else "wb") as file:
        file.write(image)
        file.truncate()
        file.flush()
        _sync(file.fileno())
    if not known:
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)  # its name
        finally:
            os.close(directory)


def read(path: Path, *, run: str, round_number: int) -> Kept:
    """What :func:`write` was given for this round of this run."""
    if not path.is_file():
        raise StateError(
            f"{path} is gone, without which the run cannot go on: restore it from a copy, or "
            "begin anew in another folder"
        )
    try:
        image = path.read_bytes()
    except OSError as error:
        raise StateError(f"cannot read {path}: {error.strerror}") from error
    members = read_archive(image, source=str(path), what=_WHAT)
    with damaged_values(str(path), what=_WHAT):
        contents = json.loads(bytes(members[_CONTENTS]))
        owner = (contents["run"], contents["round"])
        kept = Kept(_model(members, contents["arrays"]), bytes(members[_STRATEGY]))
    if owner != (run, round_number):
        raise StateError(
            f"{path} holds the model after round {owner[1]} of run {owner[0]}, expected round "
            f"{round_number} of run {run}: restore the right one from a copy, or begin anew in "
            "another folder"
        )
    return kept


def _image(kept: Kept, *, run: str, round_number: int) -> bytes:
    members: dict[str, bytes] = {}
    arrays = []
    for place, (name, array) in enumerate(kept.model.items()):
        member = name if _PLAIN_NAME.fullmatch(name) else f"__{place}__"
        member += ".npy" if array.stype == _NUMPY else ".bin"
        members[member] = array.data
        arrays.append((name, member, array.dtype, array.shape, array.stype))
    contents = {"run": run, "round": round_number, "arrays": arrays}
    members |= {_STRATEGY: kept.strategy, _CONTENTS: json.dumps(contents).encode()}
    return npz.archive(members)


def _model(members: Mapping[str, memoryview], arrays: list[Any]) -> ArrayRecord:
    return ArrayRecord(
        {
            name: Array(dtype=dtype, shape=tuple(shape), stype=stype, data=bytes(members[member]))
            for name, member, dtype, shape, stype in arrays
        }
    )


class NotPlainError(TypeError):
    """A value that cannot be written without pickle."""


class Packed(NamedTuple):
    """A plain value as JSON and bytes."""

    tree: Any
    block: bytes


def pack(value: Any) -> Packed:
    """A plain value, packed; :class:`NotPlainError` for any other.

    Plain are None, numbers, strings, bytes, arrays and scalars of numpy, tensors of PyTorch, random
    generators of numpy and Python, Flower's records, and tuples, lists, deques, sets and dicts of
    these.

    Example:
        >>> unpack(pack({"clip": (0.1, None)}))
        {'clip': (0.1, None)}
    """
    block = bytearray()
    try:
        tree = _pack(value, block)
    except RecursionError:
        raise NotPlainError("it is nested too deeply, or contains itself") from None
    return Packed(tree, bytes(block))


def unpack(packed: Packed) -> Any:
    """What :func:`pack` was given, though the tree may have been to JSON and back."""
    try:
        return _unpack(packed.tree, packed.block)
    except (LookupError, ValueError, TypeError, AttributeError, ImportError, RuntimeError) as error:
        raise StateError(f"a saved value cannot be read: {error}") from error


_ITSELF: Final = (bool, int, float, str, type(None))
_SEQUENCES: Final[dict[str, Callable[..., Any]]] = {
    "tuple": tuple,
    "list": list,
    "set": set,
    "frozenset": frozenset,
}
_MAPPINGS: Final[dict[str, Callable[..., Any]]] = {
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": Counter,
    "MetricRecord": MetricRecord,
    "ConfigRecord": ConfigRecord,
}
_FACTORIES: Final = {kind.__name__: kind for kind in (int, float, list, dict, set)}
_BIT_GENERATORS: Final = {
    name: getattr(np.random, name) for name in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
}


def _pack(value: Any, block: bytearray) -> Any:
    # The very type: a subclass may hold more than its base shows, and numpy's float64, which is a
    # float, does not add up like one.
    kind, name = type(value), type(value).__name__
    if kind in _ITSELF:
        return value
    if _SEQUENCES.get(name) is kind:
        return [name, [_pack(item, block) for item in value]]
    if _MAPPINGS.get(name) is kind:
        return [name, [[_pack(key, block), _pack(item, block)] for key, item in value.items()]]
    if kind is deque:
        return [name, value.maxlen, _pack(list(value), block)]
    if kind is defaultdict and _FACTORIES.get(_name_of(value.default_factory)):
        return [name, _name_of(value.default_factory), _pack(dict(value), block)]
    if kind in (bytes, bytearray):
        return [name, _append(block, value)]
    if (kind.__module__, name) == ("torch", "Tensor"):
        where = [str(value.device), value.requires_grad]
        return [name, where, *_pack_array(_numbers_of(value), block)]
    if kind is np.ndarray:
        return ["ndarray", *_pack_array(value, block)]
    if isinstance(value, np.generic):
        return ["scalar", *_pack_array(np.asarray(value), block)]
    if kind is ArrayRecord:
        return [
            name,
            [
                [key, array.dtype, array.shape, array.stype, _append(block, array.data)]
                for key, array in value.items()
            ],
        ]
    if kind is np.random.Generator and type(value.bit_generator).__name__ in _BIT_GENERATORS:
        return [name, _pack(value.bit_generator.state, block)]
    if kind is random.Random:
        return [name, _pack(value.getstate(), block)]
    raise NotPlainError(f"{kind.__module__}.{kind.__qualname__} is no plain value")


def _name_of(factory: Any) -> str:
    return getattr(factory, "__name__", "")


def _numbers_of(tensor: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(tensor.detach().cpu().numpy())
    except (TypeError, RuntimeError) as error:  # bfloat16, sparse
        raise NotPlainError(f"a tensor of {tensor.dtype} is no plain value: {error}") from None


def _pack_array(array: np.ndarray[Any, Any], block: bytearray) -> tuple[Any, ...]:
    if array.dtype.hasobject or array.dtype.names is not None:
        raise NotPlainError(f"an array of {array.dtype} is no plain value")
    columns_first = array.flags.f_contiguous and not array.flags.c_contiguous
    order: Literal["F", "C"] = "F" if columns_first else "C"
    return array.dtype.str, array.shape, order, _append(block, array.tobytes(order))


def _append(block: bytearray, data: bytes) -> tuple[int, int]:
    start = len(block)
    block += data
    return start, len(block)


def _unpack(tree: Any, block: bytes) -> Any:
    if type(tree) in _ITSELF:
        return tree
    kind, *rest = tree
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](_unpack(item, block) for item in rest[0])
    if kind in _MAPPINGS:
        pairs = {_unpack(key, block): _unpack(item, block) for key, item in rest[0]}
        return _MAPPINGS[kind](pairs)
    if kind == "deque":
        return deque(_unpack(rest[1], block), maxlen=rest[0])
    if kind == "defaultdict":
        return defaultdict(_FACTORIES[rest[0]], _unpack(rest[1], block))
    if kind == "Tensor":  # by name, for only an app that has PyTorch keeps tensors
        (device, learns), *array = rest
        tensor = importlib.import_module("torch").from_numpy(_unpack_array(block, *array))
        return tensor.to(device).requires_grad_(learns)
    if kind in ("bytes", "bytearray"):
        data = _slice(block, rest[0])
        return data if kind == "bytes" else bytearray(data)
    if kind in ("ndarray", "scalar"):
        array = _unpack_array(block, *rest)
        return array if kind == "ndarray" else array[()]
    if kind == "ArrayRecord":
        return ArrayRecord(
            {
                key: Array(dtype=dtype, shape=tuple(shape), stype=stype, data=_slice(block, where))
                for key, dtype, shape, stype, where in rest[0]
            }
        )
    if kind == "Generator":
        state = _unpack(rest[0], block)
        bits = _BIT_GENERATORS[state["bit_generator"]]()
        bits.state = state
        return np.random.Generator(bits)
    if kind == "Random":
        generator = random.Random()
        generator.setstate(_unpack(rest[0], block))
        return generator
    raise ValueError(f"unknown kind {kind!r}")


def _unpack_array(
    block: bytes, dtype: str, shape: list[int], order: Literal["F", "C"], where: list[int]
) -> np.ndarray[Any, Any]:
    flat = np.frombuffer(_slice(block, where), dtype=dtype)
    return flat.reshape(shape, order=order).copy(order=order)


def _slice(block: bytes, where: list[int]) -> bytes:
    start, end = where
    return block[start:end]

"""Save, restore and grow the state of any policy.

A state is a dataclass whose fields are numpy arrays or again such dataclasses. A field is one
of four kinds:

- the usual: learned, one row per client on axis 0;
- ``shared()``: learned, one value for all clients (0-d or any shape);
- ``derived()``: learned, but following from the others at some cost, and so of any shape: when
  clients join it starts anew, and the policy must notice and derive it again;
- ``given()``: not learned but derived from the Problem, and so not saved either.

Files are ``.npz`` without pickle.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmuster.core import files as npz
from fedmuster.core.errors import FedmusterError, StateError
from fedmuster.core.stored_archives import STATE_FILE, damaged, read_arrays

S = TypeVar("S")
Array = NDArray[Any]


@dataclass(slots=True)
class NoState:
    """The state of a policy that learns nothing."""


_KIND = "fedmuster.kind"
_META = "__meta__"

UNREADABLE = (
    ValueError,
    LookupError,
    OSError,
    TypeError,
    AttributeError,
    ArithmeticError,
    MemoryError,  # a number of clients that nobody has
    RuntimeError,  # nested too deeply
)
"""What values raise that no writer wrote."""


def shared() -> Any:
    """Marks a state field that is one value for all clients."""
    return field(metadata={_KIND: "shared"})


def derived() -> Any:
    """Marks a state field that caches what follows from the other fields."""
    return field(metadata={_KIND: "derived"})


def given() -> Any:
    """Marks a state field that follows from the Problem alone."""
    return field(metadata={_KIND: "given"})


def _leaves(state: Any, prefix: str = "") -> Iterator[tuple[str, str, Any, str]]:
    """(dotted name, kind, owner, attribute) of every array of a state."""
    if not is_dataclass(state):
        raise StateError(
            f"a policy's state must be a dataclass of arrays, got {type(state).__name__}"
        )
    for item in fields(state):
        value = getattr(state, item.name)
        if is_dataclass(value):
            yield from _leaves(value, f"{prefix}{item.name}.")
        elif isinstance(value, np.ndarray):
            yield f"{prefix}{item.name}", item.metadata.get(_KIND, "client"), state, item.name
        else:
            raise StateError(
                f"state field {prefix}{item.name} is {type(value).__name__}, expected a numpy array"
            )


def _learned(state: Any) -> dict[str, tuple[Any, str]]:
    return {name: (owner, field) for name, kind, owner, field in _leaves(state) if kind != "given"}


def to_arrays(state: Any) -> dict[str, Array]:
    """The arrays of a state by dotted name. They are the state's own, not copies."""
    return {name: getattr(owner, attribute) for name, _, owner, attribute in _leaves(state)}


def learned_arrays(state: Any) -> dict[str, Array]:
    """The arrays to save: every field except those marked ``given()``."""
    return {name: getattr(owner, field) for name, (owner, field) in _learned(state).items()}


def load_arrays(state: Any, arrays: Mapping[str, Array]) -> None:
    """Put saved ``arrays`` into ``state``, which must have the same names, types and shapes."""
    leaves = _learned(state)
    if leaves.keys() != arrays.keys():
        raise StateError(
            f"saved state has the arrays {sorted(arrays)}, this policy needs {sorted(leaves)}: "
            "it was saved by another policy or version"
        )
    for name, (owner, attribute) in leaves.items():
        old, new = getattr(owner, attribute), arrays[name]
        if old.shape != new.shape or old.dtype != new.dtype:
            raise StateError(
                f"saved state array {name} is {new.dtype}{new.shape}, expected "
                f"{old.dtype}{old.shape}: it was saved with other hyper-parameters or clients"
            )
        if old.flags.writeable and old.flags.owndata:
            np.copyto(old, new)  # in place: a state of a million clients is not held twice
        else:
            setattr(owner, attribute, new.copy())


def with_prefix(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays whose names begin with ``prefix``, by the rest of their names."""
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


def numbered(arrays: Mapping[str, Array]) -> dict[int, dict[str, Array]]:
    """The arrays with names such as "7.clients", by number and the rest of their names."""
    found: dict[int, dict[str, Array]] = {}
    for name, values in arrays.items():
        number, dot, rest = name.partition(".")
        if dot:
            found.setdefault(int(number), {})[rest] = values
    return found


def grow(old: Any, fresh: S) -> S:
    """``fresh`` (the initial state of the larger problem) with everything ``old`` had learned."""
    learned = to_arrays(old)
    for name, kind, owner, attribute in _leaves(fresh):
        if kind == "shared":
            setattr(owner, attribute, learned[name])
        elif kind == "client":
            getattr(owner, attribute)[: len(learned[name])] = learned[name]
    return fresh


def to_bytes(arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> bytes:
    """An ``.npz`` image of arrays and JSON-able metadata."""
    return npz.image({**arrays, _META: np.array(json.dumps(meta))})


def from_bytes(
    image: bytes, *, source: str, uncopied: str | None = None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The inverse of :func:`to_bytes`.

    Args:
        image: what it returned.
        source: its file, for messages.
        uncopied: arrays whose names begin so are read-only parts of ``image``.
    """
    arrays = read_arrays(image, source=source, copied=uncopied is None)
    if uncopied is not None:
        arrays |= {name: a.copy() for name, a in arrays.items() if not name.startswith(uncopied)}
    with damaged_values(source):
        meta = json.loads(str(arrays.pop(_META)))
        if not isinstance(meta, dict):
            raise TypeError(f"its metadata are {meta!r}")
    return arrays, meta


@contextmanager
def damaged_values(source: str, *, what: str = STATE_FILE) -> Iterator[None]:
    """Turn what Python raises at values that cannot be right into a :class:`StateError`."""
    try:
        yield
    except FedmusterError:
        raise
    except UNREADABLE as error:
        raise damaged(source, error, what=what) from error


@contextmanager
def missing_arrays(source: str) -> Iterator[None]:
    """Turn the KeyError of an array that ``source`` lacks into an error that says what to do."""
    try:
        yield
    except KeyError as error:
        raise StateError(
            f"{source} was written by another version of fedmuster (it lacks {error.args[0]}): "
            "use that version, or run it anew"
        ) from None

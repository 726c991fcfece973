"""Whether the arrays of a reply are those of the model, and finite, without parsing each of them.

``numpy.load`` parses a header of Python literals, which takes longer than all else that is done
with a small array. Arrays of the same type and shape have the same header, so it is compared.
"""

from typing import Final, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedmuster.core.errors import DataError

_MAGIC: Final = b"\x93NUMPY\x01\x00"


class _Form(NamedTuple):
    """Header and length of an array on the wire, and of what it is."""

    header: bytes
    length: int
    kind: np.dtype[np.generic]


class Forms:
    """What the arrays of a model look like on the wire."""

    def __init__(self, model: ArrayRecord) -> None:
        self._shapes = {name: tuple(array.shape) for name, array in model.items()}
        self._known: dict[str, _Form] = {}
        for name, array in model.items():
            if array.data.startswith(_MAGIC):  # else: no array of numpy's, or a very large header
                header = array.data[: 10 + int.from_bytes(array.data[8:10], "little")]
                self._known[name] = _Form(header, len(array.data), array.numpy().dtype)

    def check(self, arrays: ArrayRecord) -> None:
        """Refuse arrays of a reply that are not finite, have another shape, or are none."""
        with np.errstate(over="ignore", invalid="ignore"):
            for name, array in arrays.items():
                self._check(name, array)

    def _check(self, name: str, array: Array) -> None:
        data, form = array.data, self._known.get(name)
        numbers: NDArray[np.generic]
        if form is not None and len(data) == form.length and data.startswith(form.header):
            numbers = np.frombuffer(data, form.kind, offset=len(form.header))
        else:
            numbers = _parsed(name, array)
            shape = self._shapes.get(name, numbers.shape)
            bytes_of_a_booster = numbers.dtype == np.uint8 and numbers.ndim == 1
            if numbers.shape != shape and not bytes_of_a_booster:
                raise DataError(
                    f"its array {name!r} has shape {numbers.shape}, the model's has {shape}"
                )
            if numbers.dtype.kind not in "fiub":
                raise DataError(f"its array {name!r} holds {numbers.dtype}, expected numbers")
        if numbers.dtype.kind == "f" and not _all_finite(numbers.ravel()):
            raise DataError(f"its array {name!r} is not finite")


def _parsed(name: str, array: Array) -> NDArray[np.generic]:
    try:
        return array.numpy()
    except (TypeError, ValueError, EOFError, OSError, MemoryError, SyntaxError) as error:
        raise DataError(f"its array {name!r} cannot be read: {error}") from None


def _all_finite(numbers: NDArray[np.generic]) -> bool:
    """A sum of squares is finite only if all are, and the fastest to compute; it may overflow."""
    return bool(np.isfinite(np.dot(numbers, numbers))) or bool(np.isfinite(numbers).all())

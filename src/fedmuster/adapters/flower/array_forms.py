"""Whether the arrays of a reply are those of the model, and finite, without parsing each of them.

``numpy.load`` parses a header of Python literals, which takes longer than all else that is done
with a small array. Arrays of the same type and shape have the same header, so it is compared.
"""

from typing import Final

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from fedmuster.core.errors import DataError

_MAGIC: Final = b"\x93NUMPY\x01\x00"


class Forms:
    """What the arrays of a model look like on the wire."""

    def __init__(self, model: ArrayRecord) -> None:
        self._shapes = {name: tuple(array.shape) for name, array in model.items()}
        self._known: dict[str, tuple[bytes, int, np.dtype[np.generic]]] = {}
        for name, array in model.items():
            if array.data.startswith(_MAGIC):  # else: no array of numpy's, or a very large header
                header = array.data[: 10 + int.from_bytes(array.data[8:10], "little")]
                self._known[name] = header, len(array.data), array.numpy().dtype

    def check(self, name: str, array: Array) -> None:
        """Refuse an array of a reply that is not finite, has another shape, or is none."""
        header, length, kind = self._known.get(name, (b"", -1, None))
        if len(array.data) == length and array.data.startswith(header):
            numbers = np.frombuffer(array.data, kind, offset=len(header))
        else:
            numbers = _parsed(name, array)
            shape = self._shapes.get(name, numbers.shape)
            if np.issubdtype(numbers.dtype, np.floating) and numbers.shape != shape:
                raise DataError(
                    f"its array {name!r} has shape {numbers.shape}, the model's has {shape}"
                )
        if np.issubdtype(numbers.dtype, np.floating) and not _all_finite(numbers.ravel()):
            raise DataError(f"its array {name!r} is not finite")


def _parsed(name: str, array: Array) -> NDArray[np.generic]:
    try:
        return array.numpy()
    except (TypeError, ValueError, EOFError, OSError, MemoryError, SyntaxError) as error:
        raise DataError(f"its array {name!r} cannot be read: {error}") from None


def _all_finite(numbers: NDArray[np.floating]) -> bool:
    with np.errstate(all="ignore"):  # a sum of squares is finite only if all are; it may overflow
        return bool(np.isfinite(numbers @ numbers)) or bool(np.isfinite(numbers).all())

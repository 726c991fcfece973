"""Checks that the arrays of a reply fit the model and are finite, without parsing each of them.

``numpy.load`` parses a header of Python literals, which takes longer than everything else that is
done with a small array. Arrays of the same type and shape have the same header, so headers are
compared. An array that fits is not parsed by the strategy either, which saves more time than all of
fedmuster takes in a round.
"""

import weakref
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.common.constant import SType
from numpy.typing import NDArray

from fedmuster.core.errors import DataError

_MAGIC: Final = b"\x93NUMPY\x01\x00"


class _Form(NamedTuple):
    """Header and length of an array on the wire, and of what it is."""

    header: bytes
    length: int
    kind: np.dtype[np.generic]
    shape: tuple[int, ...]
    order: Literal["C", "F"]

    @classmethod
    def of(cls, array: Array) -> "_Form | None":
        """The form; None for other arrays than numpy's, and for data after the numbers."""
        if array.stype != SType.NUMPY or not array.data.startswith(_MAGIC):
            return None
        header = array.data[: 10 + int.from_bytes(array.data[8:10], "little")]
        parsed = array.numpy()
        if parsed.itemsize == 0 or len(header) + parsed.nbytes != len(array.data):
            return None
        order: Literal["C", "F"] = "F" if parsed.flags.fnc else "C"
        return cls(header, len(array.data), parsed.dtype, parsed.shape, order)

    def fits(self, data: bytes) -> bool:
        return len(data) == self.length and data.startswith(self.header)

    def numbers(self, data: bytes) -> NDArray[np.generic]:
        """A flat view of the numbers; not to be written to."""
        return np.frombuffer(data, self.kind, offset=len(self.header))


class Forms:
    """What the arrays of a model look like on the wire."""

    def __init__(self, model: ArrayRecord) -> None:
        self._shapes = {name: tuple(array.shape) for name, array in model.items()}
        forms = {name: _Form.of(array) for name, array in model.items()}
        self._known = {name: form for name, form in forms.items() if form is not None}

    @property
    def names(self) -> frozenset[str]:
        """Of the model's arrays."""
        return frozenset(self._shapes)

    def of(self, model: ArrayRecord) -> "Forms":
        """The forms of another model; most often the same, and then nothing is parsed."""
        fits = self._known.keys() == model.keys() and all(
            form.fits(model[name].data) for name, form in self._known.items()
        )
        return self if fits else Forms(model)

    def check(self, arrays: ArrayRecord, *, like_model: bool = True) -> None:
        """Refuse arrays that are not finite, not numbers, or not of the model's shape."""
        with np.errstate(over="ignore", invalid="ignore"):
            for name, array in arrays.items():
                self._check(name, array, like_model)

    def ease(self, arrays: ArrayRecord) -> None:
        """Let arrays that have passed be read without parsing."""
        for name, array in arrays.items():
            form = self._known.get(name)
            if form is not None and form.fits(array.data):
                # Of the instance, not of a class of ours: by its class Flower would not know it.
                # And weakly, as a large array must be gone as soon as nobody needs it.
                vars(array)["numpy"] = _Eased(form, array, array.data)

    def _check(self, name: str, array: Array, like_model: bool) -> None:
        form = self._known.get(name)
        numbers: NDArray[np.generic]
        if form is not None and form.fits(array.data):
            numbers = form.numbers(array.data)
        else:
            numbers = _parsed(name, array)
            shape = self._shapes.get(name, numbers.shape)
            bytes_of_a_booster = numbers.dtype == np.uint8 and numbers.ndim == 1
            if like_model and numbers.shape != shape and not bytes_of_a_booster:
                raise DataError(
                    f"its array {name!r} has shape {numbers.shape}, the model's has {shape}"
                )
            if numbers.dtype.kind not in "fiub":
                raise DataError(f"its array {name!r} holds {numbers.dtype}, expected numbers")
        if numbers.dtype.kind == "f" and not _all_finite(numbers.ravel()):
            raise DataError(f"its array {name!r} is not finite")


class _Eased:
    """Stands in for ``Array.numpy``, which returns an array of the caller's own.

    After ``copy.copy`` the copy reads the data of the array from which it was made.
    """

    def __init__(self, form: _Form, array: Array | None, data: bytes) -> None:
        self._form = form
        self._of = None if array is None else weakref.ref(array)
        self._data = data

    def __call__(self) -> NDArray[np.generic]:
        array = None if self._of is None else self._of()
        if array is not None and array.data is not self._data:  # somebody has put something else in
            return Array.numpy(array)
        form = self._form
        return form.numbers(self._data).reshape(form.shape, order=form.order).copy(order="K")

    def __reduce__(self) -> tuple[Any, ...]:
        """Apps keep replies with pickle or deepcopy, which cannot take the weak reference."""
        return _Eased, (self._form, None if self._of is None else self._of(), self._data)


def _parsed(name: str, array: Array) -> NDArray[np.generic]:
    try:
        return array.numpy()
    except (TypeError, ValueError, EOFError, OSError, MemoryError, SyntaxError) as error:
        raise DataError(f"its array {name!r} cannot be read: {error}") from None


def _all_finite(numbers: NDArray[np.generic]) -> bool:
    """A sum of squares is finite only if all are, and the fastest to compute; it may overflow."""
    return bool(np.isfinite(np.dot(numbers, numbers))) or bool(np.isfinite(numbers).all())

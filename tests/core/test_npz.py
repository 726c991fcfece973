"""Images of arrays: numpy reads what was put in, and zipfile finds nothing wrong with them."""

import io
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray

from fedmuster.core import files as npz
from fedmuster.core.errors import StateError

KINDS = st.one_of(
    arrays_of.scalar_dtypes(), arrays_of.unicode_string_dtypes(), arrays_of.byte_string_dtypes()
)
ARRAYS = arrays_of.arrays(
    dtype=KINDS, shape=arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
)
NAMES = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\"), min_size=1
)


def read(image: bytes) -> dict[str, NDArray[Any]]:
    with np.load(io.BytesIO(image), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Every bit, so that NaN counts."""
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


@given(st.dictionaries(NAMES, ARRAYS, max_size=5))
def test_what_is_read_is_what_was_written(arrays: dict[str, NDArray[Any]]) -> None:
    image = npz.image(arrays)
    assert zipfile.ZipFile(io.BytesIO(image)).testzip() is None
    found = read(image)
    assert found.keys() == arrays.keys()
    assert all(same(found[name], array) for name, array in arrays.items())


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(12.0).reshape(3, 4)[:, ::2],
        np.arange(6.0)[::-1],
        np.arange(3, dtype=">i4"),
        np.broadcast_to(np.float32(0.5), (2, 2)),
    ],
    ids=("by columns", "every second", "reversed", "big-endian", "broadcast"),
)
def test_however_it_lies_in_memory(array: NDArray[Any]) -> None:
    assert same(read(npz.image({"it": array}))["it"], array)


def test_equal_arrays_make_equal_images() -> None:
    first, second = ({"a": np.arange(3), "b": np.zeros((2, 2))} for _ in range(2))
    assert npz.image(first) == npz.image(second)


def test_more_than_a_plain_archive_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "_LARGEST", 100)
    arrays = {"file": np.arange(2), "große": np.arange(50.0)}
    found = read(npz.image(arrays))
    assert all(same(found[name], array) for name, array in arrays.items())


def test_objects_are_refused() -> None:
    with pytest.raises(StateError):
        npz.image({"it": np.array([None])})

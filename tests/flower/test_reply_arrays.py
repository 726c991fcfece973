"""Arrays that have passed are read faster, and no differently."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from hypothesis import given
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray

from fedmuster.flower.reply_sorting import Forms

NUMBERS = arrays_of.arrays(
    dtype=arrays_of.scalar_dtypes(),
    shape=arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


def eased(numbers: NDArray[Any], *, like: NDArray[Any] | None = None) -> Array:
    """The array of a reply, of a model with such an array."""
    model = ArrayRecord({"w": Array(numbers if like is None else like)})
    reply = ArrayRecord({"w": Array(numbers)})
    Forms(model).ease(reply)
    return reply["w"]


def is_eased(array: Array) -> bool:
    return "numpy" in vars(array)


@given(NUMBERS)
def test_reads_what_flower_reads(numbers: NDArray[Any]) -> None:
    array = eased(numbers)
    assert is_eased(array)
    mine, flowers = array.numpy(), Array.numpy(array)
    assert (mine.dtype, mine.shape) == (flowers.dtype, flowers.shape)
    assert mine.tobytes() == flowers.tobytes()  # NaN and all


def test_reads_by_columns_what_was_written_so() -> None:
    numbers = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    array = eased(numbers)
    assert is_eased(array)
    assert np.array_equal(array.numpy(), numbers)
    assert array.numpy().flags.f_contiguous == Array.numpy(array).flags.f_contiguous


def test_whoever_reads_may_write() -> None:
    array = eased(np.arange(3.0))
    array.numpy()[:] = 7.0
    assert array.numpy().tolist() == [0.0, 1.0, 2.0]
    assert array.numpy().flags.writeable


def test_other_data_are_read_when_somebody_puts_them_in() -> None:
    array = eased(np.arange(3.0))
    array.data = Array(np.array([5.0, 6.0])).data
    assert array.numpy().tolist() == [5.0, 6.0]


@pytest.mark.parametrize("like", [np.zeros(4), np.zeros(3, dtype=np.float32), np.zeros((3, 1))])
def test_what_has_another_form_is_left_alone(like: NDArray[Any]) -> None:
    assert not is_eased(eased(np.arange(3.0), like=like))


def test_records_are_read_through_it() -> None:
    reply = ArrayRecord([np.arange(3.0), np.ones((2, 2), dtype=np.float32)])
    Forms(reply).ease(reply)
    first, second = reply.to_numpy_ndarrays()
    assert first.tolist() == [0.0, 1.0, 2.0]
    assert second.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_flower_still_knows_it_and_can_send_it_on() -> None:
    array = eased(np.arange(3.0))
    twin = Array(np.arange(3.0))
    assert type(array) is Array
    assert array == twin
    assert array.deflate() == twin.deflate()


def test_nothing_keeps_it_alive() -> None:
    array = eased(np.arange(3.0))
    gone = weakref.ref(array)
    gc.disable()  # a circle of references would wait for the collector, with all its memory
    try:
        del array
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "kept",
    [copy.deepcopy, lambda record: pickle.loads(pickle.dumps(record))],
    ids=["copy", "pickle"],
)
def test_apps_may_keep_it_as_they_keep_others(kept: Callable[[ArrayRecord], ArrayRecord]) -> None:
    reply = ArrayRecord([np.arange(3.0), np.ones((2, 2), dtype=np.float32)])
    Forms(reply).ease(reply)
    assert all(map(is_eased, reply.values()))
    again = kept(reply)
    assert again == reply
    del reply
    first, second = again.to_numpy_ndarrays()
    assert first.tolist() == [0.0, 1.0, 2.0]
    assert second.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert first.flags.writeable
    again["0"].data = Array(np.array([5.0, 6.0])).data  # a copy, too, may get other data
    assert again["0"].numpy().tolist() == [5.0, 6.0]


@pytest.mark.parametrize(
    "array",
    [
        Array(dtype="float64", shape=(3,), stype="my.own", data=Array(np.zeros(3)).data),
        Array("float64", (3,), "numpy.ndarray", Array(np.zeros(3)).data + b"more"),
        Array(np.empty(2, dtype="V0")),
    ],
    ids=("written by somebody else", "with more behind it", "of nothing"),
)
def test_odd_arrays_of_a_model_are_left_alone(array: Array) -> None:
    record = ArrayRecord({"w": array})
    Forms(record).ease(record)
    assert not is_eased(array)


def test_another_model_of_the_same_form_needs_no_forms_of_its_own() -> None:
    forms = Forms(ArrayRecord([np.zeros(3), np.zeros((2, 2))]))
    assert forms.of(ArrayRecord([np.ones(3), np.ones((2, 2))])) is forms
    others: list[list[NDArray[Any]]] = [
        [np.zeros(3)],
        [np.zeros(3), np.zeros((2, 2)), np.zeros(1)],
        [np.zeros(3), np.zeros(4)],
        [np.zeros(3, dtype=np.float32), np.zeros((2, 2))],
    ]
    for arrays in others:
        assert forms.of(ArrayRecord(arrays)) is not forms

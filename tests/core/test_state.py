from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from fedmuster.core import state as states
from fedmuster.core.errors import StateError
from fedmuster.core.files import write_file
from fedmuster.core.records import FloatArray, IntArray


@dataclass(slots=True)
class Inner:
    mean: FloatArray
    best: FloatArray = states.shared()
    product: FloatArray = states.derived()


@dataclass(slots=True)
class Outer:
    count: IntArray
    inner: Inner
    share: FloatArray = states.given()


def make(num_clients: int) -> Outer:
    return Outer(
        count=np.zeros(num_clients, dtype=np.int64),
        inner=Inner(
            mean=np.zeros((num_clients, 2)), best=np.array(np.inf), product=np.eye(num_clients)
        ),
        share=np.full(num_clients, 1 / num_clients),
    )


def test_arrays_have_dotted_names() -> None:
    assert sorted(states.to_arrays(make(2))) == [
        "count",
        "inner.best",
        "inner.mean",
        "inner.product",
        "share",
    ]


def test_round_trip_through_bytes() -> None:
    old, new = make(3), make(3)
    old.count[:] = [1, 2, 3]
    old.inner.best[...] = 0.5
    old.inner.product[0, 1] = 7.0
    old.share[:] = 9.0  # which is not saved: it follows from the problem
    image = states.to_bytes(states.learned_arrays(old), {"round": 7})
    arrays, meta = states.from_bytes(image, source="here")
    states.load_arrays(new, arrays)
    assert new.count.tolist() == [1, 2, 3]
    assert float(new.inner.best) == 0.5
    assert new.inner.product[0].tolist() == [1, 7, 0]
    assert new.share.tolist() == [1 / 3] * 3
    assert meta == {"round": 7}


def test_growing_keeps_what_was_learned_and_derives_what_is_given() -> None:
    old = make(2)
    old.count[:] = [4, 5]
    old.inner.mean[:] = 1.0
    old.inner.best[...] = 0.5
    old.inner.product[:] = 7.0
    grown = states.grow(old, make(3))
    assert grown.count.tolist() == [4, 5, 0]
    assert grown.inner.mean.tolist() == [[1, 1], [1, 1], [0, 0]]
    assert float(grown.inner.best) == 0.5
    assert grown.inner.product.tolist() == np.eye(3).tolist()  # to be derived again
    assert grown.share.tolist() == [1 / 3] * 3


def test_states_that_do_not_fit_are_refused() -> None:
    arrays = states.learned_arrays(make(2))
    with pytest.raises(StateError, match="hyper-parameters"):
        states.load_arrays(make(3), arrays)
    with pytest.raises(StateError):
        states.load_arrays(make(2), {"count": arrays["count"]})
    with pytest.raises(StateError, match="expected"):
        states.load_arrays(make(2), {**arrays, "count": arrays["count"].astype(np.float64)})


def test_only_arrays_are_state() -> None:
    @dataclass
    class Bad:
        mean: float = 0.0

    with pytest.raises(StateError, match="expected a numpy array"):
        states.to_arrays(Bad())
    with pytest.raises(StateError, match="must be a dataclass"):
        states.to_arrays([1])


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, __meta__=np.array("{}"), evil=np.array([{"a": 1}], dtype=object))
    with pytest.raises(StateError, match="allow_pickle"):
        states.from_bytes(path.read_bytes(), source=str(path))


def test_writing_leaves_no_temporary_files(tmp_path: Path) -> None:
    write_file(tmp_path / "deep" / "x", b"1")
    write_file(tmp_path / "deep" / "x", b"2")
    assert [p.read_bytes() for p in (tmp_path / "deep").iterdir()] == [b"2"]

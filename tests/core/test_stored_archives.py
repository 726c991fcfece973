"""Archives are read as they were written or not at all, and in no more memory than they take."""

import io
import json
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from fedmuster import BSFL, Problem, Selector
from fedmuster.core import files, state
from fedmuster.core.errors import StateError
from fedmuster.core.stored_archives import read_archive, read_arrays

ARRAYS = {"loss": np.arange(6.0).reshape(2, 3), "name": np.array(["a", "bc"])}


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def refused(image: bytes) -> None:
    with pytest.raises(StateError):
        read_arrays(image, source="it")


def test_what_was_written_is_read() -> None:
    found = read_arrays(files.image(ARRAYS), source="it")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert np.array_equal(found[name], array)
        assert found[name].flags.writeable
        assert found[name].dtype == array.dtype


@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_wrote_is_read(order: Literal["C", "F"]) -> None:
    array = np.arange(6.0).reshape(2, 3).copy(order)
    buffer = io.BytesIO()
    np.savez(buffer, it=array, empty=np.zeros((4, 0)), big=np.arange(3, dtype=">i4"))
    found = read_arrays(buffer.getvalue(), source="it")
    assert np.array_equal(found["it"], array)
    assert found["it"].flags.f_contiguous == array.flags.f_contiguous
    assert found["empty"].shape == (4, 0)
    assert found["big"].dtype == np.dtype(">i4")


def test_archives_of_many_members_and_large_ones() -> None:
    members = {str(number): b"x" for number in range(2**16 + 5)}
    found = read_archive(files.archive(members), source="it")
    assert len(found) == len(members)
    assert bytes(found["7"]) == b"x"


def test_every_byte_that_means_something() -> None:
    """Whatever bit is turned, the arrays are the same or the image is refused."""
    image = files.image(ARRAYS)
    noticed = 0
    for place in range(len(image)):
        for bit in (0, 3, 7):
            bent = bytearray(image)
            bent[place] ^= 1 << bit
            try:
                found = read_arrays(bytes(bent), source="it")
            except StateError:
                noticed += 1
                continue
            assert found.keys() == ARRAYS.keys()
            assert all(found[name].tobytes() == a.tobytes() for name, a in ARRAYS.items())
            assert all(found[name].shape == a.shape for name, a in ARRAYS.items())
    assert noticed > 0.8 * 3 * len(image)


def test_a_packed_bomb_is_refused_without_unpacking() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("it.npy", npy(header(2**24), bytes(2**27)))
    image = buffer.getvalue()
    assert len(image) < 2**18
    assert peak_of(image) < 2 * len(image) + 2**18


def header(count: int, descr: str = "'<f8'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': ({count},), }}"


@pytest.mark.parametrize(
    "member",
    [
        npy(header(2**40), b"12345678"),
        npy(header(0, "'<U0'").replace("(0,)", "(1000000000000,)")),
        npy(header(0).replace("(0,)", "(1000000000000000000, 0)")),
        npy(header(1, "'|O'"), b"12345678"),
        npy("(" * 9_000),
        npy("-" * 9_000 + "1"),
        npy(header(1).replace("(1,)", "(True,)"), b"12345678"),
        npy(header(1).replace("(1,)", "(-1,)"), b"12345678"),
        npy(header(1) + " " * 60_000, b"12345678"),
        b"\x93NUMPY\x01\x00\xff\xff{",
        b"no array",
    ],
    ids=[
        *("longer than it is", "texts without letters", "rows without columns", "objects"),
        *("deep", "deep signs", "truth", "negative", "long header", "header too long", "no array"),
    ],
)
def test_hostile_members_are_refused(member: bytes) -> None:
    image = files.archive({"it.npy": member})
    refused(image)
    assert peak_of(image) < 2 * len(image) + 2**20


def peak_of(image: bytes) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(StateError):
            read_arrays(image, source="it")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_large_arrays_take_the_file_and_themselves() -> None:
    image = files.image({"it": np.zeros(2**20)})
    tracemalloc.start()
    try:
        read_arrays(image, source="it")
        assert tracemalloc.get_traced_memory()[1] < 1.1 * len(image)  # the image was there before
    finally:
        tracemalloc.stop()


def test_encrypted_members_comments_twins_and_gaps() -> None:
    image = files.image(ARRAYS)
    refused(b"x" + image)
    refused(image + b"x")
    refused(image[:-2] + b"\x01\x00c")  # a comment
    with pytest.warns(UserWarning, match="Duplicate"):
        refused(twins())


def twins() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for value in (1, 2):
            archive.writestr("it.npy", npy(header(1, "'|u1'"), bytes([value])))
    return buffer.getvalue()


def test_metadata_that_are_no_table() -> None:
    for meta in ("[1]", "1" * 5_000, "[" * 100_000, "nonsense", "\ud800"):
        image = files.image({"__meta__": np.array(json.dumps(meta) if meta == "\ud800" else meta)})
        with pytest.raises(StateError):
            state.from_bytes(image, source="it")


def test_the_checksum_counts() -> None:
    image = bytearray(files.archive({"it.npy": npy(header(1), b"12345678")}))
    place = bytes(image).index(b"12345678")
    image[place] ^= 1
    refused(bytes(image))
    crc = struct.pack("<L", zlib.crc32(npy(header(1), b"02345678")))
    old = struct.pack("<L", zlib.crc32(npy(header(1), b"12345678")))
    assert read_arrays(bytes(image).replace(old, crc), source="it")  # an author, no accident


def test_a_restored_selector_takes_its_file_twice(tmp_path: Path) -> None:
    """Once for the file while it is read, and once for the state.

    A file without silent clients and newcomers leaves out what is known of them.
    """
    path = tmp_path / "selector.npz"
    Selector(BSFL(), Problem(num_clients=200_000, cohort_size=10)).save(path)
    tracemalloc.start()
    try:
        selector = Selector.restore(path, BSFL())
        peak = tracemalloc.get_traced_memory()[1]
        assert peak < 2.2 * path.stat().st_size + 12 * 200_000
    finally:
        tracemalloc.stop()
    assert len(selector.select().clients) == 10

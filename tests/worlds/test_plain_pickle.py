"""Reading pickles without unpickling them: plain data of all protocols, and nothing else."""

import array
import collections
import datetime
import fractions
import os
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.core.errors import DataError
from fedmuster.worlds.fedscale_files import read_plain_pickle

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False)
    | st.text()
    | st.text(min_size=250, max_size=300)
)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner)
        | st.tuples(inner, inner)
        | st.tuples(inner, inner, inner, inner)
        | st.dictionaries(st.integers() | st.text(), inner)
        | st.dictionaries(st.integers(), inner).map(collections.OrderedDict)
    ),
    max_leaves=10,
)


def same(a: object, b: object) -> bool:
    """Equal, and of equal types, but for OrderedDict."""
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        pairs = zip(a, b, strict=False)
        return type(a) is type(b) and len(a) == len(b) and all(same(x, y) for x, y in pairs)
    return type(a) is type(b) and a == b


@given(value=plain)
def test_plain_data_is_read_in_all_protocols(value: object) -> None:
    for protocol in PROTOCOLS:
        assert same(read_plain_pickle(pickle.dumps(value, protocol), source="x"), value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_large_and_shared_and_recursive_data(protocol: int) -> None:
    shared = ["once"]
    value: list[Any] = [shared, shared, {number: float(number) for number in range(3000)}]
    read: Any = read_plain_pickle(pickle.dumps(value, protocol), source="x")
    assert read == value
    assert read[0] is read[1]
    value.append(value)
    read = read_plain_pickle(pickle.dumps(value, protocol), source="x")
    assert read[3] is read


@pytest.mark.parametrize("protocol", range(3, pickle.HIGHEST_PROTOCOL + 1))
def test_bytes_are_read(protocol: int) -> None:
    value = [b"", b"\x00\xff", b"x" * 300]
    assert read_plain_pickle(pickle.dumps(value, protocol), source="x") == value


def test_what_python_2_wrote_is_read() -> None:
    """An OrderedDict from a list of pairs, and byte strings as text."""
    text = b"ccollections\nOrderedDict\n((lp0\n(lp1\nI7\naS'seven'\naa(lp2\nI8\naL9L\naatR."
    assert read_plain_pickle(text, source="x") == {7: "seven", 8: 9}
    assert read_plain_pickle(b"\x80\x02U\x03abc.", source="x") == "abc"


def test_other_instructions_for_plain_data_are_followed() -> None:
    for data, value in {
        b"(I1\nI2\n0t.": (1,),  # POP
        b"(I1\n1I3\n.": 3,  # POP_MARK
        b"I4\n(0.": 4,  # POP of a mark
        b"I5\n2\x86.": (5, 5),  # DUP
        b"(I1\nI2\nd.": {1: 2},  # DICT
        b"I01\n.": True,
    }.items():
        assert read_plain_pickle(data, source="x") == value


class Malicious:
    """Writes a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"echo run > {self.path}",)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_malicious_file_is_refused_and_runs_nothing(tmp_path: Path, protocol: int) -> None:
    trap = tmp_path / "trap"
    for value in (Malicious(trap), {1: {"computation": Malicious(trap), "communication": 2.0}}):
        with pytest.raises(DataError, match=r"^f.pkl, byte \d+: GLOBAL '\w+.system' is not plain"):
            read_plain_pickle(pickle.dumps(value, protocol), source="f.pkl")
    assert not trap.exists()


ANYTHING_ELSE: list[Any] = [
    np.float64(1.0),
    np.arange(3),
    datetime.date(2024, 1, 1),
    fractions.Fraction(1, 3),
    array.array("d", [1.0]),
    collections.Counter("ab"),
    collections.defaultdict(int),
    Path("x"),
    {1, 2},
    frozenset([1]),
    bytearray(b"x"),
    print,
    dict,
    collections.deque([1]),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("value", ANYTHING_ELSE, ids=lambda value: type(value).__name__)
def test_everything_else_is_refused(value: Any, protocol: int) -> None:
    with pytest.raises(DataError):
        read_plain_pickle(pickle.dumps({1: value}, protocol), source="x")


@pytest.mark.parametrize(
    ("data", "instruction"),
    [
        (b"(cos\nsystem\nS'true'\no.", "GLOBAL 'os.system'"),
        (b"(S'true'\nios\nsystem\n.", "INST"),
        (b"(ccollections\nOrderedDict\no.", "OBJ"),
        (b"ccollections\nOrderedDict\n)\x81.", "NEWOBJ"),
        (b"ccollections\nOrderedDict\n)}\x92.", "NEWOBJ_EX"),
        (b"ccollections\nOrderedDict\n)R}b.", "BUILD"),
        (b"Pid\n.", "PERSID"),
        (b"I1\nQ.", "BINPERSID"),
        (b"\x82\x01.", "EXT1"),
        (b"\x83\x01\x00.", "EXT2"),
        (b"\x84\x01\x00\x00\x00.", "EXT4"),
        (b"\x97.", "NEXT_BUFFER"),
        (b"\x8f.", "EMPTY_SET"),
        (b"I1\n)R.", "REDUCE"),
        (b"ccollections\nOrderedDict.x\n.", "GLOBAL 'collections.OrderedDict.x'"),
        (b"cevil\nOrderedDict\n)R.", "GLOBAL 'evil.OrderedDict'"),
        (b"\x8c\x02os\x8c\x06system\x93.", "GLOBAL 'os.system'"),
    ],
)
def test_instructions_that_make_or_call_objects_are_refused(data: bytes, instruction: str) -> None:
    with pytest.raises(DataError, match=rf"^x, byte \d+: {instruction} is not plain data"):
        read_plain_pickle(data, source="x")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_truncated_file_is_refused_wherever_it_ends(protocol: int) -> None:
    value = collections.OrderedDict({1: {"active": [1, 2], "model": "CPH1801", "x": 2.5}})
    data = pickle.dumps(value, protocol)
    for length in range(len(data)):
        with pytest.raises(DataError):
            read_plain_pickle(data[:length], source="short")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"phone,compute\n1,2\n",
        b"\x80\x09N.",  # a protocol that does not exist
        b".",
        b"I1\nI2\n.",
        b"h\x05.",  # a memo that was never written
        b"(I1\nd.",  # a key without a value
        b"((I1\ntI2\nd.",  # a tuple as a key
        b"I1\nI2\na.",  # append to a number
        b"I1\nI2\nI3\ns.",
        b"t.",
        b"0.",
        b"\x86.",
        b"Ix\n.",
        b"F1,5\n.",
        b"ccollections\nOrderedDict\n(I1\nI2\ntR.",
        b"ccollections\nOrderedDict\nI1\nR.",
        b"ccollections\nOrderedDict\n((I1\ntltR.",
    ],
)
def test_what_is_no_pickle_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match=r"^x is not a whole pickle"):
        read_plain_pickle(data, source="x")


def test_a_deeply_nested_key_does_not_overflow_the_stack() -> None:
    with pytest.raises(DataError, match="tuple as a key"):
        read_plain_pickle(b"})" + b"\x85" * 2 * 10**5 + b"Ns.", source="x")


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
@given(data=st.data())
def test_damaged_files_are_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    value = {
        1: {"active": [3, 400, 70000], "model": "x", "share": 0.5},
        2: collections.OrderedDict(),
    }
    text = bytearray(pickle.dumps(value, data.draw(st.sampled_from(PROTOCOLS))))
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DataError):
        read_plain_pickle(bytes(text), source="damaged")

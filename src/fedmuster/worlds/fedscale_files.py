"""Read FedScale's own trace files, which are pickles, without unpickling them.

``client_device_capacity``: ``{client: {"computation": ms/sample, "communication": kbit/s}}``.
``client_behave_trace``: ``{client: {"active": [s, …], "inactive": [s, …], "finish_time": s, …}}``.
Clients are integers, and are taken in increasing order.
"""

import pickletools
from itertools import chain
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import DataError
from fedmuster.core.records import LONGEST_SECONDS, SHORTEST_SECONDS
from fedmuster.worlds.intervals import Intervals

_NEWEST_PROTOCOL = 5
_ORDERED_DICT: Final = object()
"""Stands for the class on the machine's stack, which never holds the class itself."""
_KEYS = frozenset([int, str, bytes, float, bool, type(None)])
_LITERALS: Final = frozenset[str]().union(
    ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    ("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
)
"""Instructions that push a number, bytes or text."""


def read_plain_pickle(data: bytes, *, source: str) -> object:
    """The value of a pickle of any protocol 0 … 5, if it is made of plain data only.

    ``source`` names the file in messages.

    Example:
        >>> read_plain_pickle(b"(lp0\\nI1\\naF2.5\\na.", source="example")
        [1, 2.5]
        >>> read_plain_pickle(b"cos\\nsystem\\n(tR.", source="example")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        fedmuster.core.errors.DataError: example, byte 0: GLOBAL 'os.system' is not plain data; ...
    """
    machine, place, name = _Machine(), 0, "nothing"
    try:
        for opcode, argument, position in pickletools.genops(data):
            place, name = position or 0, opcode.name
            machine.follow(name, argument)
        return machine.result()
    except _ForbiddenPickleError as error:
        raise DataError(
            f"{source}, byte {place}: {error} is not plain data; unpickling it could run anything, "
            "so the file is refused: get it from where it was published, or write a .csv"
        ) from None
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise DataError(
            f"{source} is not a whole pickle: {type(error).__name__} after {name} at byte {place} "
            f"({error}); get it anew, or write a .csv"
        ) from None


class _ForbiddenPickleError(Exception):
    """An instruction that makes more than plain data."""


class _Machine:
    """The pickle machine without its calls: a stack, marks in it, and a memo."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._below_marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def follow(self, name: str, argument: Any) -> None:
        """Follow one instruction; the frequent ones come first."""
        stack = self._stack
        if name in _LITERALS:
            stack.append(argument)
            return
        match name:
            case "BINGET" | "LONG_BINGET" | "GET":
                stack.append(self._memo[argument])
            case "MEMOIZE":
                self._memo[len(self._memo)] = stack[-1]
            case "BINPUT" | "LONG_BINPUT" | "PUT":
                self._memo[argument] = stack[-1]
            case "MARK":
                self._below_marks.append(stack)
                self._stack = []
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "APPEND":
                value = stack.pop()
                _expect(stack[-1], list).append(value)
            case "SETITEM":
                pair = self._take(2)
                _expect(stack[-1], dict).update(_table(pair))
            case "APPENDS":
                values = self._take_marked()
                _expect(self._stack[-1], list).extend(values)
            case "SETITEMS":
                values = self._take_marked()
                _expect(self._stack[-1], dict).update(_table(values))
            case "LIST" | "DICT" | "TUPLE":
                values = self._take_marked()
                made: Any = values if name == "LIST" else tuple(values)
                self._stack.append(_table(values) if name == "DICT" else made)
            case "POP_MARK":
                self._take_marked()
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
            case "EMPTY_TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._take(0 if name == "EMPTY_TUPLE" else int(name[-1]))))
            case "DUP":
                stack.append(stack[-1])
            case "POP":
                if stack:
                    stack.pop()
                else:
                    self._take_marked()  # a mark is on top
            case "GLOBAL":
                self._stack.append(_class(argument.replace(" ", ".")))
            case "STACK_GLOBAL":
                stack.append(_class(".".join(self._take(2))))
            case "REDUCE":
                stack.append(_call(*self._take(2)))
            case "PROTO":
                if argument > _NEWEST_PROTOCOL:
                    raise ValueError(f"protocol {argument} is unknown")
            case "FRAME" | "STOP":
                pass
            case _:
                raise _ForbiddenPickleError(name)

    def result(self) -> Any:
        (value,) = self._stack
        return value

    def _take(self, count: int) -> list[Any]:
        """The last ``count`` values, in the order in which they came."""
        if len(self._stack) < count:
            raise IndexError("the stack is empty")
        first = len(self._stack) - count
        values = self._stack[first:]
        del self._stack[first:]
        return values

    def _take_marked(self) -> list[Any]:
        values, self._stack = self._stack, self._below_marks.pop()
        return values


def _class(name: str) -> object:
    if name != "collections.OrderedDict":
        raise _ForbiddenPickleError(f"GLOBAL {name!r}")
    return _ORDERED_DICT


def _call(function: Any, arguments: Any) -> dict[Any, Any]:
    if function is not _ORDERED_DICT:
        raise _ForbiddenPickleError("REDUCE")
    if arguments == ():
        return {}
    (pairs,) = _expect(arguments, tuple)  # as Python 2 wrote it
    return _table([value for pair in _expect(pairs, list) for value in _expect_pair(pair)])


def _table(values: list[Any]) -> dict[Any, Any]:
    """``key, value, key, value, …`` as a dict."""
    keys = values[::2]
    for key in keys:
        if type(key) not in _KEYS:  # hash() of a deeply nested tuple could overflow the stack
            raise TypeError(f"{type(key).__name__} as a key")
    return dict(zip(keys, values[1::2], strict=True))


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{type(value).__name__} in place of {kind.__name__}")
    return value


def _expect_pair(value: Any) -> Any:
    if type(value) not in (list, tuple) or len(value) != 2:
        raise TypeError(f"{type(value).__name__} in place of a pair")
    return value


_BEGINNINGS = (b"\x80", b"(", b"}", b"ccollections\n")
"""Of pickled dicts, in protocols 2 … 5, 0, 1, and of an OrderedDict in the first two."""


def read_capacities(path: Path) -> tuple[FloatArray, FloatArray]:
    """Compute time (ms/sample) and bandwidth (kbit/s) of each client."""
    clients = _Clients(path)
    compute = clients.numbers("computation", low=1e-9, high=1e9)
    bandwidth = clients.numbers("communication", low=1e-9, high=1e15)
    return compute, bandwidth


def read_behaviour(path: Path) -> Intervals:
    """When each client is there: from ``active[i]`` to ``inactive[i]``, modulo ``finish_time``."""
    clients = _Clients(path)
    period = clients.numbers("finish_time", low=SHORTEST_SECONDS, high=LONGEST_SECONDS)
    active, inactive = clients.lists("active"), clients.lists("inactive")
    counts = np.array([len(times) for times in active])
    same = counts == [len(times) for times in inactive]
    clients.refuse_where(~same, "active and inactive differ in length")
    client = np.repeat(np.arange(len(counts)), counts)
    start = clients.joined("active", active, client)
    end = clients.joined("inactive", inactive, client)
    backwards = np.bincount(client[end < start], minlength=len(counts)) > 0
    clients.refuse_where(backwards, "inactive comes before active")
    return Intervals.of(client=client, start_seconds=start, end_seconds=end, period_seconds=period)


class _Clients:
    """A file that says several things of each client."""

    def __init__(self, path: Path) -> None:
        self._path = path
        data = path.read_bytes()
        if not data.startswith(_BEGINNINGS):
            raise DataError(
                f"{path} is no FedScale trace, CSV or Parquet file; get FedScale's from where it "
                "was published, or let the name of a table end in .csv or .parquet"
            )
        content = read_plain_pickle(data, source=str(path))
        if not isinstance(content, dict) or not content:
            raise DataError(f"{path} holds a {type(content).__name__}, expected clients in a dict")
        for name in content:
            if type(name) is not int:
                raise DataError(f"{path}: client {name!r} is not an integer")
        self._names = sorted(content)
        self._entries = [content[name] for name in self._names]
        for number, entry in enumerate(self._entries):
            if not isinstance(entry, dict):
                self._refuse(number, f"is a {type(entry).__name__}, expected a dict")

    def numbers(self, key: str, *, low: float, high: float) -> FloatArray:
        """[K], a number between ``low`` and ``high`` of each."""
        values = self._values(key)
        numbers = self._floats(key, values, np.arange(len(values)))
        wrong = ~((numbers >= low) & (numbers <= high))
        self.refuse_where(wrong, f"{key} must be a number in [{low:g}, {high:g}]")
        return numbers

    def lists(self, key: str) -> list[list[Any]]:
        """[K], a list of each."""
        values = self._values(key)
        for number, value in enumerate(values):
            if not isinstance(value, list):
                self._refuse(number, f"{key} is a {type(value).__name__}, expected a list")
        return values

    def joined(self, key: str, lists: list[list[Any]], client: IntArray) -> FloatArray:
        """The times in these lists one after the other; ``client`` says whose each is."""
        times = self._floats(key, list(chain.from_iterable(lists)), client)
        owners = client[~((times >= 0) & (times <= LONGEST_SECONDS))]
        wrong = np.bincount(owners, minlength=len(self._names)) > 0
        self.refuse_where(wrong, f"{key} must hold times in [0, {LONGEST_SECONDS:g}]")
        return times

    def refuse_where(self, wrong: BoolArray, complaint: str) -> None:
        """Complain about the first client for which ``wrong`` is true, if any."""
        if wrong.any():
            self._refuse(int(np.argmax(wrong)), complaint)

    def _values(self, key: str) -> list[Any]:
        values = []
        for number, entry in enumerate(self._entries):
            if key not in entry:
                self._refuse(number, f"has no {key!r}")
            values.append(entry[key])
        return values

    def _floats(self, key: str, values: list[Any], client: IntArray) -> FloatArray:
        for place, value in enumerate(values):
            if type(value) not in (int, float):
                self._refuse(int(client[place]), f"{key} holds a {type(value).__name__}")
        try:
            return np.fromiter(values, dtype=np.float64, count=len(values))
        except OverflowError:
            raise DataError(f"{self._path}: {key} holds a number that is too large") from None

    def _refuse(self, number: int, complaint: str) -> NoReturn:
        raise DataError(
            f"{self._path}, client {self._names[number]}: {complaint}; get the file from where it "
            "was published, or write a .csv"
        )

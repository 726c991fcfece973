"""Read the plain data in a pickle without unpickling it.

Unpickling runs whatever the file says. Here :func:`pickletools.genops`, a disassembler, names the
file's instructions one by one, and a machine that knows nothing but plain data follows them:
None, bool, int, float, str, bytes, list, tuple, dict and collections.OrderedDict (as a dict).
Everything else, above all every other name and every call, is refused before anything happens.
"""

import pickletools
from typing import Any, Final

from fedmuster.core.errors import DataError

_NEWEST_PROTOCOL = 5
_ORDERED_DICT: Final = object()
"""Stands for the class on the machine's stack; the class itself is never there."""
_KEYS = frozenset([int, str, bytes, float, bool, type(None)])
_NUMBERS = frozenset(
    ["INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"]
)
_BYTES = frozenset(
    ["STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"]
)
_TEXTS = frozenset(["UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"])
_LITERALS = _NUMBERS | _BYTES | _TEXTS


def read_plain_pickle(data: bytes, *, source: str) -> object:
    """The value that ``data`` describes, if it is made of plain data only.

    Args:
        data: a pickle of any protocol, 0 … 5.
        source: where it comes from, for messages.

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
    except _NotPlainError as error:
        raise DataError(
            f"{source}, byte {place}: {error} is not plain data; unpickling it could run anything, "
            "so the file is refused: get it from where it was published, or write a .csv"
        ) from None
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise DataError(
            f"{source} is not a whole pickle: {type(error).__name__} after {name} at byte {place} "
            f"({error}); get it anew, or write a .csv"
        ) from None


class _NotPlainError(Exception):
    """An instruction beyond plain data."""


class _Machine:
    """The pickle machine without its calls: a stack, marks in it, and a memo."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._below_marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def follow(self, name: str, argument: Any) -> None:
        """Do what one instruction says; the frequent ones come first."""
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
            case "APPENDS" | "SETITEMS" | "LIST" | "DICT" | "TUPLE" | "POP_MARK":
                self._gather(name, self._take_marked())
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
                raise _NotPlainError(name)

    def result(self) -> Any:
        """What is left in the end."""
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
        """All values since the last mark."""
        values, self._stack = self._stack, self._below_marks.pop()
        return values

    def _gather(self, name: str, values: list[Any]) -> None:
        match name:
            case "APPENDS":
                _expect(self._stack[-1], list).extend(values)
            case "SETITEMS":
                _expect(self._stack[-1], dict).update(_table(values))
            case "LIST":
                self._stack.append(values)
            case "DICT":
                self._stack.append(_table(values))
            case "TUPLE":
                self._stack.append(tuple(values))


def _class(name: str) -> object:
    if name != "collections.OrderedDict":
        raise _NotPlainError(f"GLOBAL {name!r}")
    return _ORDERED_DICT


def _call(function: Any, arguments: Any) -> dict[Any, Any]:
    if function is not _ORDERED_DICT:
        raise _NotPlainError("REDUCE")
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

"""Frozen dataclasses to plain tables (TOML) and back, strictly.

Policies, worlds, solvers and estimators are all such dataclasses. A field whose type is a union
of dataclasses is written as a table whose ``name`` says which of them it is.
"""

import difflib
import types
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedmuster.core.errors import ConfigError

T = TypeVar("T")
Key = tuple[str, ...]


def require(condition: bool, owner: object, field: str, expected: str) -> None:
    """Used by ``__post_init__``: complain about ``field`` of ``owner`` unless ``condition``."""
    if not condition:
        raise ConfigError(
            f"{type(owner).__name__}: {field} = {getattr(owner, field)!r}, expected {expected}",
            key=(field,),
        )


def check_types(config: Any) -> None:
    """Used by ``__post_init__``: complain about values that are not of their field's type."""
    kind: Any = type(config)
    for field, hint in _hints(kind).items():
        expected = _misfit(getattr(config, field), hint)
        if expected is not None:
            require(False, config, field, expected)


def to_table(config: Any) -> dict[str, Any]:
    """A config as a table with its ``name`` first; None is left out, as TOML has no null."""
    table: dict[str, Any] = {"name": config.name} if hasattr(config, "name") else {}
    for item in fields(config):
        value = getattr(config, item.name)
        if is_dataclass(value):
            value = to_table(value)
        elif isinstance(value, tuple):
            value = list(value)
        if value is not None:
            table[item.name] = value
        elif item.default is not None:  # left out, it would be read back as something else
            raise ConfigError(
                f"{type(config).__name__}: {item.name} = None cannot be written: TOML has no null",
                key=(item.name,),
            )
    return table


def named(kinds: Mapping[str, type[T]], table: Any, *, key: Key, what: str) -> T:
    """The config of the class that ``table["name"]`` stands for in ``kinds``."""
    if isinstance(table, str):
        table = {"name": table}
    if not isinstance(table, Mapping):
        raise ConfigError(f"expected a table with a name, got {_show(table)}", key=key)
    if "name" not in table:
        raise ConfigError(
            f"{what} has no name; write name = {next(iter(kinds))!r} or another of: "
            + ", ".join(kinds),
            key=key,
        )
    name = table["name"]
    if not isinstance(name, str) or name not in kinds:
        raise ConfigError(
            f"unknown {what} {_show(name)}{_did_you_mean(name, kinds)}; "
            f"expected one of: {', '.join(kinds)}",
            key=(*key, "name"),
        )
    rest = {k: v for k, v in table.items() if k != "name"}
    return from_table(kinds[name], rest, key=key)


def from_table(kind: type[T], table: Mapping[str, Any], *, key: Key = ()) -> T:
    """An instance of the dataclass ``kind`` from a table; unknown and ill-typed keys are errors."""
    config: Any = kind
    hints = _hints(config)
    known = {item.name: item for item in fields(config)}
    values = {}
    for name, value in table.items():
        if name not in known:
            raise ConfigError(
                f"unknown key {name!r}{_did_you_mean(name, known)}; expected one of: "
                + (", ".join(known) or "nothing"),
                key=(*key, name),
            )
        values[name] = _convert(value, hints[name], (*key, name))
    for name, item in known.items():
        if name not in values and item.default is MISSING and item.default_factory is MISSING:
            raise ConfigError(f"missing key {name!r}", key=key)
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(str(error), key=(*key, *error.key)) from None


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    config: Any = kind
    hints = get_type_hints(config)
    return {item.name: hints[item.name] for item in fields(config)}


def _misfit(value: Any, hint: Any) -> str | None:
    """What was expected instead of ``value``; None where it fits its type."""
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        misfits = [_misfit(value, option) for option in options]
        return None if None in misfits else " or ".join(filter(None, misfits))
    if origin is Literal:
        return None if value in options else "one of " + ", ".join(map(repr, options))
    if origin is tuple:
        item_hints = options[:1] * len(value) if options[-1] is Ellipsis else options
        fits = isinstance(value, tuple) and len(value) == len(item_hints)
        fits = fits and all(_misfit(v, h) is None for v, h in zip(value, item_hints, strict=True))
        return None if fits else "a tuple"
    if hint in _SCALARS:
        fits_scalar, expected = _SCALARS[hint]
        return None if fits_scalar(value) else expected
    return None if isinstance(value, hint) else hint.__name__


def _convert(value: Any, hint: Any, key: Key) -> Any:
    origin, options = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(value, options, key)
    if origin is Literal:
        _expect(value in options, value, "one of " + ", ".join(map(repr, options)), key)
        return value
    if origin is tuple:
        _expect(isinstance(value, list | tuple), value, "a list", key)
        item_hints = options[:1] * len(value) if options[-1] is Ellipsis else options
        _expect(len(value) == len(item_hints), value, f"a list of {len(item_hints)}", key)
        return tuple(_convert(v, h, key) for v, h in zip(value, item_hints, strict=True))
    if isinstance(hint, type) and is_dataclass(hint):
        if hasattr(hint, "name"):
            return named({hint.name: hint}, value, key=key, what=key[-1])
        _expect(isinstance(value, Mapping), value, "a table", key)
        return from_table(hint, value, key=key)
    return _convert_scalar(value, hint, key)


def _convert_union(value: Any, options: Iterable[Any], key: Key) -> Any:
    classes: list[Any] = [option for option in options if is_dataclass(option)]
    if classes:
        return named({c.name: c for c in classes}, value, key=key, what=key[-1])
    (hint,) = (option for option in options if option is not types.NoneType)
    return _convert(value, hint, key)


_SCALARS: dict[type, tuple[Callable[[Any], bool], str]] = {
    bool: (lambda v: isinstance(v, bool), "true or false"),
    int: (lambda v: isinstance(v, Integral) and not isinstance(v, bool), "a whole number"),
    float: (lambda v: isinstance(v, Real) and not isinstance(v, bool), "a number"),
    str: (lambda v: isinstance(v, str), "a string"),
}


def _convert_scalar(value: Any, hint: type, key: Key) -> Any:
    fits, expected = _SCALARS[hint]
    _expect(fits(value), value, expected, key)
    try:
        return hint(value)
    except OverflowError:
        raise ConfigError(f"{key[-1]} is too large, expected {expected}", key=key) from None


def _expect(condition: bool, value: Any, expected: str, key: Key) -> None:
    if not condition:
        raise ConfigError(f"{key[-1]} = {_show(value)}, expected {expected}", key=key)


def _show(value: Any) -> str:
    return repr(value) if isinstance(value, str | int | float | bool) else type(value).__name__


def _did_you_mean(name: object, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""

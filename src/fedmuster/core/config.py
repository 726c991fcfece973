"""Frozen dataclasses to plain tables (TOML) and back, strictly.

Policies, worlds, solvers and estimators are all such dataclasses. A field that holds one of several
kinds is written as a table whose ``name`` says which of them it is: the kinds of a union, or all
of a :class:`~fedmuster.core.registry.Registry` where the field's type is the registry's protocol.
On the command line a table is one line of text: ``bsfl:alpha=3,beta=1.2``.
"""

import re
import tomllib
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedmuster.core.errors import ConfigError, UnknownNameError
from fedmuster.core.registry import (
    Registry,
    did_you_mean,
    is_outside,
    named_outside,
    outside_class,
    spelling,
)

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


def shared_settings(kind: Any, config: object) -> dict[str, Any]:
    """The settings of ``config`` that are also fields of the dataclass ``kind``."""
    names = [item.name for item in fields(kind) if hasattr(config, item.name)]
    return {name: getattr(config, name) for name in names}


def to_table(config: Any) -> dict[str, Any]:
    """A config as a table with its ``name`` first; None is left out, as TOML has no null."""
    table: dict[str, Any] = {"name": spelling(type(config))} if hasattr(config, "name") else {}
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
    """The config of the class that ``table["name"]`` stands for in ``kinds``, or outside."""
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
    rest = {k: v for k, v in table.items() if k != "name"}
    kind = kind_of(kinds, table["name"], key=(*key, "name"), what=what)
    if isinstance(kinds, Registry):
        whole: T = _wrapped(kinds, kind, rest, key)
        return whole
    return from_table(kind, rest, key=key)


def _wrapped(registry: Registry[T], kind: Any, table: dict[str, Any], key: Key) -> T:
    """The config of a class of the registry, within the wrappers whose settings the table has."""
    wrappers: Mapping[str, Any] = registry.wrappers
    outer = {name: table.pop(name) for name in wrappers if name in table.keys() - _hints(kind)}
    config: T = from_table(kind, table, key=key, others=wrappers)
    for name, value in outer.items():
        wrapper = wrappers[name]
        setting = _convert(value, _hints(wrapper)[name], (*key, name))
        config = _made(wrapper, {registry.kind: config, name: setting}, key)
    return config


def kind_of(kinds: Mapping[str, type[T]], name: Any, *, key: Key, what: str) -> type[T]:
    """The class of that name in ``kinds``, or of that address outside (``module:Class``)."""
    try:
        if isinstance(name, str) and is_outside(name):
            known, _, rest = name.partition(":")
            if known in kinds:
                raise ConfigError(f"cannot read {rest!r} after {known!r}, expected key=value")
            kind: type[Any] = outside_class(name)
            if isinstance(kinds, Registry):
                kinds.require(kind, name)
            return kind
        if isinstance(name, str) and name in kinds:
            return kinds[name]
    except ConfigError as error:
        raise type(error)(str(error), key=key) from error
    raise UnknownNameError(
        f"unknown {what} {_show(name)}{did_you_mean(name, kinds)}; expected module:Class or one "
        f"of: {', '.join(kinds)}",
        key=key,
    )


def from_text(registry: Registry[T], text: str) -> T:
    """The config that a line of text describes, for example ``bsfl:alpha=3``."""
    return named(registry, parse(text), key=(), what=registry.kind)


def configured(registry: Registry[T], given: T | str, *, owner: str) -> T:
    """``given``, or the config that it names as text such as ``bsfl:alpha=3``.

    A class, or an object of another kind, is refused in the name of ``owner``.
    """
    if isinstance(given, str):
        return from_text(registry, given)
    if not registry.fits(given):
        kind, what = registry.kind, f"a {type(given).__name__}"
        advice = f"a {kind}, or the name of one, such as {min(registry)!r}{registry.advice}"
        if isinstance(given, type):
            what, advice = f"the class {given.__name__}", f"an object: write {given.__name__}()"
        raise ConfigError(f"{owner}: {kind} is {what}, expected {advice}", key=(kind,))
    return given


def parse(text: str) -> dict[str, Any]:
    """A line of text as the table that a spec would have.

    Example:
        >>> parse('bsfl:alpha=3,solver={name="annealing", steps=500}')
        {'name': 'bsfl', 'alpha': 3, 'solver': {'name': 'annealing', 'steps': 500}}
        >>> parse("./mine.py:EpsGreedy:epsilon=0.2")
        {'name': './mine.py:EpsGreedy', 'epsilon': 0.2}
    """
    name, settings = split_text(text)
    table = parse_settings(settings)
    if "name" in table:
        raise ConfigError(f"{text!r} names two things, expected one name before the colon")
    return {"name": name, **table}


def split_text(text: str) -> tuple[str, str]:
    """The name and the settings of a line of text.

    Example:
        >>> split_text("my_package.greedy:EpsGreedy:epsilon=0.2")
        ('my_package.greedy:EpsGreedy', 'epsilon=0.2')
    """
    outside = _OUTSIDE.match(text)
    if outside is None:
        name, _, settings = text.partition(":")
    else:
        name, settings = outside["name"], text[outside.end() :]
    return name, settings


def parse_settings(text: str) -> dict[str, Any]:
    """``alpha=3,beta=1.2`` as a table; what is no TOML value is taken as a string.

    Example:
        >>> parse_settings('epochs=2,schedule={name="step", every={a=1, b=2}}')
        {'epochs': 2, 'schedule': {'name': 'step', 'every': {'a': 1, 'b': 2}}}
    """
    table = {}
    for setting in _at_outer_commas(text):
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"cannot read {setting!r} in {text!r}, expected key=value")
        try:
            table[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            table[key.strip()] = value.strip()
    return table


def _at_outer_commas(text: str) -> Iterator[str]:
    """The parts of a text between commas that are not within brackets or quotes."""
    part = ""
    for piece in text.split(",") if text else ():
        part = f"{part},{piece}" if part else piece
        closed = all(part.count(one) == part.count(other) for one, other in ("{}", "[]"))
        if closed and part.count('"') % 2 == 0:
            yield part
            part = ""
    if part:
        yield part


_OUTSIDE = re.compile(r"(?P<name>(?:[^:=]*\.py|\w+(?:\.\w+)*):[A-Za-z_][\w.]*)(?::|$)")


def from_table(
    kind: type[T], table: Mapping[str, Any], *, key: Key = (), others: Iterable[str] = ()
) -> T:
    """An instance of the dataclass ``kind`` from a table; unknown and ill-typed keys are errors.

    ``others`` are keys that the caller takes out of the table, and that a user may have misspelled.
    """
    config: Any = kind
    hints = _hints(config)
    known = {item.name: item for item in fields(config)}
    expected = list(dict.fromkeys((*known, *others)))
    values = {}
    for name, value in table.items():
        if name not in known:
            raise ConfigError(
                f"unknown key {name!r}{did_you_mean(name, expected)}; expected one of: "
                + (", ".join(expected) or "nothing"),
                key=(*key, name),
            )
        values[name] = _convert(value, hints[name], (*key, name))
    for name, item in known.items():
        if name not in values and item.default is MISSING and item.default_factory is MISSING:
            raise ConfigError(f"missing key {name!r}", key=key)
    return _made(kind, values, key)


def _made(kind: type[T], values: Mapping[str, Any], key: Key) -> T:
    """``kind(**values)``; an error names the full key."""
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
    registry = Registry.of(hint)
    if registry is not None:
        return None if registry.fits(value) else f"a {registry.kind}"
    fits = isinstance(value, hint) or named_outside(type(value))
    return None if fits else hint.__name__


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
    registry = Registry.of(hint)
    if registry is not None:
        return named(registry, value, key=key, what=registry.kind)
    if isinstance(hint, type) and is_dataclass(hint):
        if hasattr(hint, "name"):
            return named({hint.name: hint}, value, key=key, what=key[-1])
        _expect(isinstance(value, Mapping), value, "a table", key)
        return from_table(hint, value, key=key)
    return _convert_scalar(value, hint, key)


def _convert_union(value: Any, options: Iterable[Any], key: Key) -> Any:
    classes: list[Any] = [
        option for option in options if is_dataclass(option) and Registry.of(option) is None
    ]
    if len(classes) == 1 and not hasattr(classes[0], "name"):
        return _convert(value, classes[0], key)
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

"""The tables of a spec: ``[[policy]]``, the same in one line, and where a key stands."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar

from fedmuster.core.config import Key, from_table, named, parse, split_text, to_table
from fedmuster.core.errors import ConfigError, UnknownNameError
from fedmuster.core.explaining import Moment, Rule
from fedmuster.core.policy import POLICIES, Policy, PolicyTraits
from fedmuster.core.registry import is_outside
from fedmuster.federation import Federation
from fedmuster.policies.explaining.simple_rules import Untold
from fedmuster.policies.exploring import Exploring
from fedmuster.worlds import WORLDS
from fedmuster.worlds.real_federation import FEDERATIONS
from fedmuster.worlds.world import World

T = TypeVar("T")

_REPLACEABLE = ("data", "partition", "model", "server", "schedule")
"""Parts of ``[training]`` and ``[privacy]`` of which a report needs the name only."""


@dataclass(frozen=True, kw_only=True)
class UnavailableClass(PolicyTraits):
    """Stands for a policy, a world or a part of the training whose class cannot be imported.

    Reports and explanations read the journal without the class; no run is played or resumed.

    Args:
        table: what the spec says, without ``label`` and ``private``.
        reason: why the class cannot be imported.
        hierarchical: whether a world has edge servers; the spec's ``[reward]`` tells.
    """

    name: ClassVar[str] = "unavailable"

    table: Mapping[str, Any]
    reason: str = field(compare=False)
    hierarchical: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.table["name"])

    def refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to play the run."""
        raise UnknownNameError(
            f"the run cannot be played or continued without {self.table['name']}; it can be "
            f"reported on, and explained from its journal. {self.reason}"
        )

    init = select = observe = start = spent_share = refuse

    def rule(self) -> Rule:
        """A rule that says why nothing is known."""
        return _UnknownRule(reason=self.reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class _UnknownRule(Untold):
    reason: str

    def about(self, moment: Moment) -> str:
        return f"its rule is not known, and the run cannot be played again ({self.reason})"


def read_world(table: Any, *, reading: bool, hierarchical: bool) -> World:
    """The world of a spec; see :func:`read_policies` and :class:`UnavailableClass`."""
    kinds = {**WORLDS, **FEDERATIONS}
    try:
        world: World = named(kinds, table, key=("world",), what="world")
    except ConfigError as error:
        return replace(_unavailable(table, error, reading=reading), hierarchical=hierarchical)
    return world


def read_part(kind: type[T], table: Any, *, key: str, reading: bool) -> T:
    """``[training]``, ``[privacy]``, … as a ``kind``; see :class:`UnavailableClass`.

    A missing privacy mechanism is an error also for reports: it alone knows what was promised.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{key} = {table!r}, expected a table", key=(key,))
    try:
        return from_table(kind, table, key=(key,))
    except ConfigError as error:
        part = error.key[1] if len(error.key) > 1 else ""
        if part not in _REPLACEABLE:
            raise
        missing = {part: _unavailable(table.get(part), error, reading=reading)}
        if part == "model":  # which numbers of workers fit, only the model knows
            missing |= {name: table[name] for name in ("workers",) if name in table}
    rest = {name: value for name, value in table.items() if name not in missing}
    config = read_part(kind, rest, key=key, reading=reading)
    for name, value in missing.items():
        object.__setattr__(config, name, value)
    return config


def unavailable_in(config: object) -> dict[str, UnavailableClass]:
    """The parts of a config whose classes cannot be imported, by field."""
    if not is_dataclass(config):
        return {}
    parts = {item.name: getattr(config, item.name) for item in fields(config)}
    return {name: part for name, part in parts.items() if isinstance(part, UnavailableClass)}


def table_of(config: Any) -> dict[str, Any]:
    """The config as the spec has it, also where classes cannot be imported."""
    if isinstance(config, UnavailableClass):
        return dict(config.table)
    return to_table(config) | {
        name: dict(part.table) for name, part in unavailable_in(config).items()
    }


class Contestants(NamedTuple):
    """Policies by label, the labels of those without privacy, and ways of working of their own."""

    policies: dict[str, Policy[Any]]
    unprotected: frozenset[str]
    federations: dict[str, Federation]


def read_policies(tables: Any, *, reading: bool = False) -> Contestants:
    """The policies of a spec.

    Args:
        tables: what a spec has as ``policy``: a name, a table, or a list of these.
        reading: whether classes that cannot be imported are accepted, see
            :class:`UnavailableClass`.
    """
    numbered = isinstance(tables, list)
    policies: dict[str, Policy[Any]] = {}
    unprotected, federations = set(), {}
    for number, table in enumerate(tables if numbered else [tables]):
        key = ("policy", str(number)) if numbered else ("policy",)
        label, private, federation = None, True, None
        if isinstance(table, Mapping):
            table = dict(table)
            label, private = table.pop("label", None), table.pop("private", True)
            federation = table.pop("federation", None)
        if not isinstance(private, bool):
            raise ConfigError(
                f"private = {private!r}, expected true or false", key=(*key, "private")
            )
        policy: Policy[Any]
        try:
            policy = named(POLICIES, table, key=key, what="policy")
        except ConfigError as error:
            policy = _unavailable(table, error, reading=reading)
        if label is None:  # an entry point may have another name than its class
            name = table["name"] if isinstance(table, Mapping) else table
            label = policy.name if is_outside(name) else name
            if isinstance(policy, Exploring):
                label = f"{policy.policy.name}, explore {policy.explore:g}"
        if not isinstance(label, str):
            raise ConfigError(f"label = {label!r}, expected a string", key=(*key, "label"))
        if label in policies:
            raise ConfigError(
                f"two policies are called {label!r}: leave one of them out, or give it a label of "
                "its own",
                key=(*key, "label") if numbered else key,
            )
        if not private:
            unprotected.add(label)
        if federation is not None:
            federations[label] = _own_federation(federation, key=(*key, "federation"))
        policies[label] = policy
    return Contestants(policies, frozenset(unprotected), federations)


def _own_federation(table: Any, *, key: Key) -> Federation:
    """The way of working of one policy; the word "rounds" stands for ``{ rounds = true }``."""
    if table == "rounds":
        return Federation(rounds=True)
    if not isinstance(table, Mapping):
        raise ConfigError(f'federation = {table!r}, expected a table, or "rounds"', key=key)
    return from_table(Federation, table, key=key)


def _unavailable(table: Any, error: ConfigError, *, reading: bool) -> UnavailableClass:
    """What stands for a class that cannot be had; other errors, and if not ``reading`` all, rise.

    A class from outside may also have changed since its run was written.
    """
    settings = {"name": table} if isinstance(table, str) else table
    name = settings.get("name") if isinstance(settings, Mapping) else None
    gone = isinstance(name, str) and (isinstance(error, UnknownNameError) or is_outside(name))
    if not reading or not gone:
        raise error
    return UnavailableClass(table=dict(settings), reason=str(error))


def label_of(text: str) -> str:
    """What a policy is called that was written so; a label is also a folder's name.

    Example:
        >>> label_of("bsfl:alpha=3"), label_of("./mine.py:EpsGreedy:epsilon=0.2")
        ('bsfl:alpha=3', 'EpsGreedy:epsilon=0.2')
    """
    name, settings = split_text(text)
    if not is_outside(name):
        return text
    return ":".join(filter(None, (name.partition(":")[2], settings)))


def parse_policies(texts: Iterable[str]) -> Contestants:
    """Policies by what was written."""
    return read_policies([{**parse(text), "label": label_of(text)} for text in texts])


# On which line of a TOML text a key stands, which :mod:`tomllib` does not say.

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?")
_ASSIGNMENT = re.compile(
    r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)


def line_of(text: str, key: Key) -> int | None:
    """The line (from 1) of ``key``, or of the nearest table above it that is written out.

    The tables of an array are counted from 0: the second ``[[policy]]`` is ``("policy", "1")``.
    """
    lines: dict[Key, int] = {}
    table: Key = ()
    seen: Counter[Key] = Counter()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _split(header[2])
            for length in range(1, len(table)):  # [policy.solver] belongs to the last [[policy]]
                if array := seen[table[:length]]:
                    table = (*table[:length], str(array - 1), *table[length:])
            if header[1] == "[[":
                seen[table] += 1
                table = (*table, str(seen[table] - 1))
            lines.setdefault(table, number)
        elif assignment := _ASSIGNMENT.match(line):
            lines.setdefault((*table, *_split(assignment[1])), number)
    for length in range(len(key), 0, -1):
        if key[:length] in lines:
            return lines[key[:length]]
    return None


def _split(dotted: str) -> Key:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))

"""The tables of a spec: ``[[policy]]``, the same in one line, and where a key stands."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from numpy.random import Generator

from fedmuster.core.config import Key, named
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import Policy, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.policies import POLICIES


@dataclass(frozen=True, kw_only=True, slots=True)
class UnavailablePolicy(PolicyTraits):
    """Stands for a policy whose class cannot be imported (any more).

    Reports and explanations read the runs of such a policy; running or resuming is refused.

    Args:
        table: the policy in the spec, without ``label`` and ``private``.
        reason: why the class cannot be imported.
    """

    name: ClassVar[str] = "unavailable"

    table: Mapping[str, Any]
    reason: str = field(compare=False)

    def refuse(self, *, key: Key = ()) -> NoReturn:
        """Complain that the policy cannot run."""
        raise ConfigError(
            f"the policy {self.table['name']} cannot run: {self.reason}. Its finished runs can "
            "still be reported on and explained from their journals",
            key=key,
        )

    def init(self, problem: Problem) -> Any:
        """Refused."""
        self.refuse()

    def select(self, state: Any, view: RoundView, rng: Generator) -> Selection:
        """Refused."""
        self.refuse()

    def observe(self, state: Any, selection: Selection, feedback: Feedback) -> None:
        """Refused."""
        self.refuse()


def read_policies(
    tables: Any, *, reading: bool = False
) -> tuple[dict[str, Policy[Any]], frozenset[str]]:
    """Policies by label, and the labels of those without privacy.

    Args:
        tables: what a spec has as ``policy``: a name, a table, or a list of these.
        reading: whether classes that cannot be imported are accepted, see
            :class:`UnavailablePolicy`.
    """
    numbered = isinstance(tables, list)
    policies: dict[str, Policy[Any]] = {}
    unprotected = set()
    for number, table in enumerate(tables if numbered else [tables]):
        key = ("policy", str(number)) if numbered else ("policy",)
        label, private = None, True
        if isinstance(table, Mapping):
            table = dict(table)
            label, private = table.pop("label", None), table.pop("private", True)
        if not isinstance(private, bool):
            raise ConfigError(
                f"private = {private!r}, expected true or false", key=(*key, "private")
            )
        policy, name = _read_policy(table, key=key, reading=reading)
        label = name if label is None else label
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
        policies[label] = policy
    return policies, frozenset(unprotected)


def _read_policy(table: Any, *, key: Key, reading: bool) -> tuple[Policy[Any], str]:
    policy: Policy[Any] = named(POLICIES, table, key=key, what="policy")
    return policy, policy.name


# Policies, worlds and rewards in one line: ``bsfl:alpha=3,beta=1.2``.

_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[{]*[\]}])")
_CLASS = re.compile(r"(?:[^:=]*[./][^:=]*:[^\W\d]\w*|[^:=]*:[A-Z]\w*)(?=:|$)")


def parse(text: str) -> dict[str, Any]:
    """A table as a spec would have it.

    The name is one of the registry, or ``module:Class`` or ``path/to/file.py:Class``.

    Example:
        >>> parse('bsfl:alpha=3,solver={name="annealing", steps=500}')
        {'name': 'bsfl', 'alpha': 3, 'solver': {'name': 'annealing', 'steps': 500}}
        >>> parse("latency:distribution=normal")
        {'name': 'latency', 'distribution': 'normal'}
        >>> parse("./mine.py:EpsGreedy:epsilon=0.2")
        {'name': './mine.py:EpsGreedy', 'epsilon': 0.2}
    """
    found = _CLASS.match(text)
    name = text.partition(":")[0] if found is None else found[0]
    table = parse_settings(text[len(name) + 1 :])
    if "name" in table:
        raise ConfigError(f"{text!r} names two things, expected one name before the colon")
    return {"name": name, **table}


def parse_settings(text: str) -> dict[str, Any]:
    """``alpha=3,beta=1.2`` as a table; what is no TOML value is taken as a string."""
    table = {}
    for setting in _COMMA_OUTSIDE_BRACKETS.split(text) if text else []:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"cannot read {setting!r} in {text!r}, expected key=value")
        try:
            table[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            table[key.strip()] = value.strip()
    return table


def parse_policy(text: str) -> Policy[Any]:
    """The policy of that name, with these settings."""
    return _read_policy(parse(text), key=(), reading=False)[0]


def parse_policies(texts: Iterable[str]) -> tuple[dict[str, Policy[Any]], frozenset[str]]:
    """Policies by what was written, and those of them that run without privacy.

    A label becomes a folder: of the path of a file only the file's name stays.
    """
    return read_policies(
        [{**parse(text), "label": re.sub(r"[^:=]*/", "", text)} for text in texts]
    )


# On which line of a TOML text a key stands, which :mod:`tomllib` does not say.

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?")
_ASSIGNMENT = re.compile(
    r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*="""
)


def line_of(text: str, key: Key) -> int | None:
    """The line (from 1) of ``key``, or of the nearest table above it that is written out.

    The tables of an array are counted from 0: the second ``[[policy]]`` is ``("policy", "1")``.

    Example:
        >>> line_of('rounds = 10\\n[world]\\nname = "x"\\n', ("world", "name"))
        3
        >>> line_of('rounds = 10\\n[world]\\nname = "x"\\n', ("world", "spread", "sd"))
        2
        >>> line_of("[[policy]]\\n[[policy]]\\n[policy.solver]\\n", ("policy", "1", "solver"))
        3
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

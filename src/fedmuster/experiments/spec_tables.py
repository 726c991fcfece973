"""The policies of a spec: ``[[policy]]`` with a label of its own, and whether it is private."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from fedmuster.core.config import from_text, named, parse, split_text
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import POLICIES, Policy
from fedmuster.core.registry import is_outside


def take_private(table: dict[str, Any], *, key: tuple[str, ...] = ()) -> bool:
    """Take ``private`` out of a policy's table: whether it keeps clients' privacy."""
    private = table.pop("private", True)
    if not isinstance(private, bool):
        raise ConfigError(f"private = {private!r}, expected true or false", key=(*key, "private"))
    return private


def read_policies(tables: Any) -> tuple[dict[str, Policy[Any]], frozenset[str]]:
    """Policies by label, and the labels of those without privacy."""
    numbered = isinstance(tables, list)
    policies: dict[str, Policy[Any]] = {}
    unprotected = set()
    for number, table in enumerate(tables if numbered else [tables]):
        key = ("policy", str(number)) if numbered else ("policy",)
        label, private = None, True
        if isinstance(table, Mapping):
            table = dict(table)
            label, private = table.pop("label", None), take_private(table, key=key)
        policy: Policy[Any] = named(POLICIES, table, key=key, what="policy")
        label = policy.name if label is None else label
        if not isinstance(label, str):
            raise ConfigError(f"label = {label!r}, expected a string", key=(*key, "label"))
        if label in policies:
            raise ConfigError(
                f"two policies are called {label!r}: give one of them another label",
                key=(*key, "label") if numbered else key,
            )
        if not private:
            unprotected.add(label)
        policies[label] = policy
    return policies, frozenset(unprotected)


# Policies, worlds and rewards in one line: ``bsfl:alpha=3,beta=1.2``.


def parse_policy(text: str) -> Policy[Any]:
    """The policy of that name, with these settings."""
    return from_text(POLICIES, text)


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


def parse_policies(texts: Iterable[str]) -> tuple[dict[str, Policy[Any]], frozenset[str]]:
    """Policies by what was written, and those of them that run without privacy."""
    policies: dict[str, Policy[Any]] = {}
    unprotected = set()
    for text in texts:
        table, label = parse(text), label_of(text)
        if label in policies:
            raise ConfigError(f"policy {label} is given twice")
        if not take_private(table):
            unprotected.add(label)
        policies[label] = named(POLICIES, table, key=(), what="policy")
    return policies, frozenset(unprotected)


# On which line of a TOML text a key stands, which :mod:`tomllib` does not say.

Key = tuple[str, ...]

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

"""Policies, worlds and rewards in one line: ``bsfl:alpha=3,beta=1.2``."""

import re
import tomllib
from collections.abc import Iterable
from typing import Any

from fedmuster.core.config import named
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import Policy
from fedmuster.experiments.policy_tables import take_private
from fedmuster.policies import POLICIES

_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[{]*[\]}])")


def parse(text: str) -> dict[str, Any]:
    """A table as a spec would have it.

    Example:
        >>> parse('bsfl:alpha=3,solver={name="annealing", steps=500}')
        {'name': 'bsfl', 'alpha': 3, 'solver': {'name': 'annealing', 'steps': 500}}
        >>> parse("latency:distribution=normal")
        {'name': 'latency', 'distribution': 'normal'}
    """
    name, _, settings = text.partition(":")
    table = parse_settings(settings)
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
    policy: Policy[Any] = named(POLICIES, parse(text), key=(), what="policy")
    return policy


def parse_policies(texts: Iterable[str]) -> tuple[dict[str, Policy[Any]], frozenset[str]]:
    """Policies by what was written, and those of them that run without privacy."""
    policies: dict[str, Policy[Any]] = {}
    unprotected = set()
    for text in texts:
        if text in policies:
            raise ConfigError(f"policy {text} is given twice")
        table = parse(text)
        if not take_private(table):
            unprotected.add(text)
        policies[text] = named(POLICIES, table, key=(), what="policy")
    return policies, frozenset(unprotected)

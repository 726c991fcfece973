"""Policies, worlds and rewards on the command line: ``bsfl:alpha=3,beta=1.2``."""

import re
import tomllib
from typing import Any

from fedmuster.core.errors import ConfigError

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

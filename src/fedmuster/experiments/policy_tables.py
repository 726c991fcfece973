"""The policies of a spec: ``[[policy]]`` with a label of its own, and whether it is private."""

from collections.abc import Mapping
from typing import Any

from fedmuster.core.config import named
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import Policy
from fedmuster.policies import POLICIES


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

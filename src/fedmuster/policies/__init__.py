"""Policies: a small policy is a file, a paper with parts of its own is a folder.

Each policy registers itself in :data:`~fedmuster.core.policy.POLICIES`; classes can be imported
from here by their name.
"""

from typing import Any

from fedmuster.core.policy import POLICIES

__all__ = ["POLICIES"]


def __getattr__(name: str) -> Any:
    for policy in POLICIES.values():
        if policy.__name__ == name:
            return policy
    raise AttributeError(f"module 'fedmuster.policies' has no attribute {name!r}")

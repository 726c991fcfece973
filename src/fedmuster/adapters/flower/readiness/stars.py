"""Which names ``from … import *`` brings."""

import ast
from functools import cache
from importlib import import_module
from typing import Final

_LOOKED_INTO: Final = ("flwr", "fedmuster")
"""Packages that are imported to see what they offer: they are installed, and run nothing."""


def exported(tree: ast.Module, name: str) -> bool:
    """Whether a module of the app lets a star have ``name``, should it know it."""
    for statement in tree.body:
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.value, ast.List | ast.Tuple)
            and any(isinstance(t, ast.Name) and t.id == "__all__" for t in statement.targets)
        ):
            listed = statement.value.elts
            return any(isinstance(e, ast.Constant) and e.value == name for e in listed)
    return not name.startswith("_")


@cache
def names_of_others(module: str) -> frozenset[str]:
    """The public names of a module of Flower or fedmuster; of any other nothing is known."""
    if module.partition(".")[0] not in _LOOKED_INTO:
        return frozenset()
    try:
        found = import_module(module)
    except ImportError:  # importing the app tells what is wrong, better than we could
        return frozenset()
    public = [name for name in vars(found) if not name.startswith("_")]
    return frozenset(getattr(found, "__all__", public))

"""Digests of code: which lines decide a run, and the file that a contestant handed in."""

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGES = ("fedmuster.", "claims.")
_UNUSED = (
    *("fedmuster.experiments", "fedmuster.report", "fedmuster.privacy"),
    *("fedmuster.federation.regret", "fedmuster.policies.genie"),
)
_OWN_FOLDER = "policy.py"
"""A policy in a file of this name has a folder of its own, all of which is its source."""


def code_digest(*configs: Any, modules: tuple[str, ...] = ()) -> str:
    """SHA-256 of all code that decides a run, without comments and docstrings.

    That is the code of ``modules``, of the module of every dataclass in ``configs``, and of those
    modules of fedmuster and of the claims that they import, directly or not. What reads specs,
    keeps journals, writes reports, measures regret or guards privacy does not count: the league
    does without.
    """
    kinds = {kind.__module__ for config in configs for kind in _kinds(config)}
    return _closure_digest(frozenset(kinds.union(modules)))


@cache
def _closure_digest(modules: frozenset[str]) -> str:
    found: dict[str, str] = {}
    waiting = set(modules)
    while waiting:
        name = waiting.pop()
        found[name], imported = _module(name)
        waiting |= {one for one in imported - found.keys() if not one.startswith(_UNUSED)}
    whole = hashlib.sha256()
    for text in sorted(found.values()):  # a file from outside has no name that means anything
        whole.update(f"{text}\n".encode())
    return whole.hexdigest()


def source_digest(kind: type[Any]) -> str:
    """SHA-256 of the file of a class, or of all files of its folder where that is its own."""
    file = _file(kind.__module__)
    files = sorted(file.parent.glob("*.py")) if file.name == _OWN_FOLDER else [file]
    whole = hashlib.sha256()
    for one in files:
        if not one.name.startswith("test_"):
            whole.update(one.read_bytes())
    return whole.hexdigest()


def _kinds(config: Any) -> Iterator[type[Any]]:
    """The classes of a config and of everything in its fields."""
    if isinstance(config, dict):
        config = tuple(config.values())
    if isinstance(config, tuple | list):
        for entry in config:
            yield from _kinds(entry)
    elif is_dataclass(config):
        yield type(config)
        yield from _kinds(tuple(getattr(config, item.name) for item in fields(config)))


@cache
def _module(name: str) -> tuple[str, set[str]]:
    """The code of a module, and which of our modules it imports."""
    tree = ast.parse(_file(name).read_text(encoding="utf-8"))
    imported = {found for node in ast.walk(tree) for found in _imports(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [one for one in node.body if not _is_text(one)] or [ast.Pass()]
    return ast.unparse(tree), imported


def _imports(node: ast.AST) -> Iterable[str]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if name.startswith(_PACKAGES) and _is_module(name)]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@cache
def _is_module(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # a class of a module
        return False


def _file(module: str) -> Path:
    file = importlib.import_module(module).__file__
    assert file is not None
    return Path(file)

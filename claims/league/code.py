"""Digests of code: which lines decide a run, and the file that a contestant handed in."""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final, NamedTuple

from fedmuster.core.errors import ConfigError

_OURS: Final = ("fedmuster", "claims")
_UNUSED: Final = ("fedmuster.experiments", "fedmuster.policies.genie", "fedmuster.report")
"""Packages and modules that write specs and reports or measure regret.

An import of them by fedmuster's own code does not count. The few modules of which functions run are
named by the caller of :func:`code_of`.
"""
_LEAVES: Final = (
    *("fedmuster.experiments.spec", "fedmuster.experiments.spec_tables"),
    *("fedmuster.federation.regret", "fedmuster.report.curves"),
)
"""Modules of which a few functions run: their own code counts, their imports do not."""
_OUR_LIBRARIES: Final = ("scipy",)
"""Libraries besides NumPy that can decide the bits of a run of fedmuster's own code."""
_OWN_FOLDER = "policy.py"
"""A policy in a file of this name has a folder of its own, all of which is its source."""


class Code(NamedTuple):
    """The code that decides a run.

    Args:
        digest: SHA-256 of the code of ``modules``, without comments and docstrings.
        modules: the modules of fedmuster, of the claims and of contestants from outside.
        libraries: packages of others that these modules import, and that can decide bits.
    """

    digest: str
    modules: frozenset[str]
    libraries: frozenset[str]


def code_of(*configs: Any, modules: tuple[str, ...] = ()) -> Code:
    """The code that decides a run with these configs.

    That is the code of ``modules``, of every class in ``configs`` and of its base classes, and of
    the modules that they import, directly or not.

    Raises:
        ConfigError: a contestant from outside imports a file that is not watched.
    """
    kinds = {kind.__module__ for config in configs for kind in _kinds(config)}
    return _closure(frozenset(kinds.union(modules)))


def own_digest(*modules: str) -> str:
    """SHA-256 of the code of these modules alone, without comments and docstrings."""
    return _digest(_read(name).text for name in modules)


def source_digest(kind: type[Any]) -> str:
    """SHA-256 of the file of a class, or of all files of its folder where that is its own."""
    file = _file(kind.__module__)
    assert file is not None
    files = sorted(file.parent.glob("*.py")) if file.name == _OWN_FOLDER else [file]
    whole = hashlib.sha256()
    for one in files:
        if not one.name.startswith("test_"):
            whole.update(one.read_bytes())
    return whole.hexdigest()


@cache
def _closure(roots: frozenset[str]) -> Code:
    found: dict[str, str] = {}
    libraries: set[str] = set()
    waiting = set(roots)
    while waiting:
        name = waiting.pop()
        module = _read(name)
        found[name] = module.text
        for reference in module.references:
            if _top(reference) in _OURS or _top(reference) == _own_package(name):
                homes = _homes(reference)
                if _is_ours(name):
                    homes = {home for home in homes if not _is_unused(home)}
                waiting |= homes - found.keys()
            elif _is_library(name, reference):
                libraries.add(_top(reference))
    return Code(_digest(found.values()), frozenset(found), frozenset(libraries))


def _digest(texts: Iterable[str]) -> str:
    whole = hashlib.sha256()
    for text in sorted(texts):  # a file from outside has no name that means anything
        whole.update(f"{text}\n".encode())
    return whole.hexdigest()


def _kinds(config: Any) -> Iterator[type[Any]]:
    """The classes of a config and of everything in its fields, with their base classes."""
    if isinstance(config, dict):
        config = tuple(config.values())
    if isinstance(config, tuple | list):
        for entry in config:
            yield from _kinds(entry)
    elif is_dataclass(config):
        yield from (
            kind for kind in inspect.getmro(type(config)) if not _is_standard(kind.__module__)
        )
        yield from _kinds(tuple(getattr(config, item.name) for item in fields(config)))


class _Module(NamedTuple):
    """The code of a module, and the dotted names that it imports."""

    text: str
    references: frozenset[str]


@cache
def _read(name: str) -> _Module:
    file = _file(name)
    if file is None:
        return _Module("", frozenset())
    tree = ast.parse(file.read_text(encoding="utf-8"))
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    references = frozenset() if name in _LEAVES else frozenset(_references(tree, package))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [one for one in node.body if not _is_text(one)] or [ast.Pass()]
    return _Module(ast.unparse(tree), references)


def _references(tree: ast.Module, package: str) -> Iterator[str]:
    """What is imported, and what is taken from what is imported: ``fm.BSFL`` is fedmuster.BSFL."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
                bound[alias.asname or _top(alias.name)] = (
                    alias.name if alias.asname else _top(alias.name)
                )
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(relative, package) if node.level else relative
            for alias in node.names:
                yield f"{base}.{alias.name}"
                bound[alias.asname or alias.name] = f"{base}.{alias.name}"
    for node in ast.walk(tree):
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
            node = node.value
        if path and isinstance(node, ast.Name) and _top(bound.get(node.id, "")) in _OURS:
            yield ".".join((bound[node.id], *path))


def _homes(reference: str) -> set[str]:
    """The modules of which a dotted name is: one, or where that is lazy, that of the object."""
    module, rest = reference, ""
    while not _is_module(module):
        module, _, rest = module.rpartition(".")
        if not module:
            return set()
    homes = set() if module in _OURS else {module}
    if rest and _is_lazy(module):
        home = getattr(getattr(importlib.import_module(module), rest, None), "__module__", None)
        homes |= {home} if isinstance(home, str) and _top(home) == _top(module) else set()
    return homes


def _is_library(importer: str, reference: str) -> bool:
    """Whether a name is of an installed package that can decide bits."""
    top = _top(reference)
    if _is_ours(importer):
        return top in _OUR_LIBRARIES
    if _is_standard(top) or not _is_module(top):
        return False
    if top not in _distributions():
        raise ConfigError(
            f"{_file(importer)}: it imports {top}, which is a file of its own, so that a change of "
            "it would go unseen; a contestant is one file only, or a package",
            key=("name",),
        )
    return True


@cache
def _distributions() -> frozenset[str]:
    return frozenset(packages_distributions())


def _top(name: str) -> str:
    return name.partition(".")[0]


def _own_package(module: str) -> str | None:
    """The package that a module is in; a file that was named by its path is in none."""
    return _top(module) if "." in module else None


def _is_ours(module: str) -> bool:
    return _top(module) in _OURS


def _is_unused(module: str) -> bool:
    return any(module == unused or module.startswith(f"{unused}.") for unused in _UNUSED)


def _is_standard(module: str) -> bool:
    return _top(module) in sys.stdlib_module_names


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


@cache
def _is_lazy(module: str) -> bool:
    """Whether names of a module are looked up when they are first used."""
    file = _file(module)
    if file is None:
        return True
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return any(isinstance(one, ast.FunctionDef) and one.name == "__getattr__" for one in tree.body)


def _file(module: str) -> Path | None:
    """The source of a module; None for one that only leads to others."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin)

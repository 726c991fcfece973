"""An app's own modules, read and never run: who imports what, and what a name stands for."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fedmuster.adapters.flower.readiness.stars import exported, names_of_others

_MOST_HOPS = 20  # from a name to what it stands for, through the imports of other modules


@dataclass(slots=True, eq=False)
class Module:
    """One file of the app.

    Args:
        name: as it is imported.
        path: of the file.
        where: its path as people know it, from the app's folder on.
        tree: its syntax tree.
        names: what imported names stand for, wherever in the file they are imported.
        local: functions, classes and assigned values by name, at the top of the file.
        stars: the modules of which it imports everything, ``from … import *``.
    """

    name: str
    path: Path
    where: str
    tree: ast.Module
    names: dict[str, str] = field(default_factory=dict)
    local: dict[str, ast.AST] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)

    def at(self, node: ast.AST) -> str:
        """File and line of a node."""
        return f"{self.where}:{getattr(node, 'lineno', 1)}"


class Source:
    """The modules of the app in ``folder``, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """The app's module of that name; None where it is somebody else's, or cannot be read."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def path_of(self, name: str) -> Path | None:
        """The file of a module that the app itself holds."""
        base = self.folder.joinpath(*name.split("."))
        candidates = (base.with_suffix(".py"), base / "__init__.py")
        return next((path for path in candidates if path.is_file()), None)

    def every_file(self) -> list[Module]:
        """All Python files: for apps that do not say where they begin."""
        paths = sorted(self.folder.glob("*.py")) + sorted(self.folder.glob("*/*.py"))
        names = [".".join(path.relative_to(self.folder).with_suffix("").parts) for path in paths]
        return [module for name in names if (module := self.module(name)) is not None]

    def reachable(self, start: str) -> list[Module]:
        """The module ``start`` and the app's modules that it imports, directly or not."""
        found: dict[str, Module] = {}
        waiting = [start]
        while waiting:
            module = self.module(waiting.pop())
            if module is None or module.name in found:
                continue
            found[module.name] = module
            for dotted in (*module.names.values(), *module.stars):
                parts = dotted.split(".")
                waiting += [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
        return list(found.values())

    def meaning(self, module: Module, node: ast.expr) -> str | None:
        """The full name of what an expression like ``fl.serverapp.FedAvg`` stands for."""
        if isinstance(node, ast.Attribute):
            owner = self.meaning(module, node.value)
            return None if owner is None else self._follow(f"{owner}.{node.attr}")
        if not isinstance(node, ast.Name):
            return None
        if node.id in module.names:
            return self._follow(module.names[node.id])
        if node.id in module.local:
            return f"{module.name}.{node.id}"
        starred = self._starred(module, node.id, frozenset())
        return None if starred is None else self._follow(starred)

    def definition(self, dotted: str) -> tuple[Module, ast.AST] | None:
        """Where the app itself defines what has this full name."""
        owner, _, name = dotted.rpartition(".")
        module = self.module(owner) if owner else None
        if module is None or name not in module.local:
            return None
        return module, module.local[name]

    def _follow(self, dotted: str) -> str:
        """Through the app's own re-exports to where the name comes from."""
        for _ in range(_MOST_HOPS):
            owner, _, name = dotted.rpartition(".")
            module = self.module(owner) if owner else None
            if module is None or name in module.local:
                return dotted
            found = module.names.get(name) or self._starred(module, name, frozenset())
            if found is None:
                return dotted
            dotted = found
        return dotted

    def _starred(self, module: Module, name: str, seen: frozenset[str]) -> str | None:
        """The full name of what ``from … import *`` brings under ``name``; the last one counts."""
        for base in reversed(module.stars):
            own = self.module(base)
            if own is None:
                found = f"{base}.{name}" if name in names_of_others(base) else None
            elif base in seen or not exported(own.tree, name):
                found = None
            elif name in own.local or name in own.names:
                found = f"{base}.{name}"
            else:
                found = self._starred(own, name, seen | {base})
            if found is not None:
                return found
        return None

    def _read(self, name: str) -> Module | None:
        path = self.path_of(name)
        if path is None:
            return None
        try:
            tree = ast.parse(path.read_bytes(), filename=str(path))
        except (SyntaxError, ValueError):  # importing it tells what is wrong, better than we could
            return None
        module = Module(name, path, str(path.relative_to(self.folder)), tree)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(tree):
            module.names.update(_imported(node, package))
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                module.stars.append(_base(node, package))
        for statement in tree.body:
            module.local.update(_defined(statement))
        return module


def _imported(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            shown = alias.asname or alias.name.partition(".")[0]
            yield shown, alias.name if alias.asname else shown
            yield f"import {alias.name}", alias.name  # so that reachable() sees submodules, too
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if alias.name != "*":
                yield alias.asname or alias.name, f"{_base(node, package)}.{alias.name}"


def _base(node: ast.ImportFrom, package: str) -> str:
    """The full name of the module that something is imported from."""
    base = node.module or ""
    if not node.level:
        return base
    parts = package.split(".")
    above = parts[: len(parts) - node.level + 1]
    return ".".join([*above, base] if base else above)


def _defined(statement: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name, statement
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name):
                yield target.id, statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        if isinstance(statement.target, ast.Name):
            yield statement.target.id, statement.value
    elif isinstance(statement, ast.If | ast.Try | ast.With):
        for inner in ast.iter_child_nodes(statement):
            if isinstance(inner, ast.stmt):
                yield from _defined(inner)

"""Which strategy an app starts: found by following what ``start`` is called on."""

import ast
import inspect
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from flwr.serverapp import strategy as current

from fedmuster.adapters.flower.readiness.source import Module, Source
from fedmuster.adapters.flower.readiness.values import Expression, Scope, Value, Values, bind

CURRENT: Final = "flwr.serverapp.strategy"
LEGACY: Final = "flwr.server.strategy"
MUSTER: Final = "Muster"
_ADAPTER: Final = "fedmuster.adapters.flower"
_MOST_STEPS: Final = 25

Kind = Literal["muster", "current", "legacy"]
Loop = ast.For | ast.AsyncFor | ast.While


class Built(NamedTuple):
    """A strategy where it is made.

    ``name`` is the class as the app calls it, ``root`` the class of Flower that it is or extends,
    ``definition`` the app's own class, where it is one.
    """

    kind: Kind
    name: str
    root: str
    call: Expression
    definition: tuple[Module, ast.ClassDef] | None = None


class Start(NamedTuple):
    """A call of ``start``: its statement, what it is called on, the loops around from outside."""

    call: ast.Call
    receiver: Expression
    statement: ast.stmt
    loops: tuple[Loop, ...]

    @property
    def where(self) -> str:
        """File and line."""
        return self.receiver.scope.module.at(self.call)

    def argument(self, name: str) -> Expression | None:
        """A keyword argument."""
        for keyword in self.call.keywords:
            if keyword.arg == name:
                return Expression(keyword.value, self.receiver.scope)
        return None


class Strategies:
    """Finds the strategies that an app builds and starts."""

    def __init__(self, values: Values) -> None:
        self.values = values

    @property
    def source(self) -> Source:
        """The app."""
        return self.values.source

    def built_by(self, expression: Expression, steps: int = _MOST_STEPS) -> list[Built]:
        """The strategies that an expression may stand for; [] where reading does not tell."""
        node, scope = expression
        if steps == 0:
            return []
        if isinstance(node, ast.IfExp):
            options = [Expression(node.body, scope), Expression(node.orelse, scope)]
        elif isinstance(node, ast.NamedExpr):
            options = [Expression(node.value, scope)]
        elif isinstance(node, ast.Call):
            built = self.construction(expression)
            found = [built] if built is not None else self._of_chosen_class(expression)
            if found:
                return found
            options = self.values.returned(expression)
        else:
            options = self.values.sources(expression)
        return [built for option in options for built in self.built_by(option, steps - 1)]

    def construction(self, expression: Expression) -> Built | None:
        """The strategy that a call makes, if its callee is the class of one."""
        node, scope = expression
        if not isinstance(node, ast.Call):
            return None
        dotted = self.source.meaning(scope.module, node.func)
        return None if dotted is None else self._made(dotted, expression)

    def _made(self, dotted: str, call: Expression) -> Built | None:
        name = dotted.rpartition(".")[2]
        if is_adapters(dotted, MUSTER):
            return Built("muster", name, dotted, call)
        root = self._root(dotted, _MOST_STEPS)
        if root is None:
            return None
        kind: Kind = "current" if root.startswith(CURRENT) else "legacy"
        found = self.source.definition(dotted)
        own = (found[0], found[1]) if found and isinstance(found[1], ast.ClassDef) else None
        return Built(kind, name, root, call, own)

    def _of_chosen_class(self, call: Expression) -> list[Built]:
        """``chosen = FedAdam`` here, ``chosen = FedAvg`` there, and then ``chosen(…)``."""
        assert isinstance(call.node, ast.Call)
        classes = self.values.sources(Expression(call.node.func, call.scope))
        names = [self.source.meaning(each.scope.module, each.node) for each in classes]
        found = [self._made(name, call) for name in names if name is not None]
        return [built for built in found if built is not None]

    def everywhere(self, modules: list[Module]) -> list[Built]:
        """All strategies that these modules build."""
        found = []
        for module in modules:
            for node, scope in _expressions(module):
                if isinstance(node, ast.Call):
                    built = self.construction(Expression(node, scope))
                    found += [] if built is None else [built]
        return found

    def starts(self, modules: list[Module]) -> list[Start]:
        """The calls of a strategy's ``start``, but for those in a strategy's own methods."""
        found = []
        for module in modules:
            for statement, scope, loops in _statements(module.tree, Scope(module), ()):
                for call in _own_calls(statement):
                    func = call.func
                    if not isinstance(func, ast.Attribute) or func.attr != "start":
                        continue
                    receiver = Expression(func.value, scope)
                    says_so = {k.arg for k in call.keywords} & {"grid", "initial_arrays"}
                    is_super = isinstance(func.value, ast.Call) and (
                        isinstance(func.value.func, ast.Name) and func.value.func.id == "super"
                    )
                    if not is_super and (says_so or self.built_by(receiver)):
                        found.append(Start(call, receiver, statement, loops))
        return found

    def settings(self, built: Built) -> dict[str, Expression]:
        """The arguments that reach Flower's class, by name."""
        call, scope = built.call
        assert isinstance(call, ast.Call)
        if built.definition is not None:
            return self._settings_of_own(built, call)
        if built.kind == "muster":
            names = ["strategy"]
        else:
            kind = getattr(current, built.root.rpartition(".")[2], None)
            names = [] if kind is None else list(inspect.signature(kind).parameters)
        given = {
            name: Expression(value, scope) for name, value in zip(names, call.args, strict=False)
        }
        return given | self.values.keywords(call, scope)

    def setting(self, built: Built, name: str) -> tuple[Value, str]:
        """One argument that reaches Flower's class, or its default, and where it is given."""
        given = self.settings(built).get(name)
        if given is not None:
            return self.values.value(given), given.where
        kind = getattr(current, built.root.rpartition(".")[2], None)
        parameter = None if kind is None else inspect.signature(kind).parameters.get(name)
        default = (
            None
            if parameter is None or parameter.default is inspect.Parameter.empty
            else (parameter.default)
        )
        return Value(default), built.call.where

    def inner(self, built: Built) -> list[Built]:
        """What a wrapper (Muster, differential privacy, one's own) wraps; [] where it is none."""
        given = self.settings(built).get("strategy")
        held = [] if given is None else self.built_by(given)
        return held or [each for kept in self._kept(built) for each in self.built_by(kept)]

    def layers(self, built: Built, steps: int = 8) -> Iterator[Built]:
        """A strategy, those that it may wrap, and so on."""
        yield built
        if steps:
            for inner in self.inner(built):
                yield from self.layers(inner, steps - 1)

    def _root(self, dotted: str, steps: int) -> str | None:
        if dotted.startswith((CURRENT + ".", LEGACY + ".")):
            return dotted if dotted.rpartition(".")[2][:1].isupper() else None
        found = self.source.definition(dotted)
        if found is None or not isinstance(found[1], ast.ClassDef) or steps == 0:
            return None
        meanings = (self.source.meaning(found[0], base) for base in found[1].bases)
        roots = (self._root(meaning, steps - 1) for meaning in meanings if meaning is not None)
        return next((root for root in roots if root is not None), None)

    def _settings_of_own(self, built: Built, call: ast.Call) -> dict[str, Expression]:
        """Through the class's own ``__init__`` to what it hands on to Flower's."""
        assert built.definition is not None
        keywords = self.values.keywords(call, built.call.scope)
        for inside in _inside_init(built):
            assert inside.function is not None
            for node in ast.walk(inside.function):
                if isinstance(node, ast.Call) and _is_super_init(node):
                    handed_on = {k.arg: Expression(k.value, inside) for k in node.keywords if k.arg}
                    passes_rest = any(k.arg is None for k in node.keywords)
                    return (keywords if passes_rest else {}) | handed_on
        return keywords

    def _kept(self, built: Built) -> Iterator[Expression]:
        """What a class of the app's own keeps in attributes when it is made."""
        for inside in _inside_init(built):
            assert inside.function is not None
            for node in ast.walk(inside.function):
                if isinstance(node, ast.Assign) and any(
                    isinstance(target, ast.Attribute) for target in node.targets
                ):
                    yield Expression(node.value, inside)


def _inside_init(built: Built) -> Iterator[Scope]:
    """The ``__init__`` of a class of the app's own, with what it is given; none where it has none.

    Example: of ``class Mine(FedAvg)`` with ``def __init__(self, patience)``, made by ``Mine(8)``.
    """
    assert isinstance(built.call.node, ast.Call)
    if built.definition is None:
        return
    module, definition = built.definition
    for statement in definition.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            given = bind(statement, built.call.node, built.call.scope, home=module)
            yield Scope(module, statement, given)


def is_adapters(dotted: str | None, name: str) -> bool:
    """Whether a full name is that of something in this adapter."""
    return dotted is not None and dotted.startswith(_ADAPTER) and dotted.endswith("." + name)


def _is_super_init(node: ast.Call) -> bool:
    func = node.func
    return isinstance(func, ast.Attribute) and func.attr == "__init__"


def _expressions(module: Module) -> Iterator[tuple[ast.AST, Scope]]:
    for statement, scope, _ in _statements(module.tree, Scope(module), ()):
        for call in _own_calls(statement):
            yield call, scope


def _statements(
    node: ast.AST, scope: Scope, loops: tuple[Loop, ...]
) -> Iterator[tuple[ast.stmt, Scope, tuple[Loop, ...]]]:
    """Every statement with its function, and the loops of that function around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _statements(child, Scope(scope.module, child), ())
            continue
        if isinstance(child, ast.stmt):
            yield child, scope, loops
        inner = (*loops, child) if isinstance(child, Loop) else loops
        yield from _statements(child, scope, inner)


def _own_calls(statement: ast.stmt) -> Iterator[ast.Call]:
    """Calls in a statement, but not in the statements that it holds."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
        waiting += [
            child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)
        ]

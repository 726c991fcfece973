"""Where a value comes from: constants, run-config keys, arguments, what functions return.

Reading is not running: what cannot be followed is :data:`UNKNOWN` and is told as not known.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from fedmuster.adapters.flower.readiness.source import Module, Source

UNKNOWN: Final = object()
_MOST_STEPS: Final = 25
_CASTS: Final = {"int": int, "float": float, "str": str, "bool": bool}
_BRANCHES: Final = (ast.If, ast.For, ast.While, ast.Try, ast.Match, ast.ExceptHandler)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Where an expression stands: its file, its function, and what the function was given."""

    module: Module
    function: Function | None = None
    given: Mapping[str, "Expression"] = field(default_factory=dict)


class Expression(NamedTuple):
    """An expression and where it stands."""

    node: ast.expr
    scope: Scope

    @property
    def where(self) -> str:
        """File and line."""
        return self.scope.module.at(self.node)


class Value(NamedTuple):
    """A value that was found by reading, and the run-config key that it comes from, if any."""

    value: Any
    key: str | None = None

    @property
    def known(self) -> bool:
        """Whether reading was enough."""
        return self.value is not UNKNOWN


class Values:
    """Follows expressions through an app's source and its run config."""

    def __init__(self, source: Source, run_config: Mapping[str, Any]) -> None:
        self.source = source
        self._run_config = run_config

    def value(self, expression: Expression, steps: int = _MOST_STEPS) -> Value:
        """What the expression is, where that can be read."""
        node, scope = expression
        if steps == 0:
            return Value(UNKNOWN)
        if isinstance(node, ast.Constant):
            return Value(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.value(Expression(node.operand, scope), steps - 1)
            fits = isinstance(inner.value, int | float)
            return Value(-inner.value, inner.key) if fits else Value(UNKNOWN)
        if isinstance(node, ast.Call):
            return self._of_call(node, scope, steps)
        if isinstance(node, ast.Subscript) and self._is_run_config(node.value, scope):
            key = self.value(Expression(node.slice, scope), steps - 1).value
            return self._configured(key, UNKNOWN)
        sources = self.sources(expression) if isinstance(node, ast.Name | ast.Attribute) else []
        found = [self.value(source, steps - 1) for source in sources if source.node is not node]
        if len({(repr(value.value), value.key) for value in found}) == 1:
            return found[0]
        return Value(UNKNOWN)

    def sources(self, expression: Expression) -> list[Expression]:
        """What was last assigned to a name: several where branches differ; [] where unknown."""
        node, scope = expression
        if isinstance(node, ast.Name):
            if node.id in scope.given:
                return [scope.given[node.id]]
            found = list(_assigned(scope.function or scope.module.tree, node.id, before=node))
            if found:
                return [Expression(value, scope) for value in found]
        dotted = self.source.meaning(scope.module, node)
        definition = None if dotted is None else self.source.definition(dotted)
        if definition is not None and isinstance(definition[1], ast.expr):
            return [Expression(definition[1], Scope(definition[0]))]
        return []

    def returned(self, call: Expression) -> list[Expression]:
        """What the app's own function returns that ``call`` calls; [] where it is no such."""
        node, scope = call
        if not isinstance(node, ast.Call):
            return []
        dotted = self.source.meaning(scope.module, node.func)
        definition = None if dotted is None else self.source.definition(dotted)
        if definition is None or not isinstance(definition[1], Function):
            return []
        module, function = definition[0], definition[1]
        inside = Scope(module, function, bind(function, node, scope, home=module))
        return [
            Expression(statement.value, inside)
            for statement in ast.walk(function)
            if isinstance(statement, ast.Return) and statement.value is not None
        ]

    def keywords(self, call: ast.Call, scope: Scope) -> dict[str, Expression]:
        """The keyword arguments of a call, also those of a ``**table`` that can be read."""
        given: dict[str, Expression] = {}
        for keyword in call.keywords:
            if keyword.arg is not None:
                given[keyword.arg] = Expression(keyword.value, scope)
                continue
            table = Expression(keyword.value, scope)
            for node, inner in [table, *self.sources(table)]:
                if isinstance(node, ast.Dict):
                    for key, value in zip(node.keys, node.values, strict=True):
                        if isinstance(key, ast.Constant) and isinstance(key.value, str):
                            given[key.value] = Expression(value, inner)
                elif isinstance(node, ast.Call) and _is_named(node.func, "dict"):
                    given |= self.keywords(node, inner)
        return given

    def _of_call(self, node: ast.Call, scope: Scope, steps: int) -> Value:
        if isinstance(node.func, ast.Name) and node.func.id in _CASTS and len(node.args) == 1:
            inner = self.value(Expression(node.args[0], scope), steps - 1)
            return Value(_cast(_CASTS[node.func.id], inner.value), inner.key)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            if self._is_run_config(node.func.value, scope):
                found = [self.value(Expression(arg, scope), steps - 1) for arg in node.args]
                return self._configured(found[0].value, *(value.value for value in found[1:2]))
            return Value(UNKNOWN)
        found = [self.value(each, steps - 1) for each in self.returned(Expression(node, scope))]
        return found[0] if len(found) == 1 else Value(UNKNOWN)

    def _is_run_config(self, node: ast.expr, scope: Scope) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr == "run_config"
        sources = self.sources(Expression(node, scope)) if isinstance(node, ast.Name) else []
        return len(sources) == 1 and (
            sources[0].node is not node and self._is_run_config(*sources[0])
        )

    def _configured(self, key: Any, default: Any = None) -> Value:
        if not isinstance(key, str):
            return Value(UNKNOWN)
        return Value(self._run_config.get(key, default), key)


def bind(
    function: Function, call: ast.Call, caller: Scope, *, home: Module
) -> dict[str, Expression]:
    """What each parameter of ``function`` is given by ``call``, or else its default."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    here = Scope(home)
    given = {}
    defaults = function.args.defaults
    for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
        given[name] = Expression(default, here)
    for argument, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if value is not None:
            given[argument.arg] = Expression(value, here)
    if names[:1] == ["self"]:
        names = names[1:]
    positional = [arg for arg in call.args if not isinstance(arg, ast.Starred)]
    given.update({n: Expression(v, caller) for n, v in zip(names, positional, strict=False)})
    for keyword in call.keywords:
        if keyword.arg is not None:
            given[keyword.arg] = Expression(keyword.value, caller)
    return given


def _assigned(body: ast.AST, name: str, *, before: ast.expr) -> Iterator[ast.expr]:
    """Values assigned to ``name`` above ``before``: the last for certain, and perhaps others."""
    found = [
        (value, conditional)
        for value, target, conditional in _assignments(body, conditional=False)
        if target == name
        if (value.end_lineno or value.lineno) <= before.lineno
        # strategy = Muster(strategy): the inner name is what was there before.
        if all(inner is not before for inner in ast.walk(value))
    ]
    for value, conditional in reversed(found):
        yield value
        if not conditional:
            return


def _assignments(node: ast.AST, *, conditional: bool) -> Iterator[tuple[ast.expr, str, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        targets: list[ast.expr] = []
        if isinstance(child, ast.Assign):
            targets = child.targets
        elif isinstance(child, ast.AnnAssign | ast.NamedExpr):
            targets = [child.target]
        value = getattr(child, "value", None)
        if isinstance(value, ast.expr):
            for target in targets:
                if isinstance(target, ast.Name):
                    yield value, target.id, conditional
        yield from _assignments(child, conditional=conditional or isinstance(child, _BRANCHES))


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _cast(kind: type, value: Any) -> Any:
    try:
        return UNKNOWN if value is UNKNOWN else kind(value)
    except (TypeError, ValueError):
        return UNKNOWN

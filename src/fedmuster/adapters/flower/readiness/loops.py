"""Starts in loops: in which of them the strategy is made anew, and what tells iterations apart."""

import ast
from collections.abc import Iterator

from fedmuster.adapters.flower.readiness.server import Server, shown
from fedmuster.adapters.flower.readiness.strategies import Loop, Start
from fedmuster.adapters.flower.readiness.values import Expression

COUNTED = "number"
"""Stands for the number of an iteration, where a loop has no variable that tells."""


def own_loops(server: Server, start: Start) -> tuple[Loop, ...]:
    """The loops whose every iteration starts a strategy of its own, from outside.

    None where the strategy is made before all loops; what is inside of these starts it again.
    """
    for depth in range(len(start.loops), 0, -1):
        if _made_in(server, start.receiver, start.loops[depth - 1], frozenset()):
            return start.loops[:depth]
    return ()


def place(server: Server, start: Start) -> ast.stmt:
    """Above which statement to wrap: once for each strategy, so above loops that start it again."""
    depth = len(own_loops(server, start))
    return start.loops[depth] if depth < len(start.loops) else start.statement


def varies(expression: Expression, loops: tuple[Loop, ...]) -> bool:
    """Whether something in the expression is given another value in these loops."""
    texts = {shown(n) for n in ast.walk(expression.node) if isinstance(n, ast.Name | ast.Attribute)}
    return any(target in texts for loop in loops for target, _ in _bindings(loop))


def tellers(start: Start, loops: tuple[Loop, ...]) -> list[str]:
    """For each loop what to write into a name, so that iterations have different ones."""
    strategy = shown(start.receiver.node)
    return [_teller(loop, strategy) for loop in loops]


def _teller(loop: Loop, strategy: str) -> str:
    targets = [] if isinstance(loop, ast.While) else list(_flat(loop.target))
    name = next((text for text in map(shown, targets) if text != strategy), COUNTED)
    called = (shown(node.func) for node in ast.walk(loop) if isinstance(node, ast.Call))
    return f"{name}.__name__" if name in called else name  # a class or a function


def _made_in(server: Server, what: Expression, loop: Loop, seen: frozenset[ast.expr]) -> bool:
    node, scope = what
    if isinstance(node, ast.Call):
        built = server.strategies.construction(what)
        if built is None or built.kind != "muster":
            return True
        inside = server.strategies.settings(built).get("strategy")
        return inside is not None and _made_in(server, inside, loop, seen)
    if not isinstance(node, ast.Name | ast.Attribute):
        return varies(what, (loop,))
    text = shown(node)
    values = [value for target, value in _bindings(loop) if target == text]
    return any(
        value is None or _made_in(server, Expression(value, scope), loop, seen | {value})
        for value in values
        if value not in seen
    )


def _bindings(loop: Loop) -> Iterator[tuple[str, ast.expr | None]]:
    """What is given a value in a loop, and which; None where it is a part of something."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                whole = not isinstance(target, ast.Tuple | ast.List)
                for each in _flat(target):
                    yield shown(each), node.value if whole else None
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield shown(node.target), node.value
        elif isinstance(node, ast.For | ast.AsyncFor):
            yield from ((shown(each), None) for each in _flat(node.target))
        elif isinstance(node, ast.AugAssign):
            yield shown(node.target), None
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield from ((shown(each), None) for each in _flat(node.optional_vars))


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _flat(each)
    else:
        yield target.value if isinstance(target, ast.Starred) else target

"""Which of two places in a function only one run can reach."""

import ast
from collections.abc import Sequence


def exclusive(tree: ast.AST, one: ast.AST, other: ast.AST) -> bool:
    """Whether who comes to ``one`` does not come to ``other``: branches, and early returns."""
    for node in ast.walk(tree):
        for side in _sides(node):
            if _holds(side, one) and any(_holds(each, other) for each in _sides(node, but=side)):
                return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
            _left_before(node, one, other) or _left_before(node, other, one)
        ):
            return True
    return False


def comes_after(tree: ast.AST, first: ast.stmt, later: ast.stmt) -> bool:
    """Whether ``later`` is never reached without ``first``, which stands above it."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and first in block:
                return _holds(block[block.index(first) :], later)
    return False


def _left_before(function: ast.AST, one: ast.AST, other: ast.AST) -> bool:
    """Whether the function is left below ``one``, in a branch above ``other``."""
    return _holds([function], other) and any(
        _holds(side, one)
        and isinstance(side[-1], ast.Return | ast.Raise)
        and getattr(other, "lineno", 0) > (node.end_lineno or node.lineno)
        for node in ast.walk(function)
        if isinstance(node, ast.If | ast.Match)
        for side in _sides(node)
    )


def _sides(node: ast.AST, but: Sequence[ast.AST] | None = None) -> list[Sequence[ast.AST]]:
    """What is done in one case or the other."""
    sides: list[Sequence[ast.AST]] = []
    if isinstance(node, ast.If):
        sides = [node.body, node.orelse]
    elif isinstance(node, ast.IfExp):
        sides = [[node.body], [node.orelse]]
    elif isinstance(node, ast.Match):
        sides = [case.body for case in node.cases]
    return [side for side in sides if side and side != but]


def _holds(block: Sequence[ast.AST], sought: ast.AST) -> bool:
    return any(inner is sought for each in block for inner in ast.walk(each))

"""A folder for each run: two runs in one find each other's rounds on record."""

import ast
from collections.abc import Iterator
from itertools import combinations, count
from pathlib import Path

from fedmuster.adapters.flower.readiness.branches import exclusive
from fedmuster.adapters.flower.readiness.findings import Finding
from fedmuster.adapters.flower.readiness.loops import COUNTED, own_loops, tellers, varies
from fedmuster.adapters.flower.readiness.server import Server, shown
from fedmuster.adapters.flower.readiness.strategies import Built, Loop, Start

_ON_RECORD = "finds the rounds of the first on record, and trains nothing"


class Folders:
    """Proposes folders that no other Muster of the app has."""

    def __init__(self, server: Server) -> None:
        self._server = server
        known = (_folder(server, muster) for muster in server.musters)
        self._taken = {folder for folder in known if folder is not None}

    def propose(self, start: Start) -> str:
        """As source: another for each call, and in loops for each iteration."""
        base = f"runs/{self._server.project.name}"
        names = (base if n == 1 else f"{base}-{n}" for n in count(1))
        name = next(name for name in names if name not in self._taken)
        self._taken.add(name)
        return in_loops(name, start, own_loops(self._server, start))


def in_loops(name: str, start: Start, loops: tuple[Loop, ...]) -> str:
    """As source: the folder, or one for each iteration of these loops."""
    parts = "".join(f"-{{{teller}}}" for teller in tellers(start, loops))
    return f'f"{name}{parts}"' if parts else f'"{name}"'


def check_folders(server: Server) -> Iterator[Finding]:
    """Whether Musters that one run makes have different folders."""
    yield from _check_pairs(server)
    for start in server.starts:
        loops = own_loops(server, start)
        if loops:
            yield _check_iterations(server, start, loops)


def _check_pairs(server: Server) -> Iterator[Finding]:
    musters = sorted(server.musters, key=_position)
    found: dict[ast.expr, int] = {}
    for first, later in combinations(musters, 2):
        folder = _folder(server, first)
        if folder is None or folder != _folder(server, later) or _either_or(server, first, later):
            continue
        if later.call.node in found:
            continue
        number = found[later.call.node] = found.get(first.call.node, 1) + 1
        given = server.strategies.settings(later)["folder"]
        literal = isinstance(given.node, ast.Constant)
        new = f'"{folder}-{number}"' if literal else f'str({shown(given.node)}) + "-{number}"'
        yield Finding(
            level="must change",
            about="folder",
            text=f"this Muster has the folder of the one at {first.call.where}, {folder!r}: the "
            f"second to start {_ON_RECORD}. Each needs a folder of its own",
            where=given.where,
            write=f"folder={new}",
        )


def _either_or(server: Server, one: Built, other: Built) -> bool:
    """Whether a run makes one of them only."""
    nodes = {one.call.node, other.call.node}
    for start in server.starts:
        if nodes <= {built.call.node for built in server.strategies.built_by(start.receiver)}:
            return True
    module = one.call.scope.module
    return module is other.call.scope.module and exclusive(
        module.tree, one.call.node, other.call.node
    )


def _check_iterations(server: Server, start: Start, loops: tuple[Loop, ...]) -> Finding:
    built = server.strategies.built_by(start.receiver)
    musters = [each for each in built if each.kind == "muster"]
    given = server.strategies.settings(musters[0]).get("folder") if musters else None
    text = "each iteration starts a strategy of its own, and needs a folder of its own"
    if given is not None and varies(given, loops):
        text = "each iteration has a folder of its own"
        return Finding(level="ok", about="folder", text=text, where=given.where)
    known = _folder(server, musters[0]) if musters else None
    write = f"folder={in_loops(known or f'runs/{server.project.name}', start, loops)}"
    if known is not None:
        text += f"; with {known!r} for all, each but the first {_ON_RECORD}"
    else:
        text += f", else each but the first {_ON_RECORD}"
    if COUNTED in tellers(start, loops):
        text += f". {COUNTED} is to count the iterations, as enumerate does"
    return Finding(
        level="note" if known is None else "must change",
        about="folder",
        text=text,
        where=start.where if given is None else given.where,
        write=write,
    )


def wrapped_each_time(server: Server, start: Start) -> bool:
    """Whether a loop makes a Muster anew for the same strategy, in a folder that stays."""
    loops = start.loops[len(own_loops(server, start)) :]
    inside = {node for loop in loops for node in ast.walk(loop)}
    rounds = start.argument("num_rounds")
    return not (rounds is not None and varies(rounds, loops)) and any(
        built.kind == "muster" and built.call.node in inside and _folder(server, built) is not None
        for built in server.strategies.built_by(start.receiver)
    )


def _folder(server: Server, muster: Built) -> str | None:
    """Where it is known, without a slash at the end."""
    value = server.muster_setting(muster, "folder").value
    return Path(value).as_posix() if isinstance(value, str) else None


def _position(built: Built) -> tuple[str, int]:
    return built.call.scope.module.where, built.call.node.lineno

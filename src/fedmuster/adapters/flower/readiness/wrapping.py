"""Whether what the ServerApp starts is wrapped in Muster, outermost; else, what to write."""

import ast
from collections.abc import Iterator
from typing import Final

from fedmuster.adapters.flower.readiness.findings import Finding
from fedmuster.adapters.flower.readiness.project import Project
from fedmuster.adapters.flower.readiness.server import Server, count, shown
from fedmuster.adapters.flower.readiness.strategies import Built, Start

_COHORT: Final = 4  # suggested where the app does not show how many it wants to train
_BY_HAND: Final = ("send_and_receive", "push_messages")


def check_wrapping(server: Server) -> Iterator[Finding]:
    """For each ``start`` that the app calls."""
    if not server.starts:
        yield _nothing_started(server)
    for start in server.starts:
        yield _judge(server, start)
        if start.loop is not None:
            yield Finding(
                level="note",
                about="rounds",
                text="start is called in a loop: Muster adds up the rounds, and after a crash the "
                "first calls find theirs on record; make it once, before the loop",
                where=start.where,
            )


def _judge(server: Server, start: Start) -> Finding:
    built = server.strategies.built_by(start.receiver)
    kinds = {each.kind for each in built}
    if kinds == {"muster"}:
        text = f"{shown(start.receiver.node)} is a Muster when it is started"
        return Finding(level="ok", about="Muster", text=text, where=start.where)
    if "muster" in kinds:
        others = ", ".join(each.name for each in built if each.kind != "muster")
        text = f"what is started here is a Muster, or else {others}, for which nobody chooses"
        return Finding(level="note", about="Muster", text=text, where=start.where)
    if not built and server.musters:
        return Finding(
            level="note",
            about="Muster",
            text=f"Muster is made at {server.musters[0].call.where}; whether it is what is started "
            "here cannot be read from the source: --rehearse tells",
            where=start.where,
        )
    inside = next((muster for each in built for muster in _musters_in(server, each)), None)
    if inside is not None:
        return Finding(
            level="must change",
            about="Muster",
            text=f"{built[0].name} is wrapped around Muster, which must be outermost, so that all "
            "of it sees only the chosen",
            where=inside.call.where,
            write=_outermost(server, shown(start.receiver.node), built[0], inside),
        )
    return _lines_to_add(server, start, built)


def _musters_in(server: Server, built: Built) -> Iterator[Built]:
    return (layer for layer in server.strategies.layers(built) if layer.kind == "muster")


def _outermost(server: Server, name: str, outer: Built, muster: Built) -> str:
    given = server.strategies.settings(muster)
    inner = shown(given["strategy"].node) if "strategy" in given else name
    settings = [f"{key}={shown(value.node)}" for key, value in given.items() if key != "strategy"]
    wrapped = ", ".join([name, *settings])
    return f"{name} = {outer.name}({inner}, …)\n{name} = {muster.name}({wrapped})"


def _lines_to_add(server: Server, start: Start, built: list[Built]) -> Finding:
    receiver, above = start.receiver.node, _place(start, built)
    named = isinstance(receiver, ast.Name | ast.Attribute)
    name = shown(receiver) if named else "strategy"
    muster = _muster_call(shown(receiver), server.project, _cohort_size(server, built))
    there = "" if named else ", where strategy.start(…) is then called"
    unread = "" if built else ". What strategy it is cannot be read; Muster checks its settings"
    return Finding(
        level="must change",
        about="Muster",
        text=f"{', '.join(each.name for each in built) or name} is started as it is, so Flower "
        "chooses at random. Add the import at the top of "
        f"{start.receiver.scope.module.where}, and the other line above line {above.lineno}{there}"
        f"; policies: fedmuster list{unread}",
        where=start.where,
        write="from fedmuster.adapters.flower import Muster\n"
        f"{' ' * above.col_offset}{name} = {muster}",
    )


def _place(start: Start, built: list[Built]) -> ast.stmt:
    """Above which statement to wrap: once, so above a loop where the strategy is made before it."""
    loop = start.loop
    if loop is None or not built or any(each.call.node.lineno >= loop.lineno for each in built):
        return start.statement
    return loop


def _cohort_size(server: Server, built: list[Built]) -> int:
    """As many as the app wanted to train, where it shows that."""
    nodes = server.project.num_nodes
    for each in built:
        for layer in server.strategies.layers(each):
            sampled = count(server.strategies.setting(layer, "num_sampled_clients")[0])
            fraction = server.strategies.setting(layer, "fraction_train")[0].value
            least = count(server.strategies.setting(layer, "min_train_nodes")[0]) or 1
            if sampled is not None:
                return sampled
            if nodes is not None and isinstance(fraction, float) and 0 < fraction < 1:
                return max(int(fraction * nodes), least)
            if least > _COHORT:
                return least
    return _COHORT


def _muster_call(strategy: str, project: Project, cohort: int) -> str:
    return f'Muster({strategy}, policy="bsfl", cohort_size={cohort}, folder="runs/{project.name}")'


def _nothing_started(server: Server) -> Finding:
    for module in server.modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr in _BY_HAND:
                return Finding(
                    level="must change",
                    about="Muster",
                    text=f"the app calls {node.attr} itself and starts no strategy, and Muster "
                    "wraps strategies: put the loop into a subclass of FedAvg (its "
                    "configure_train and aggregate_train) and start that",
                    where=module.at(node),
                )
    return Finding(
        level="must change",
        about="Muster",
        text="no strategy.start(grid=…, initial_arrays=…) was found in the ServerApp",
        where=server.modules[0].where if server.modules else "",
        write=f"strategy = {_muster_call('strategy', server.project, _COHORT)}",
    )

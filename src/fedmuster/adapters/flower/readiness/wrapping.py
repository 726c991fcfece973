"""Whether what the ServerApp starts is wrapped in Muster, outermost; else, what to write."""

import ast
from collections.abc import Iterator
from typing import Final

from fedmuster.adapters.flower.readiness.branches import comes_after
from fedmuster.adapters.flower.readiness.findings import Finding
from fedmuster.adapters.flower.readiness.folders import Folders, wrapped_each_time
from fedmuster.adapters.flower.readiness.loops import own_loops, place
from fedmuster.adapters.flower.readiness.server import Server, count, shown
from fedmuster.adapters.flower.readiness.strategies import Built, Start
from fedmuster.adapters.flower.readiness.strategy_rules import only_evaluates

_COHORT: Final = 4  # suggested where the app does not show how many it wants to train
_BY_HAND: Final = ("send_and_receive", "push_messages")


def check_wrapping(server: Server) -> Iterator[Finding]:
    """For each ``start`` that the app calls."""
    if not server.starts:
        yield _nothing_started(server)
    folders = Folders(server)
    told: list[Start] = []
    for start in server.starts:
        before = next((each for each in told if _same_strategy(server, each, start)), None)
        told += [] if before is not None else [start]
        yield _judge(server, start, folders) if before is None else _again(start, before)
        if len(own_loops(server, start)) < len(start.loops):
            yield Finding(
                level="must change" if wrapped_each_time(server, start) else "note",
                about="rounds",
                text="start is called in a loop: Muster adds up the rounds, and after a crash the "
                "first calls find theirs on record; make it once, before the loop",
                where=start.where,
            )


def _same_strategy(server: Server, before: Start, start: Start) -> bool:
    """Whether a strategy is started again, below where it was first."""
    if shown(before.receiver.node) != shown(start.receiver.node):
        return False
    above = place(server, before)
    made = [
        {each.call.node for each in server.strategies.built_by(one.receiver)}
        for one in (before, start)
    ]
    module = start.receiver.scope.module
    return bool(made[0]) and made[0] == made[1] and comes_after(module.tree, above, start.statement)


def _again(start: Start, before: Start) -> Finding:
    return Finding(
        level="note",
        about="rounds",
        text=f"{shown(start.receiver.node)} is started again, after {before.where}: one Muster "
        "serves both, and trains so many rounds more",
        where=start.where,
    )


def _judge(server: Server, start: Start, folders: Folders) -> Finding:
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
    if built and all(only_evaluates(server, each) for each in built):
        return _nobody_trains(server, start)
    return _lines_to_add(server, start, built, folders.propose(start))


def _nobody_trains(server: Server, start: Start) -> Finding:
    """Not in the way, where something else trains."""
    others = (each for each in server.starts if each is not start)
    made = [built for other in others for built in server.strategies.built_by(other.receiver)]
    trains = any(not only_evaluates(server, built) for built in made)
    return Finding(
        level="note" if trains else "must change",
        about="Muster",
        text="what is started here has fraction_train = 0, so it only evaluates, and Muster is for "
        "training: "
        + ("leave it as it is" if trains else "the app has nothing to choose clients for"),
        where=start.where,
    )


def _musters_in(server: Server, built: Built) -> Iterator[Built]:
    return (layer for layer in server.strategies.layers(built) if layer.kind == "muster")


def _outermost(server: Server, name: str, outer: Built, muster: Built) -> str:
    given = server.strategies.settings(muster)
    inner = shown(given["strategy"].node) if "strategy" in given else name
    settings = [f"{key}={shown(value.node)}" for key, value in given.items() if key != "strategy"]
    wrapped = ", ".join([name, *settings])
    return f"{name} = {outer.name}({inner}, …)\n{name} = {muster.name}({wrapped})"


def _lines_to_add(server: Server, start: Start, built: list[Built], folder: str) -> Finding:
    receiver, above = start.receiver.node, place(server, start)
    named = isinstance(receiver, ast.Name | ast.Attribute)
    name = shown(receiver) if named else "strategy"
    muster = _muster_call(shown(receiver), _cohort_size(server, built), folder)
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


def _muster_call(strategy: str, cohort: int, folder: str) -> str:
    return f'Muster({strategy}, policy="bsfl", cohort_size={cohort}, folder={folder})'


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
        write="strategy = " + _muster_call("strategy", _COHORT, f'"runs/{server.project.name}"'),
    )

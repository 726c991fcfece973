"""Whether the strategies inside leave the choice to fedmuster, and none waits for ever."""

import ast
from collections.abc import Iterator
from typing import Final

from fedmuster.adapters.flower.readiness.findings import Finding
from fedmuster.adapters.flower.readiness.server import Server, count, instead
from fedmuster.adapters.flower.readiness.strategies import Built

_OWN_METHODS: Final = {
    "start": "Muster runs it; it must ask self.configure_train, and send with the grid it is given",
    "configure_train": "the grid that it is given shows only the chosen nodes; it must send each "
    "of them one message",
}


def check_strategies(server: Server) -> Iterator[Finding]:
    """For each strategy that the ServerApp makes."""
    for built in server.current:
        yield from _check_choice(server, built)
        for name in ("min_train_nodes", "min_available_nodes"):
            yield from _check_minimum(server, built, name)
        yield from _check_noise(server, built)
        yield from _check_evaluation(server, built)
        yield from _check_own_methods(built)


def only_evaluates(server: Server, built: Built) -> bool:
    """Whether it lets nobody train, or what it wraps does."""
    return any(
        server.strategies.setting(layer, "fraction_train")[0].value == 0
        for layer in server.strategies.layers(built)
    )


def _check_choice(server: Server, built: Built) -> Iterator[Finding]:
    if built.root.endswith(".FedXgbCyclic"):
        yield Finding(
            level="note" if server.cohort_size == 1 else "must change",
            about="strategy",
            text=f"{built.name} lets one node train in each round, and wants two to be there: "
            "Muster chooses that one; FedXgbBagging trains a cohort",
            where=built.call.where,
            write=f"strategy = {built.name}(…, min_available_nodes=1)\n"
            "strategy.min_train_nodes = 1\n"
            "strategy = Muster(strategy, cohort_size=1, …)",
        )
        return
    value, where = server.strategies.setting(built, "fraction_train")
    if value.value is None:  # a wrapper, which has none
        return
    if not value.known:
        yield _not_known(built, "fraction_train", "must be 1.0", where)
    elif value.value == 0:
        yield Finding(
            level="must change" if _is_mustered(server, built) else "note",
            about="strategy",
            text=f"{built.name}: fraction_train = 0{server.origin(value)} lets nobody train, it "
            "only evaluates, and Muster is for training: start it without Muster, or let everybody "
            "whom it is offered train",
            where=where,
            write=instead(value, "fraction_train", "1.0"),
        )
    elif value.value != 1:
        yield Finding(
            level="must change",
            about="strategy",
            text=f"{built.name}: fraction_train = {value.value}{server.origin(value)} would choose "
            "again, at random, among those whom fedmuster has chosen; how many train is "
            "cohort_size of Muster",
            where=where,
            write=instead(value, "fraction_train", "1.0"),
        )
    else:
        text = f"{built.name} trains with everybody whom it is offered"
        yield Finding(level="ok", about="strategy", text=text, where=built.call.where)


def _is_mustered(server: Server, built: Built) -> bool:
    return any(
        layer.call.node is built.call.node
        for muster in server.musters
        for layer in server.strategies.layers(muster)
    )


def _check_minimum(server: Server, built: Built, name: str) -> Iterator[Finding]:
    value, where = server.strategies.setting(built, name)
    least, cohort = count(value), server.cohort_size
    if not value.known:
        yield _not_known(built, name, "must not be above cohort_size", where)
    elif least is not None and cohort is not None and least > cohort:
        yield Finding(
            level="must change",
            about="strategy",
            text=f"{built.name}: {name} = {least}{server.origin(value)} is more than the cohort of "
            f"{cohort} that it is offered, so it would wait for ever; to wait for so many nodes to "
            f"be there, write min_nodes={least} for Muster",
            where=where,
            write=instead(value, name, "1"),
        )


def _check_noise(server: Server, built: Built) -> Iterator[Finding]:
    value, where = server.strategies.setting(built, "num_sampled_clients")
    sampled, cohort = count(value), server.cohort_size
    if sampled is not None and cohort is not None and sampled != cohort:
        yield Finding(
            level="must change",
            about="strategy",
            text=f"{built.name}: num_sampled_clients = {sampled}{server.origin(value)}, to which "
            f"its noise is fitted, but cohort_size is {cohort}",
            where=where,
            write=instead(value, "num_sampled_clients", str(cohort)),
        )


def _check_evaluation(server: Server, built: Built) -> Iterator[Finding]:
    """Flower waits for ever for the nodes that it wants to evaluate with."""
    if server.strategies.setting(built, "fraction_evaluate")[0].value in (None, 0):
        return
    nodes = server.project.num_nodes
    wanted = []
    for name in ("min_available_nodes", "min_evaluate_nodes"):
        value, where = server.strategies.setting(built, name)
        least = count(value)
        if least is None:
            continue
        wanted.append(least)
        if nodes is not None and least > nodes:
            yield Finding(
                level="must change",
                about="evaluation",
                text=f"{built.name}: {name} = {least}{server.origin(value)}, and the federation "
                f"has {nodes} nodes: evaluation would wait for ever",
                where=where,
                write=instead(value, name, str(nodes)),
            )
    if wanted and nodes is None:
        yield Finding(
            level="note",
            about="evaluation",
            text=f"{built.name} evaluates with at least {max(wanted)} nodes, for which Flower "
            "waits: have so many",
            where=built.call.where,
        )


def _check_own_methods(built: Built) -> Iterator[Finding]:
    if built.definition is None:
        return
    module, definition = built.definition
    for statement in definition.body:
        if isinstance(statement, ast.FunctionDef) and statement.name in _OWN_METHODS:
            yield Finding(
                level="note",
                about="strategy",
                text=f"{built.name} has its own {statement.name}: {_OWN_METHODS[statement.name]}",
                where=module.at(statement),
            )


def _not_known(built: Built, name: str, rule: str, where: str) -> Finding:
    return Finding(
        level="note",
        about="strategy",
        text=f"{built.name}: {name} is not known from reading; it {rule}, which Muster checks "
        "when it is made",
        where=where,
    )

"""Play one round of an app, and say what happened."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from click import ClickException
from flwr.common.config import parse_config_args

from fedmuster.adapters.flower.readiness.findings import Finding, Readiness
from fedmuster.adapters.flower.readiness.probe import run_alone
from fedmuster.adapters.flower.readiness.project import Project
from fedmuster.adapters.flower.readiness.stage import Heard, Play, Played
from fedmuster.core.errors import ConfigError

_STAGE = "fedmuster.adapters.flower.readiness.stage"


def rehearse(
    folder: Path,
    *,
    nodes: int,
    seconds: float = 120.0,
    run_config: str = "",
    node_config: str = "",
) -> Readiness:
    """Play one round of the app in ``folder`` with ``nodes`` nodes, in a process of its own.

    Args:
        folder: that holds the app's ``pyproject.toml``.
        nodes: how many; they get ``partition-id`` and ``num-partitions`` as in a simulation.
        seconds: after which the process is ended.
        run_config: in place of what the app says, as for ``flwr run --run-config``.
        node_config: of every node, as for ``flower-supernode --node-config``.

    Raises:
        ConfigError: a config cannot be read, or the app names no ServerApp and ClientApp.
    """
    project = Project.load(folder)
    server, client = project.component("serverapp"), project.component("clientapp")
    if server is None or client is None:
        raise ConfigError(f"{folder} names no ServerApp and ClientApp: nothing can be rehearsed")
    what = Play(
        folder=str(folder.resolve()),
        serverapp=server,
        clientapp=client,
        nodes=nodes,
        seconds=seconds,
        run_config=project.run_config | _parse(run_config),
        node_config=_parse(node_config),
    )
    ended = run_alone(["-m", _STAGE], [json.dumps(asdict(what))], seconds=seconds)
    if ended.problem:
        text = f"the round did not end: it {ended.problem}"
        return Readiness(findings=(Finding(level="must change", about="rehearsal", text=text),))
    heard = [Heard(**entry) for entry in ended.result.pop("heard")]
    return Readiness(findings=tuple(_tell(Played(heard=heard, **ended.result))))


def _parse(config: str) -> dict[str, Any]:
    try:
        return parse_config_args([config])
    except (ValueError, OSError, ClickException) as error:
        raise ConfigError(f"cannot read the config {config!r}: {error}") from None


def _tell(played: Played) -> Iterator[Finding]:
    trained = [entry for entry in played.heard if entry.asked.startswith("train")]
    if played.problem:
        yield Finding(
            level="must change",
            about="rehearsal",
            text=f"the ServerApp stopped: {played.problem}",
            where=played.where,
        )
    elif not trained:
        yield Finding(
            level="must change",
            about="rehearsal",
            text="the ServerApp ended and nobody was asked to train",
            write="\n".join(played.log),
        )
    yield from _tell_choice(played)
    yield from _tell_failures("train", trained)
    yield from _tell_signals(trained)
    evaluated = [entry for entry in played.heard if entry.asked.startswith("evaluate")]
    yield from _tell_failures("evaluate", evaluated)
    if evaluated:
        well = sum(not entry.error for entry in evaluated)
        text = f"{well} of {len(evaluated)} nodes evaluated the model"
        yield Finding(level="ok" if well else "must change", about="evaluation", text=text)


def _tell_choice(played: Played) -> Iterator[Finding]:
    if not played.mustered and not played.problem:
        text = "no Muster was started: Flower chose by itself"
        yield Finding(level="must change", about="choice", text=text)
    elif played.chosen:
        shown = ", ".join(played.chosen[:10]) + ", …" * (len(played.chosen) > 10)
        text = (
            f"fedmuster chose {len(played.chosen)} ({shown}); {played.completed} completed, "
            f"{played.refused} were refused"
        )
        some = played.completed > 0
        good = some and played.refused == 0  # with over-selection not all can complete
        yield Finding(
            level="ok" if good else "note" if some else "must change",
            about="choice",
            text=text,
            write="" if good else "\n".join(played.log),
        )


def _tell_failures(what: str, heard: list[Heard]) -> Iterator[Finding]:
    for error in dict.fromkeys(entry.error for entry in heard if entry.error):
        failed = [entry for entry in heard if entry.error == error]
        yield Finding(
            level="must change",
            about=what,
            text=f"{len(failed)} of {len(heard)} nodes failed: {error}{_hint(error)}",
            where=failed[0].where,
        )


def _hint(error: str) -> str:
    if error.startswith("KeyError"):
        return "; what an app reads from node_config is given with --node-config"
    if error.startswith("FileNotFoundError"):
        return "; a rehearsal works in an empty folder: give absolute paths"
    return ""


def _tell_signals(trained: list[Heard]) -> Iterator[Finding]:
    good = [entry for entry in trained if not entry.error]
    if not good:
        return
    names = sorted({name for entry in good for name in entry.signals})
    text = (
        f"policies may learn from: latency, {', '.join(names)}"
        if names
        else ("the app sends no metric: policies learn from latency alone")
    )
    yield Finding(level="ok" if names else "note", about="signals", text=text)
    uneven = {tuple(sorted(entry.metrics)) for entry in good}
    if len(uneven) > 1:
        shown = " / ".join(", ".join(keys) for keys in sorted(uneven))
        text = f"nodes send different metrics, which Flower's strategies refuse: {shown}"
        yield Finding(level="must change", about="signals", text=text)
    reported = [e.reported_seconds for e in good if e.reported_seconds is not None]
    if reported:
        text = f"clients report their time: {median(reported):.3g} s in the middle"
        yield Finding(level="ok", about="latency", text=text)
    else:
        text = "clients do not report their time: only the server's clock times them"
        yield Finding(level="note", about="latency", text=text)

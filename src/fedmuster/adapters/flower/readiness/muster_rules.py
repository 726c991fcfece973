"""Whether Muster is given what it needs: all that can be told without starting it."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedmuster.adapters.flower.readiness.findings import Finding
from fedmuster.adapters.flower.readiness.folders import check_folders
from fedmuster.adapters.flower.readiness.server import Server
from fedmuster.adapters.flower.readiness.strategies import Built
from fedmuster.adapters.flower.readiness.values import UNKNOWN, Expression
from fedmuster.adapters.flower.server.muster import Muster
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import Policy
from fedmuster.experiments.spec_tables import parse_policy


def check_muster(server: Server) -> Iterator[Finding]:
    """For each Muster that the app makes."""
    for muster in server.musters:
        yield from _check_arguments(server, muster)
        yield from _check_policy(server, muster)
        yield from _check_folder(server, muster)
        yield _check_deadline(server, muster)
    yield from check_folders(server)


def policy_of(server: Server, muster: Built) -> Policy[Any] | None:
    """The policy, where it is named by a string that can be read.

    Raises:
        ConfigError: there is no such policy.
    """
    text = server.muster_setting(muster, "policy").value
    return parse_policy(text) if isinstance(text, str) else None


def _check_arguments(server: Server, muster: Built) -> Iterator[Finding]:
    given = server.strategies.settings(muster)
    known = inspect.signature(Muster).parameters
    for name in sorted(given.keys() - known.keys()):
        yield Finding(
            level="must change",
            about="Muster",
            text=f"Muster has no setting {name!r}; it has {', '.join(known)}",
            where=given[name].where,
        )
    for name, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            yield Finding(
                level="must change",
                about="Muster",
                text=f"Muster needs {name}",
                where=muster.call.where,
            )


def _check_policy(server: Server, muster: Built) -> Iterator[Finding]:
    given = server.strategies.settings(muster).get("policy")
    if given is None:
        return
    try:
        policy = policy_of(server, muster)
    except ConfigError as error:
        yield Finding(level="must change", about="policy", text=str(error), where=given.where)
        return
    if policy is not None:
        yield Finding(level="ok", about="policy", text=f"{policy.name} chooses", where=given.where)


def _check_folder(server: Server, muster: Built) -> Iterator[Finding]:
    given = server.strategies.settings(muster).get("folder")
    if given is None:
        return
    folder = server.strategies.values.value(given).value
    if not isinstance(folder, str):
        text = (
            "the run's folder is not known from reading: it must be the same whenever the app runs"
        )
        yield Finding(level="note", about="folder", text=text, where=given.where)
    elif Path(folder).is_absolute():
        text = f"the run is kept in {folder}"
        yield Finding(level="ok", about="folder", text=text, where=given.where)
    else:
        yield _relative(folder, given)


def _relative(folder: str, given: Expression) -> Finding:
    return Finding(
        level="note",
        about="folder",
        text=f"the run is kept in {folder!r}, relative to where the ServerApp's process works, "
        "which is where the SuperLink was started: from another place it would begin anew. An "
        "absolute path is safe",
        where=given.where,
        write=f'folder="{Path.cwd() / folder}"',
    )


def _check_deadline(server: Server, muster: Built) -> Finding:
    deadline = server.muster_setting(muster, "deadline_seconds").value
    if deadline is not None:
        shown = "" if deadline is UNKNOWN else f": {deadline} s"
        text = f"a round ends at its deadline{shown}"
        return Finding(level="ok", about="deadline", text=text, where=muster.call.where)
    timeouts = [start.argument("timeout") for start in server.starts]
    values = [server.strategies.values.value(each).value for each in timeouts if each is not None]
    seconds = values[0] if values else 3600
    held = "the timeout of start" if seconds is UNKNOWN else f"{seconds} s, the timeout of start"
    return Finding(
        level="note",
        about="deadline",
        text=f"without deadline_seconds a node that never answers holds up its round for {held}",
        where=muster.call.where,
        write="Muster(…, deadline_seconds=60.0)",
    )

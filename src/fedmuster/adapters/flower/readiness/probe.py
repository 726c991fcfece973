"""Import the app as Flower would, in processes of their own: it may print, hang or end them."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from fedmuster.adapters.flower.readiness import loading
from fedmuster.adapters.flower.readiness.findings import Finding
from fedmuster.adapters.flower.readiness.loading import Loaded
from fedmuster.adapters.flower.readiness.project import Component, Project
from fedmuster.privacy.ledger.guards import STATE_FOLDER_VARIABLE

_KINDS: Final[Mapping[Component, str]] = {"serverapp": "ServerApp", "clientapp": "ClientApp"}
_QUIET: Final = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Ended(NamedTuple):
    """How a process ended: what it wrote to its file, or else what went wrong."""

    result: Any
    problem: str


def check_imports(
    project: Project, *, seconds: float
) -> tuple[dict[Component, Loaded], list[Finding]]:
    """Import both components; what they are, and what is to be said about it."""
    loaded: dict[Component, Loaded] = {}
    findings: list[Finding] = []
    for which, kind in _KINDS.items():
        reference = project.component(which)
        if reference is None:
            continue
        arguments = [str(project.folder.resolve()), reference]
        ended = run_alone([loading.__file__], arguments, seconds=seconds)
        found = Loaded(problem=ended.problem) if ended.problem else Loaded(**ended.result)
        loaded[which] = found
        findings += _judge(project, which, kind, reference, found)
    return loaded, findings


def run_alone(script: Sequence[str], arguments: Sequence[str], *, seconds: float) -> Ended:
    """``python script… OUTPUT arguments…`` in an empty folder, ended after ``seconds``."""
    with tempfile.TemporaryDirectory(prefix="fedmuster-") as folder:
        output = Path(folder) / "output.json"
        work = Path(folder) / "work"
        work.mkdir()
        process = subprocess.Popen(
            # -P: the script's own folder must not hide modules of the app.
            [sys.executable, "-P", *script, str(output), *arguments],
            cwd=work,
            # A ledger of a rehearsal must leave no trace among the user's.
            env=os.environ | _QUIET | {STATE_FOLDER_VARIABLE: str(Path(folder) / "state")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that what the app itself starts ends with it
        )
        try:
            printed, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            return Ended(None, f"took longer than {seconds:g} s{_last_lines(printed)}")
        try:
            return Ended(json.loads(output.read_text(encoding="utf-8")), "")
        except (OSError, ValueError):
            code = process.returncode
            return Ended(None, f"ended the process with code {code}{_last_lines(printed)}")


def _judge(
    project: Project, which: Component, kind: str, reference: str, found: Loaded
) -> Iterator[Finding]:
    place = found.where or project.line_with(reference)
    if found.problem:
        text = f"{reference} cannot be imported: {found.problem}"
        write = ""
        if found.missing:
            text += f". It was imported with {sys.executable}: install there what the app needs"
            write = f"pip install {project.folder}"
        yield Finding(level="must change", about=which, text=text, where=place, write=write)
    elif found.kind != kind:
        text = f"{reference} is a {found.kind}, expected a {kind}"
        yield Finding(level="must change", about=which, text=text, where=place)
    else:
        yield Finding(level="ok", about=which, text=f"{reference} is a {kind}", where=place)


def _last_lines(printed: bytes) -> str:
    lines = [line for line in printed.decode(errors="replace").splitlines() if line.strip()]
    return "; it printed last: " + " | ".join(lines[-3:]) if lines else ""

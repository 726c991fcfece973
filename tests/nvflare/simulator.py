"""Jobs in FLARE's simulator, whose server and clients are processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedmuster.core.errors import StateError
from fedmuster.experiments.journal import JournalReader

JOB = Path(__file__).with_name("app") / "job.py"
_PATIENCE = 240.0
_LOOK_SECONDS = 0.2


class Simulator:
    """A job that runs; its processes share a session, so that they can be killed together."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], log: Path) -> None:
        self.folder = folder
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def wait_for_rounds(self, rounds: int) -> JournalReader:
        """Wait until so many rounds are on record."""
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            try:
                journal = JournalReader(self.folder)
            except StateError:  # not begun
                journal = None
            if journal is not None and len(journal) >= rounds:
                return journal
            assert self.process.poll() is None, f"the job ended:\n{self.log[-5000:]}"
            time.sleep(_LOOK_SECONDS)
        raise AssertionError(f"{rounds} rounds took too long:\n{self.log[-5000:]}")

    def kill(self) -> None:
        """``kill -9`` of the server and all clients."""
        for pid in _tree(self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


@contextmanager
def running(tmp_path: Path, **settings: Any) -> Iterator[Simulator]:
    """A job in FLARE's simulator, killed at the end."""
    folder = tmp_path / "run"
    log = tmp_path / f"log-{time.monotonic_ns()}.txt"
    settings = {"folder": str(folder), "policy": "random", **settings}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(JOB), str(tmp_path / "workspace"), json.dumps(settings)],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
        )
    simulator = Simulator(folder, process, log)
    try:
        yield simulator
    finally:
        simulator.kill()


def _tree(root: int) -> list[int]:
    """A process and all that it has started, which FLARE puts into sessions of their own."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found

"""Play a case, in the same way as the command line does."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from tests.digests.cases import Case


def play(case: Case, folder: Path) -> list[Path]:
    """Run the case in ``folder``, in this process where that works. The folders of its runs."""
    out, path = folder / "run", folder / "spec.toml"
    _write_traces(folder)
    with contextlib.chdir(folder):  # paths of traces are taken from here
        if case.arguments:
            command("compare", *case.arguments, "--out", str(out), "--processes", "1")
        else:
            path.write_text(case.spec, encoding="utf-8")
            if not _play_here(path, out):
                command("run", str(path), "--out", str(out), "--processes", "1")
    return sorted(out.glob("*/seed-*"))


def _play_here(path: Path, out: Path) -> bool:
    """The command line starts a process for each experiment: this spares a second for each."""
    if "FEDMUSTER_DIGESTS_BY_COMMAND" in os.environ:
        return False
    try:
        from fedmuster.experiments.run import execute
        from fedmuster.experiments.spec import Experiment
        from fedmuster.experiments.sweep import lay_out
    except ImportError:
        sys.stderr.write("no execute, Experiment or lay_out where they were: by command line\n")
        os.environ["FEDMUSTER_DIGESTS_BY_COMMAND"] = "1"
        return False
    for cell in lay_out(out, Experiment.load(path)):
        execute(cell)
    return True


def command(*arguments: str) -> str:
    """What ``fedmuster ARGUMENTS`` prints."""
    from fedmuster.cli import main

    out = io.StringIO()
    with mock.patch.object(sys, "argv", ["fedmuster", *arguments]), contextlib.redirect_stdout(out):
        try:
            main()
        except SystemExit as error:
            if error.code:
                raise RuntimeError(f"fedmuster {' '.join(arguments)}: exit {error.code}") from error
    return out.getvalue()


@contextlib.contextmanager
def replayed_here() -> Iterator[None]:
    """``explain`` plays a run again in a new process, which imports for longer than it plays."""
    try:
        from fedmuster.experiments.replay import play_again
    except ImportError:
        yield  # a source tree without it: in processes
    else:
        with mock.patch("fedmuster.experiments.replay.replay", play_again):
            yield


def _write_traces(folder: Path) -> None:
    """The files that cases name: measured latencies, activity, devices."""
    tables: dict[str, Iterator[tuple[Any, ...]]] = {
        "latency.csv": _latencies(),
        "activity.csv": _activity(),
        "periods.csv": _periods(),
        "devices.csv": _devices(),
    }
    for name, rows in tables.items():
        text = "\n".join(",".join(map(str, row)) for row in rows)
        (folder / name).write_text(f"{text}\n", encoding="utf-8")


def _latencies() -> Iterator[tuple[Any, ...]]:
    yield "client", "round", "latency_seconds"
    for client in range(14):
        for number in range(1, 9):
            if (client * number) % 11 != 5:
                yield client, number, 0.25 + (client * 7 + number * 3) % 13 / 4


def _activity() -> Iterator[tuple[Any, ...]]:
    yield "client", "start_seconds", "end_seconds"
    for client in range(18):
        for start in range(client % 5, 60, 6 + client % 4):
            yield client, start, start + 2.5


def _periods() -> Iterator[tuple[Any, ...]]:
    yield "client", "start_seconds", "end_seconds", "period_seconds"
    for client in range(20):
        yield client, client % 3 / 4, 1.5 + client % 3 / 4, 2.5 + client % 4


def _devices() -> Iterator[tuple[Any, ...]]:
    yield "client", "compute_ms_per_sample", "bandwidth_kbit_per_second", "memory_gb"
    for client in range(9):
        yield client, 15 + client * 17 % 80, 2000 + client * 7919 % 9000, 2 + client % 3

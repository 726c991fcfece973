"""Whatever becomes of the parent or of one job: workers end within seconds, errors are told."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_SECONDS = 60.0
"""Far more than it takes; a busy machine starts processes slowly."""

SWEEP = """
import os, sys, time
from pathlib import Path
from fedmuster.experiments.sweep import run_side_by_side

def work(job):
    folder, seconds = job
    (folder / str(os.getpid())).touch()
    time.sleep(seconds)
    if seconds == 0.5:
        raise ValueError("a job failed")

if __name__ == "__main__":
    folder, times = Path(sys.argv[1]), [float(text) for text in sys.argv[2:]]
    run_side_by_side(work, [(folder, each) for each in times], processes=3, tick=lambda: None)
"""


def started(folder: Path, *seconds: float) -> "subprocess.Popen[str]":
    (folder / "jobs").mkdir()
    (folder / "sweep.py").write_text(SWEEP)
    command = [sys.executable, str(folder / "sweep.py"), str(folder / "jobs")]
    return subprocess.Popen(
        [*command, *map(str, seconds)], stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def workers(parent: int, folder: Path) -> list[int]:
    """All children of the parent, as soon as two of them are at work."""
    until = time.monotonic() + _SECONDS
    while len(list((folder / "jobs").iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    everybody = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [process for process in everybody if status(process)[1:] == [str(parent)]]


def status(process: int) -> list[str]:
    """State and parent of a process; nothing where there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return []


def alive(process: int) -> bool:
    return status(process)[:1] not in ([], ["Z"], ["X"])


def wait_for_end(processes: list[int]) -> list[int]:
    until = time.monotonic() + _SECONDS
    left = processes
    while left and time.monotonic() < until:
        left = [process for process in left if alive(process)]
        time.sleep(0.1)
    return left


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """Idle ones and busy ones."""
    parent = started(tmp_path, 1_000.0, 0.0, 1_000.0)
    found = workers(parent.pid, tmp_path)
    assert len(found) >= 3
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    assert wait_for_end(found) == []


@pytest.mark.slow
def test_an_error_is_told_at_once(tmp_path: Path) -> None:
    """Not after the job that is at work, nor after those that were handed out in advance."""
    parent = started(tmp_path, 1_000.0, 0.5, *[1_000.0] * 6)
    _, told = parent.communicate(timeout=_SECONDS)
    assert parent.returncode == 1
    assert "a job failed" in told

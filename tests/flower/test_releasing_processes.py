"""Real processes that release on one file: killed at any moment, and racing."""

import logging
import os
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from tests.flower.private_app import app_that, grid_of, send
from tests.forks import FORKS

from fedmuster.core.streams import stream
from fedmuster.flower.client_vault import VaultContents
from fedmuster.flower.private_mod import PrivateMod
from fedmuster.flower.wire import PrivacyGrant
from fedmuster.privacy.mechanisms import Gaussian

_UNITS = 1_000_000  # of ρ, for a release
_MOST = 300  # releases, for ever
_DEADLINE_SECONDS = 120.0
_KILLS = 8


def release_until_refused(folder: Path, run: str, everybody: Barrier) -> None:
    """Send grants to a real ClientApp, and note every release that has left it."""
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    mechanism = Gaussian(clip=1.0)
    epsilon = mechanism.whole_vector_epsilon((_MOST + 0.5) * _UNITS / 1e9, 1)
    mod = PrivateMod(mechanism=mechanism, max_epsilon=epsilon)
    app = app_that(lambda sent: {"w": sent["w"] + 1.0}, [mod])
    grid = grid_of(app, **{"release-notes": str(folder / "releases.json")})
    left = os.open(folder / f"left-{run}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    grant, model = PrivacyGrant.on(mechanism, _UNITS / 1e9), {"w": np.zeros(3)}
    if everybody.parties > 1:
        os.fsync = _slow_fsync  # the others run meanwhile, also where there is one processor
    everybody.wait(_DEADLINE_SECONDS)
    for round_ in range(1, 2 * _MOST):
        reply = send(grid, grant, model=model, run=run, round_=round_)
        if reply.has_error():
            over = ("max_epsilon", "released twice")
            assert any(each in str(reply.error.reason) for each in over), reply.error
            return
        os.write(left, b".")


_fsync = os.fsync


def _slow_fsync(fd: Any) -> None:
    time.sleep(0.001)
    _fsync(fd)


def started(folder: Path, run: str, everybody: Barrier) -> ForkServerProcess:
    """A process that begins to release when everybody is there."""
    process = FORKS.Process(target=release_until_refused, args=(folder, run, everybody))
    process.start()
    return process


def finished(process: ForkServerProcess) -> None:
    process.join(_DEADLINE_SECONDS)
    assert process.exitcode == 0


def num_left(folder: Path) -> int:
    """How many releases have left, by the notes of those who got them."""
    return sum(file.stat().st_size for file in folder.glob("left-*"))


def contents(folder: Path) -> VaultContents:
    return VaultContents.of((folder / "releases.json").read_bytes())


def num_paid(folder: Path) -> int:
    released = contents(folder).released
    assert released.keys() <= {"rho"}
    assert released.get("rho", 0) % _UNITS == 0
    return released.get("rho", 0) // _UNITS


@pytest.mark.slow
def test_kill_9_at_any_moment_costs_at_most_a_release(tmp_path: Path) -> None:
    draw = stream(0, "kills of releasing clients")
    alone, paid = FORKS.Barrier(1), 0
    for kill in range(_KILLS):
        process = started(tmp_path, f"run-{kill}", alone)
        wanted = num_left(tmp_path) + int(draw.integers(1, 20))
        end = time.monotonic() + _DEADLINE_SECONDS
        while num_left(tmp_path) < wanted and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(float(draw.uniform(0, 0.004)))  # at any moment of a release
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert paid < wanted <= num_left(tmp_path) <= num_paid(tmp_path)
        assert num_paid(tmp_path) <= num_left(tmp_path) + kill + 1  # never unpaid; one is lost
        paid = num_paid(tmp_path)
    finished(started(tmp_path, "last", alone))
    assert num_paid(tmp_path) == _MOST
    assert _MOST - _KILLS <= num_left(tmp_path) <= _MOST


@pytest.mark.parametrize("runs", [("one", "another"), ("one", "one")], ids=["two runs", "one run"])
def test_two_processes_on_one_file_stay_below_the_limit(
    runs: tuple[str, str], tmp_path: Path
) -> None:
    both = FORKS.Barrier(2)
    for process in [started(tmp_path, run, both) for run in runs]:
        finished(process)
    assert num_paid(tmp_path) == num_left(tmp_path)
    rounds = contents(tmp_path).rounds
    assert num_left(tmp_path) == sum(rounds.values())  # every round once
    assert num_left(tmp_path) <= _MOST
    if len(set(runs)) == 2:  # else a process ends when the other has released its round
        assert num_left(tmp_path) == _MOST
        assert min(rounds.values()) > 0

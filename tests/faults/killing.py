"""Children that are forked, watched and killed."""

import os
import random
import signal
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.faults.board import Board, Point
from tests.faults.watching import RELEASES, watch

from fedmuster.experiments.run import execute

_ANY_TIME: Final = 0.1  # of the kills come whatever the child does
_AT_ONCE: Final = 0.2  # of the others as soon as it comes to a point, the rest somewhat later
_AIMS: Final = {
    Point.OPENING: 6,
    Point.DEBIT_CHECKS: 4,
    Point.DEBIT_WRITES: 8,
    Point.DEBIT_COMMITS: 8,
    Point.DEBIT_COMMITTED: 8,
    Point.DEBIT_ANCHORS: 8,
    Point.DEBIT_PAID: 4,
    Point.RELEASE_NOISE: 12,
    Point.RELEASE_OUT: 6,
    Point.AGGREGATION: 16,
    Point.CHECKPOINT_WRITES: 10,
    Point.CHECKPOINT_COMMITS: 10,
}
"""How often each is aimed at; the shorter it is, the more often it is missed."""
_ERROR: Final = "error.txt"


class Pace(NamedTuple):
    """How a run goes if nobody kills it."""

    seconds: float
    times: Mapping[Point, int]
    shortest_nanoseconds: Mapping[Point, int]


def start(folder: Path, board: Board) -> int:
    """Run or continue what is in ``folder`` in a child; its process id."""
    board.clear()
    if (pid := os.fork()) != 0:
        return pid
    code = 1
    try:
        watch(board, folder / RELEASES)
        execute(folder)
        code = 0
    except BaseException:
        (folder / _ERROR).write_text(traceback.format_exc())
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    """The child's exit code; that of one that was killed is -9."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def complaint(folder: Path) -> str:
    """What a child that failed has said."""
    file = folder / _ERROR
    return file.read_text() if file.exists() else "nothing"


def kill_somewhere(pid: int, board: Board, rng: random.Random, pace: Pace, left: float) -> None:
    """Kill the child at a random point of its life, unless that is over before.

    Args:
        pid: the child.
        board: where it says what it does.
        rng: draws the point, which of the times that the child comes there, and a moment in it.
        pace: how long everything takes.
        left: how much of the run is left, of 1.
    """
    if rng.random() < _ANY_TIME:
        time.sleep(rng.uniform(0, pace.seconds))
    else:
        (point,) = rng.choices(list(_AIMS), weights=list(_AIMS.values()))
        board.aim(point, rng.randint(1, max(round(left * pace.times[point]), 1)))
        while not board.held:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return
            time.sleep(0.0003)
        if rng.random() > _AT_ONCE:
            delay = rng.randint(0, pace.shortest_nanoseconds[point])
            board.let_go()
            until = time.perf_counter_ns() + delay
            while time.perf_counter_ns() < until:
                pass
    os.kill(pid, signal.SIGKILL)

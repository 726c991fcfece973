"""Where a child is, published in memory that outlives it: what a kill hit is read afterwards."""

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final


class Point(IntEnum):
    """A part of a run; the first word of its name is the stage that it belongs to."""

    ELSEWHERE = 0
    OPENING = 1
    DEBIT_CHECKS = 2
    DEBIT_WRITES = 3
    DEBIT_COMMITS = 4
    DEBIT_COMMITTED = 5
    DEBIT_ANCHORS = 6
    DEBIT_PAID = 7
    RELEASE_NOISE = 8
    RELEASE_OUT = 9
    AGGREGATION = 10
    CHECKPOINT_WRITES = 11
    CHECKPOINT_COMMITS = 12

    @property
    def stage(self) -> str:
        return self.name.split("_")[0].lower()

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]


_MEANINGS: Final = {
    Point.ELSEWHERE: "starting, choosing, training, evaluating, closing",
    Point.OPENING: "making or opening the ledger, registering clients",
    Point.DEBIT_CHECKS: "before anything is written",
    Point.DEBIT_WRITES: "between the first UPDATE and COMMIT",
    Point.DEBIT_COMMITS: "inside COMMIT",
    Point.DEBIT_COMMITTED: "between COMMIT and the heads outside the file",
    Point.DEBIT_ANCHORS: "while those heads are moved",
    Point.DEBIT_PAID: "after that, before anybody is asked",
    Point.RELEASE_NOISE: "while clients clip and add noise",
    Point.RELEASE_OUT: "while updates leave the clients",
    Point.AGGREGATION: "while the server applies them",
    Point.CHECKPOINT_WRITES: "before COMMIT",
    Point.CHECKPOINT_COMMITS: "inside COMMIT",
}

_POINT, _ROUND, _SINCE, _AIM, _NTH, _HELD, _TIMES = range(7)
_SHORTEST = _TIMES + len(Point)


class Board:
    """Shared with the children that are forked from here."""

    def __init__(self) -> None:
        self._parent = os.getpid()
        self._cells = memoryview(mmap.mmap(-1, 8 * (_SHORTEST + len(Point)))).cast("q")

    def clear(self) -> None:
        for cell in range(len(self._cells)):
            self._cells[cell] = 0
        self._cells[_SINCE] = time.perf_counter_ns()

    @property
    def point(self) -> Point:
        """Where the child is, or was when it died."""
        return Point(self._cells[_POINT])

    @property
    def round(self) -> int:
        """The last round whose debit it began."""
        return self._cells[_ROUND]

    def begin_round(self, number: int) -> None:
        self._cells[_ROUND] = number

    def times(self, point: Point) -> int:
        """How often the child has come there."""
        return self._cells[_TIMES + point]

    def shortest_nanoseconds(self, point: Point) -> int:
        """How long it stayed there at least."""
        return self._cells[_SHORTEST + point]

    def aim(self, point: Point, nth: int) -> None:
        """Hold the child when it comes there for the n-th time."""
        self._cells[_AIM], self._cells[_NTH] = point, nth

    @property
    def held(self) -> bool:
        return bool(self._cells[_HELD])

    def let_go(self) -> None:
        self._cells[_HELD] = 0

    def enter(self, point: Point) -> None:
        now, cells = time.perf_counter_ns(), self._cells
        shortest = _SHORTEST + cells[_POINT]
        cells[shortest] = min(cells[shortest] or now, now - cells[_SINCE])
        cells[_POINT] = point
        cells[_TIMES + point] += 1
        if cells[_AIM] == point and cells[_NTH] == cells[_TIMES + point]:
            cells[_HELD] = 1
            # The parent may be busy elsewhere and must not be late; but it may be gone, too.
            while cells[_HELD] and os.getppid() == self._parent:
                pass
        cells[_SINCE] = time.perf_counter_ns()

    @contextmanager
    def at(self, point: Point) -> Iterator[None]:
        before = self.point
        self.enter(point)
        try:
            yield
        finally:
            self.enter(before)

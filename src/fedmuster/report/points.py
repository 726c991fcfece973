"""Which choice of a run is meant: a round, or without rounds a decision."""

from typing import NamedTuple

import numpy as np

from fedmuster.core.arrays import BoolArray
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.experiments.journal import JournalReader, rounds_done
from fedmuster.report.cells import Cell
from fedmuster.report.job_history import JobHistory, read_jobs


class Point(NamedTuple):
    """A round, or without rounds a decision.

    Attributes:
        round: which; without rounds, the aggregation after the decision.
        decision: its jobs, by client; None in rounds.
    """

    round: int
    decision: JobHistory | None = None

    @property
    def number(self) -> int | None:
        """Of the decision; None in rounds."""
        return None if self.decision is None else int(self.decision.decision[0])

    @property
    def at_seconds(self) -> float:
        """When the decision was made."""
        assert self.decision is not None
        return float(self.decision.asked_at_seconds[0])


def point_of_round(cell: Cell, round_number: int) -> Point:
    """The round of that number; without rounds, the last decision before that aggregation."""
    reader, jobs = _read(cell)
    if not 1 <= round_number <= len(reader):
        step = "round" if jobs is None else "aggregation"
        raise ConfigError(
            f"--round {round_number}: {cell.folder} has played {step}s 1 … {len(reader):,}; give "
            "one of them"
        )
    if jobs is None:
        return Point(round_number)
    return _last_decision(cell, jobs, jobs.asked_after < round_number, f"--round {round_number}")


def point_at(cell: Cell, time_seconds: float) -> Point:
    """The round that goes on at that time; without rounds, the last decision until then."""
    reader, jobs = _read(cell)
    elapsed = np.cumsum(reader.columns["seconds"])
    if not 0 <= time_seconds <= elapsed[-1]:
        raise ConfigError(
            f"--time {time_seconds:g}: {cell.folder} has been played from 0 to {elapsed[-1]:g} s; "
            "give a time between these"
        )
    if jobs is None:
        ended = int(np.searchsorted(elapsed, time_seconds, side="right"))
        return Point(min(ended + 1, len(reader)))
    until = jobs.asked_at_seconds <= time_seconds
    return _last_decision(cell, jobs, until, f"--time {time_seconds:g}")


def _read(cell: Cell) -> tuple[JournalReader, JobHistory | None]:
    if rounds_done(cell.folder) == 0:
        raise StateError(f"{cell.folder} has no rounds yet: there is nothing to explain")
    reader = JournalReader(cell.folder)
    return reader, read_jobs(reader, len(reader))


def _last_decision(cell: Cell, jobs: JobHistory, until: BoolArray, told: str) -> Point:
    if not until.any():
        first = float(jobs.asked_at_seconds.min(initial=np.inf))
        raise ConfigError(
            f"{told}: {cell.folder} has asked nobody by then; its first decision is at {first:g} s"
        )
    decision = jobs.of_decision(int(jobs.decision[until].max()))
    return Point(int(decision.asked_after[0]) + 1, decision)

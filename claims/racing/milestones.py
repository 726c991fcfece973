"""When runs come to a level of accuracy, how they end, and what that has cost."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from claims.measures import Recorded, settled
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.report.runs import Run

_WINDOW = 0.03
"""The share of a run's time over which accuracies are averaged before they count as reached.

A single evaluation swings; without the mean, a contestant that is evaluated more often would be
seen at the level sooner, by luck.
"""
_ROUNDING = 1e-9
_BYTES_OF_A_NUMBER = 4
_MEGA = 1e6

Runs = Mapping[str, tuple[Run, ...]]
"""The runs of each contestant, in the order of the seeds."""


class Course(Recorded, Protocol):
    """The course of a run: what milestones are found in."""

    @property
    def cohort_sizes(self) -> IntArray:
        """[rounds], how many jobs ended with each aggregation."""

    @property
    def num_parameters(self) -> int | None:
        """How many numbers an update has."""

    @property
    def rounds(self) -> int:
        """How many aggregations there were."""


def end_level(run: Course) -> float:
    """The accuracy at which a run ends: the mean of its last tenth; NaN without an evaluation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing
        return settled(run, "accuracy")


def rows_to(run: Course, level: float, *, seconds: float) -> int | None:
    """How many aggregations it takes until the smoothed accuracy is at ``level``; None if never.

    Args:
        run: which run.
        level: an accuracy.
        seconds: how long runs last; the accuracy is smoothed over 3 % of it, backwards.
    """
    _, means = smoothed(run, seconds=seconds)
    good = np.flatnonzero(means >= level - _ROUNDING)
    if len(good) == 0:
        return None
    evaluated = np.flatnonzero(~np.isnan(run.columns["accuracy"]))
    return int(evaluated[good[0]]) + 1


def seconds_to(run: Course, level: float, *, seconds: float) -> float:
    """The time until the smoothed accuracy is at ``level``; infinite if it never is."""
    rows = rows_to(run, level, seconds=seconds)
    return np.inf if rows is None else float(run.columns["seconds"][:rows].sum())


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """What clients and the server have done until a moment; open jobs are not counted.

    Args:
        client_updates: jobs of clients that have ended, answered or not.
        server_updates: aggregations.
        wasted: of the jobs, those whose update never entered the model.
        megabytes_down: models sent to clients.
        megabytes_up: answers that the server got.
    """

    client_updates: float
    server_updates: float
    wasted: float
    megabytes_down: float
    megabytes_up: float


def costs_to(run: Course, level: float, *, seconds: float) -> Costs:
    """The costs until the smoothed accuracy is at ``level``, or of the whole run if it never is."""
    rows = rows_to(run, level, seconds=seconds)
    jobs = float(run.cohort_sizes[:rows].sum())
    answers = float(run.columns["num_completed"][:rows].sum())
    size = _BYTES_OF_A_NUMBER * (run.num_parameters or 0) / _MEGA
    return Costs(
        client_updates=jobs,
        server_updates=float(run.rounds if rows is None else rows),
        wasted=jobs - float(run.columns["num_aggregated"][:rows].sum()),
        megabytes_down=size * jobs,
        megabytes_up=size * answers,
    )


def smoothed(run: Course, *, seconds: float) -> tuple[FloatArray, FloatArray]:
    """The times of evaluations, and at each the mean accuracy over the last 3 % of ``seconds``."""
    known = ~np.isnan(run.columns["accuracy"])
    times, accuracies = np.cumsum(run.columns["seconds"])[known], run.columns["accuracy"][known]
    sums = np.concatenate([[0.0], np.cumsum(accuracies)])
    first = np.searchsorted(times, times - _WINDOW * seconds, side="right")
    last = np.arange(1, len(times) + 1)
    return times, (sums[last] - sums[first]) / (last - first)


def all_seconds_to(runs: Sequence[Course], levels: FloatArray, *, seconds: float) -> FloatArray:
    """[seeds], the time until each run is at the level of its seed."""
    pairs = zip(runs, levels.tolist(), strict=True)
    return np.array([seconds_to(run, level, seconds=seconds) for run, level in pairs])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Milestones:
    """When contestants that have faced the same luck came to the level of each seed.

    Args:
        runs: of each contestant.
        levels: [seeds], an accuracy.
        horizon_seconds: how long runs last.
    """

    runs: Runs
    levels: FloatArray
    horizon_seconds: float

    def seconds(self, label: str) -> FloatArray:
        """[seeds], the time to the level; infinite where it is never reached."""
        return all_seconds_to(self.runs[label], self.levels, seconds=self.horizon_seconds)

    def shares(self, label: str, of: str) -> FloatArray:
        """[seeds], the time to the level as a share of another's; NaN where neither is there."""
        with np.errstate(invalid="ignore"):
            return self.seconds(label) / self.seconds(of)

    def costs(self, label: str) -> list[Costs]:
        """Of each seed, until the level."""
        return [
            costs_to(run, level, seconds=self.horizon_seconds)
            for run, level in zip(self.runs[label], self.levels.tolist(), strict=True)
        ]

    def ends(self, label: str) -> FloatArray:
        """[seeds], the accuracy at the end."""
        return np.array([end_level(run) for run in self.runs[label]])

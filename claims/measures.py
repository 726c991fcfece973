"""Measurements of runs that the findings of several papers share, and how pages write numbers."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Protocol

import numpy as np

from fedmuster.core.records import FloatArray
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import Difference, Interval, interval, paired
from fedmuster.report.target import Target
from fedmuster.training.models import MLP, Model

INTERVALS: Final = "± half-width of the 95 % Student-t interval over the seeds."
"""The footnote of tables with intervals."""
ONE_SIDED: Final = 0.05
"""Error of each of the two one-sided tests of an equivalence."""
LAST_ROUNDS: Final = 0.8
"""Share of the rounds after which :func:`settled_accuracy` averages."""
_LAST_SECONDS = 0.9

Values = Mapping[str, FloatArray]
"""[seeds] by policy."""


class Recorded(Protocol):
    """A run of which columns were kept, with an entry for each aggregation."""

    @property
    def columns(self) -> Mapping[str, FloatArray]:
        """[rounds] by name."""


def each(comparison: Comparison, of: Callable[[Run], float]) -> dict[str, FloatArray]:
    """A number of every run: [seeds] by policy."""
    return {label: np.array([of(run) for run in runs]) for label, runs in comparison.runs.items()}


def settled(run: Recorded, column: str) -> float:
    """The mean of the evaluations in the last tenth of the simulated time: single ones swing."""
    return float(np.nanmean(_last_tenth(run, column)))


def swing(run: Recorded, column: str) -> float:
    """The standard deviation of the evaluations in the last tenth of the simulated time."""
    return float(np.nanstd(_last_tenth(run, column)))


def _last_tenth(run: Recorded, column: str) -> FloatArray:
    elapsed = np.cumsum(run.columns["seconds"])
    return np.asarray(run.columns[column][elapsed >= _LAST_SECONDS * elapsed[-1]])


def settled_accuracy(run: Run) -> float:
    """The mean accuracy of the evaluations in the last fifth of the rounds."""
    late = np.arange(1, run.rounds + 1) > LAST_ROUNDS * run.rounds
    return float(np.nanmean(run.columns["accuracy"][late]))


def rounds_to(target: Target, run: Run) -> float:
    """The first round after which the model reaches the target accuracy; NaN if none does."""
    good = np.flatnonzero(run.columns["accuracy"] >= target.value)
    return float(good[0]) + 1 if len(good) else math.nan


def different_clients(run: Run) -> float:
    """How many clients were chosen at least once."""
    return float(np.count_nonzero(run.selection_counts()))


def beaten(
    values: Values, label: str, rivals: Sequence[str], wanted: Literal["lower", "higher"]
) -> list[str]:
    """The rivals from which ``label`` differs significantly in the wanted direction."""
    return [
        rival
        for rival in rivals
        if paired(values[label], values[rival], comparisons=len(rivals)).verdict == wanted
    ]


def equivalence(values: FloatArray, others: FloatArray) -> Interval:
    """``values - others`` with the interval of two one-sided tests at :data:`ONE_SIDED`."""
    return interval(values - others, level=1 - 2 * ONE_SIDED)


def number(around: Interval, digits: int = 1) -> str:
    """A mean with the half-width of its interval."""
    return f"{around.mean:,.{digits}f} ± {around.half_width:,.{digits}f}"


def in_percent(around: Interval, digits: int = 1) -> str:
    """A share with the half-width of its interval, in per cent, without the unit."""
    return f"{100 * around.mean:.{digits}f} ± {100 * around.half_width:.{digits}f}"


def percent(around: Interval, digits: int = 1) -> str:
    """A share with the half-width of its interval."""
    return f"{in_percent(around, digits)} %"


def points(difference: Difference, digits: int = 1) -> str:
    """A difference of shares with its sign."""
    around = difference.interval
    return f"{100 * around.mean:+.{digits}f} ± {100 * around.half_width:.{digits}f} points"


def reached_text(values: FloatArray, form: str) -> str:
    """The mean over the seeds that reached a target, and how many did if not all.

    Example:
        >>> reached_text(np.array([3.0, np.nan, 5.0]), "{:.1f} s")
        '4.0 s (2 of 3 seeds)'
    """
    known = values[np.isfinite(values)]
    if len(known) == 0:
        return "never"
    text = form.format(known.mean())
    return text if len(known) == len(values) else f"{text} ({len(known)} of {len(values)} seeds)"


def names(labels: Sequence[str]) -> str:
    """The labels, or "none"."""
    return ", ".join(labels) or "none"


def model_text(model: Model) -> str:
    """The name of a model, with the hidden layers of an MLP."""
    if isinstance(model, MLP):
        return f"{model.name} (hidden: {', '.join(map(str, model.hidden))})"
    return model.name


def work_text(steps: int | None) -> str:
    """What a client trains in a round."""
    return "an epoch" if steps is None else f"{steps} step{'s' * (steps != 1)}"

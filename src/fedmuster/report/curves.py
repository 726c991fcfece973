"""Curves over rounds and over simulated time: the mean over seeds with its interval.

A band reaches as far as the shortest run of its policy. The mean of what stays (a model, privacy
spent) goes on to the end of the longest run, with the last value of each finished run: it ends with
the number in the tables, and does not jump where a seed ends.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import mean_and_half_width

Axis = Literal["round", "seconds", "spent_max"]
"""Rounds, simulated time, or the privacy spent by the client that spent most."""

N = TypeVar("N", bound=np.number)

MOST_POINTS = 400
_DECADES = 100.0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Curve:
    """One policy: ``mean`` and ``half_width`` at each ``x``; NaN where not all seeds are."""

    label: str
    x: FloatArray
    mean: FloatArray
    half_width: FloatArray


def running_totals(comparison: Comparison, column: str) -> list[Curve]:
    """The sum of a column up to each round; policies without it (no judge) are left out."""
    curves = []
    for label, values in _complete(comparison, column):
        rounds = plotted_rounds(values.shape[1])
        mean, half_width = mean_and_half_width(np.cumsum(values, axis=1)[:, rounds - 1])
        curves.append(
            Curve(label=label, x=rounds.astype(np.float64), mean=mean, half_width=half_width)
        )
    return curves


def moving_means(comparison: Comparison, column: str) -> list[Curve]:
    """The mean of a column over the rounds about each round, :func:`window` of them, and seeds.

    Without a band: that of few rounds is wider than all that happens. Policies without the column
    are left out.
    """
    width = window(comparison)
    curves = []
    for label, values in _complete(comparison, column):
        sums = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)
        rounds = plotted_rounds(values.shape[1])
        # At the ends there are fewer.
        first = np.maximum(rounds - 1 - width // 2, 0)
        last = np.minimum(rounds + width // 2, values.shape[1])
        mean = ((sums[:, last] - sums[:, first]) / (last - first)).mean(axis=0)
        absent = np.full(len(mean), np.nan)
        curves.append(Curve(label=label, x=rounds.astype(np.float64), mean=mean, half_width=absent))
    return curves


def _complete(comparison: Comparison, column: str) -> Iterator[tuple[str, FloatArray]]:
    """[seeds, rounds] of each policy that has the column in all rounds that its runs share."""
    for label, runs in comparison.runs.items():
        length = min(run.rounds for run in runs)
        values = np.stack([run.columns[column][:length] for run in runs])
        if not np.isnan(values).any():
            yield label, values


def window(comparison: Comparison) -> int:
    """Over how many rounds a moving mean goes: an odd number, about a tenth of all."""
    return 2 * (comparison.most_rounds // 20) + 1


def evaluations(comparison: Comparison, column: str, axis: Axis) -> list[Curve]:
    """Loss or accuracy on the test set, or privacy spent: at each x the last so far, over seeds.

    Policies without it, or without privacy where that is the axis, are left out.
    """
    curves = []
    for label, runs in comparison.runs.items():
        steps = [_evaluated(run, column, axis) for run in runs]
        if any(len(x) == 0 for x, _ in steps):
            continue
        ends = [float(_places(run, axis)[-1]) for run in runs]
        x = np.unique(np.concatenate([*(x for x, _ in steps), ends]))
        x = thinned(x[x >= max(own[0] for own, _ in steps)])
        mean, half_width = mean_and_half_width(np.stack([last_before(x, *one) for one in steps]))
        half_width[x > min(ends)] = np.nan
        curves.append(Curve(label=label, x=x, mean=mean, half_width=half_width))
    return curves


def last_before(x: FloatArray, places: FloatArray, values: FloatArray) -> FloatArray:
    """The value at the last of the increasing ``places`` that is not above each x, else NaN.

    Example:
        >>> last_before(np.array([0.5, 1.0, 2.9]), np.array([1.0, 2.0]), np.array([7.0, 8.0]))
        array([nan,  7.,  8.])
    """
    at = np.searchsorted(places, x, side="right") - 1
    return np.where(at < 0, np.nan, values[np.maximum(at, 0)])


def common_grid(curves: Sequence[Curve]) -> FloatArray:
    """Not too many x for all curves together, the ends of each among them."""
    if not curves:
        return np.zeros(0)
    inner = thinned(np.unique(np.concatenate([curve.x for curve in curves])))
    ends = [end for curve in curves for end in (curve.x[0], curve.x[-1])]
    return np.unique(np.concatenate([inner, ends]))


def plotted_rounds(rounds: int) -> IntArray:
    """Enough rounds for both a linear and a logarithmic axis; all of them if they are few."""
    if rounds <= MOST_POINTS:
        return np.arange(1, rounds + 1)
    both = [np.linspace(1, rounds, MOST_POINTS), np.geomspace(1, rounds, MOST_POINTS // 2)]
    return np.unique(np.rint(np.concatenate(both)).astype(np.int64))


def thinned(x: NDArray[N]) -> NDArray[N]:
    """At most MOST_POINTS of the x, evenly chosen, first and last among them."""
    if len(x) <= MOST_POINTS:
        return x
    return x[np.rint(np.linspace(0, len(x) - 1, MOST_POINTS)).astype(np.int64)]


def _evaluated(run: Run, column: str, axis: Axis) -> tuple[FloatArray, FloatArray]:
    values, places = run.columns[column], _places(run, axis)
    known = ~(np.isnan(values) | np.isnan(places))
    return places[known], values[known]


def _places(run: Run, axis: Axis) -> FloatArray:
    if axis == "round":
        return np.arange(1.0, run.rounds + 1)
    if axis == "seconds":
        return np.cumsum(run.columns["seconds"])
    return run.columns[axis]


def spans_decades(curves: Sequence[Curve]) -> bool:
    """Whether means are all positive and so far apart that only a logarithm shows them."""
    if not curves:
        return False
    means = np.concatenate([curve.mean for curve in curves])
    low, high = float(means.min()), float(means.max())
    return low > 0 and high > _DECADES * low and bool(np.isfinite(high))

"""Curves over rounds and time (means over seeds with intervals), and the charts they make.

A band reaches as far as the shortest run of its policy. The mean of what stays (a model, privacy
spent) goes on to the end of the longest run, with the last value of each finished run: it ends with
the number in the tables, and does not jump where a seed ends.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.words import several
from fedmuster.report.costs import started_updates
from fedmuster.report.promise import cap_in_sight, cap_text, spent_title
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import mean_and_half_width
from fedmuster.report.target import Target

Axis = Literal["round", "seconds", "spent_max", "updates"]
"""Rounds, simulated time, the privacy spent by the client that spent most, or client updates."""

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
    """At most a few hundred x for all curves together, with the ends of each curve."""
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


def thinned(x: NDArray[N], most: int = MOST_POINTS) -> NDArray[N]:
    """At most ``most`` entries, evenly chosen, first and last among them."""
    if len(x) <= most:
        return x
    return x[np.rint(np.linspace(0, len(x) - 1, most)).astype(np.int64)]


def _evaluated(run: Run, column: str, axis: Axis) -> tuple[FloatArray, FloatArray]:
    values, places = run.columns[column], _places(run, axis)
    known = ~(np.isnan(values) | np.isnan(places))
    return places[known], values[known]


def _places(run: Run, axis: Axis) -> FloatArray:
    if axis == "round":
        return np.arange(1.0, run.rounds + 1)
    if axis == "seconds":
        return run.elapsed_seconds
    if axis == "updates":
        return started_updates(run).astype(np.float64)
    return run.columns[axis]


def spans_decades(curves: Sequence[Curve]) -> bool:
    """Whether means are all positive and so far apart that only a logarithm shows them."""
    if not curves:
        return False
    means = np.concatenate([curve.mean for curve in curves])
    low, high = float(means.min()), float(means.max())
    return low > 0 and high > _DECADES * low and bool(np.isfinite(high))


# Charts: titles, axes and marks of curves, once for the pictures and for the page.

TIME_AND_ROUNDS: tuple[Axis, Axis] = ("seconds", "round")
_MOVING_TITLES = {
    "participants": "Participants {}",
    "budget_share": "Share of the budgets spent",
    "num_completed": "Answers {}",
}


class Mark(NamedTuple):
    """A dotted line across a chart; ``within`` if the axis has to reach it."""

    value: float
    text: str
    within: bool = False


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chart:
    """One chart, a curve for each policy that has its numbers.

    Args:
        name: of the chart in the page.
        kind: a level that rises and falls, privacy spent, a total over rounds, or a moving mean.
        title: of the chart.
        axis: what the curves run along.
        x_title: of that axis.
        y_title: of the other axis.
        curves: in the order of the policies.
        percent: whether heights are shares, told in per cent.
        most: which no height can exceed.
        floor: a height from which the axis begins at the latest; None to fit the curves.
        logarithmic: whether only a logarithmic axis shows all heights.
        mark: a height to compare with.
        smoothed: over how many rounds means go, in words; empty for 1.
    """

    name: str
    kind: Literal["level", "spending", "total", "moving"]
    title: str
    axis: Axis
    x_title: str
    y_title: str
    curves: Sequence[Curve]
    percent: bool = False
    most: float = math.inf
    floor: float | None = None
    logarithmic: bool = False
    mark: Mark | None = None
    smoothed: str = ""

    @property
    def steps(self) -> bool:
        """Seeds are measured at different times, so their mean changes in steps. Rounds agree."""
        return self.axis != "round"


def all_charts(comparison: Comparison, target: Target | None) -> Iterator[Chart]:
    """Every chart of a comparison, in the order of the page."""
    learned = [("accuracy", comparison.classifies), ("loss", comparison.trained)]
    for column in (column for column, measured in learned if measured):
        yield from (learning(comparison, column, axis, target) for axis in TIME_AND_ROUNDS)
        if comparison.round_less:
            yield learning(comparison, column, "updates", target)
    if comparison.privacy is not None:
        for column in ("spent_max", "spent_mean"):
            yield from (spending(comparison, column, axis) for axis in TIME_AND_ROUNDS)
        if comparison.classifies:
            yield learning(comparison, "accuracy", "spent_max")
    makers = [(total, "regret"), (total, "seconds")]
    if comparison.network is not None:
        edges = [(moving, "participants"), (moving, "budget_share")]
        makers = [(total, "utility"), makers[0], *edges, makers[1]]
    drawn = (make(comparison, column) for make, column in makers)
    yield from (chart for chart in drawn if chart.curves)


def learning(
    comparison: Comparison, column: str, axis: Axis, target: Target | None = None
) -> Chart:
    """Accuracy or loss against time, rounds, privacy spent or client updates; marks the target."""
    what = f"{comparison.evaluated_on}{column}"
    curves = evaluations(comparison, column, axis)
    mark = None
    if target is not None and target.column == column:
        mark = Mark(target.value, f"target {target.text}")
    return Chart(
        name=f"{column}-{axis}",
        kind="level",
        title=f"{what.capitalize()} {against(comparison, axis)}",
        axis=axis,
        x_title=_x_title(comparison, axis),
        y_title=what,
        curves=curves,
        percent=column == "accuracy",
        most=1.0 if column == "accuracy" else math.inf,
        logarithmic=column == "loss" and spans_decades(curves),
        mark=mark,
    )


def spending(comparison: Comparison, column: str, axis: Axis) -> Chart:
    """Privacy spent by the client that spent most, or on average, with the cap as a mark."""
    privacy = comparison.privacy
    assert privacy is not None
    curves = evaluations(comparison, column, axis)
    seen = cap_in_sight(privacy, max(float(curve.mean[-1]) for curve in curves))
    who = "Largest" if column == "spent_max" else "Mean"
    return Chart(
        name=f"{column}-{axis}",
        kind="spending",
        title=f"{who} privacy spent {against(comparison, axis)}",
        axis=axis,
        x_title=_x_title(comparison, axis),
        y_title=spent_title(privacy, column),
        curves=curves,
        mark=Mark(privacy.cap, cap_text(privacy), within=seen),
    )


def total(comparison: Comparison, column: str) -> Chart:
    """Utility, regret or time, summed over rounds."""
    clock = comparison.clock
    best = " against the best placement" * (comparison.network is not None)
    title, y_title = {
        "utility": ("Cumulative utility", "cumulative utility"),
        "regret": (f"Cumulative regret{best}", "cumulative regret"),
        "seconds": (f"{clock.capitalize()} over {comparison.step}s", f"{clock} (s)"),
    }[column]
    return Chart(
        name=f"{column}-total",
        kind="total",
        title=title,
        axis="round",
        x_title=comparison.step if column == "seconds" else "round",
        y_title=y_title,
        curves=running_totals(comparison, column),
    )


def moving(comparison: Comparison, column: str) -> Chart:
    """Participants, budgets spent or answers, averaged over neighbouring rounds."""
    title, width = _MOVING_TITLES[column].format(comparison.a_step), window(comparison)
    smoothed = f"mean of {several(width, comparison.step)}" if width > 1 else ""
    return Chart(
        name=f"{column}-round",
        kind="moving",
        title=f"{title}, {smoothed}" if smoothed else title,
        axis="round",
        x_title=comparison.step,
        y_title=title.lower(),
        curves=moving_means(comparison, column),
        percent=column == "budget_share",
        smoothed=smoothed,
    )


def against(comparison: Comparison, axis: Axis) -> str:
    """For titles, e.g. "against simulated time"."""
    names = {
        "seconds": comparison.clock,
        "round": f"{comparison.step}s",
        "spent_max": "privacy spent",
        "updates": "client updates",
    }
    return f"against {names[axis]}"


def _x_title(comparison: Comparison, axis: Axis) -> str:
    if axis == "spent_max" and comparison.privacy is not None:
        return spent_title(comparison.privacy, axis)
    titles = {"round": comparison.step, "updates": "client updates started"}
    return titles.get(axis, f"{comparison.clock} (s)")

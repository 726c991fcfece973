"""Charts of curves: titles, axes and marks, once for the pictures and for the page."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fedmuster.core.words import several
from fedmuster.report.curves import (
    Axis,
    Curve,
    evaluations,
    moving_means,
    running_totals,
    spans_decades,
    window,
)
from fedmuster.report.promise import cap_in_sight, cap_text, spent_title
from fedmuster.report.runs import Comparison
from fedmuster.report.target import Target

TIME_AND_ROUNDS: tuple[Axis, Axis] = ("seconds", "round")
_MOVING_TITLES = {
    "participants": "Participants a round",
    "budget_share": "Share of the budgets spent",
    "num_completed": "Answers a round",
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
    """Accuracy or loss against time, rounds or privacy spent, with the target as a mark."""
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
        "seconds": (f"{clock.capitalize()} over rounds", f"{clock} (s)"),
    }[column]
    return Chart(
        name=f"{column}-total",
        kind="total",
        title=title,
        axis="round",
        x_title="round",
        y_title=y_title,
        curves=running_totals(comparison, column),
    )


def moving(comparison: Comparison, column: str) -> Chart:
    """Participants, budgets spent or answers, averaged over neighbouring rounds."""
    title, width = _MOVING_TITLES[column], window(comparison)
    smoothed = f"mean of {several(width, 'round')}" if width > 1 else ""
    return Chart(
        name=f"{column}-round",
        kind="moving",
        title=f"{title}, {smoothed}" if smoothed else title,
        axis="round",
        x_title="round",
        y_title=title.lower(),
        curves=moving_means(comparison, column),
        percent=column == "budget_share",
        smoothed=smoothed,
    )


def against(comparison: Comparison, axis: Axis) -> str:
    """For titles, e.g. "against simulated time"."""
    names = {"seconds": comparison.clock, "round": "rounds", "spent_max": "privacy spent"}
    return f"against {names[axis]}"


def _x_title(comparison: Comparison, axis: Axis) -> str:
    if axis == "spent_max" and comparison.privacy is not None:
        return spent_title(comparison.privacy, axis)
    return "round" if axis == "round" else f"{comparison.clock} (s)"

"""Pictures of the races."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from claims.racing.milestones import Milestones, smoothed
from claims.roundless.contestants import CONTESTANTS
from claims.roundless.race import BASE_RATE, BASELINE, RaceResult
from fedmuster.core.records import FloatArray
from fedmuster.report.curves import last_before
from fedmuster.report.statistics import interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

_POINTS = 300
_MARK = "#444444"


def shares_of_time(results: Sequence[RaceResult]) -> "Figure":
    """The time to the level as a share of the baseline's, with intervals; a panel a setting."""
    import matplotlib
    from matplotlib.figure import Figure

    from fedmuster.report.figures import style

    labels = [contestant.label for contestant in CONTESTANTS]
    with matplotlib.rc_context(style.STYLE):
        _, rows = style.grid_of(len(results))
        figure = Figure(figsize=(style.WIDTH, 0.7 + 2.0 * rows), layout="constrained")
        figure.suptitle(
            f"Time to the accuracy at which random choice in rounds ends with {BASE_RATE:g}, as a "
            "share of its time\n(each at its best learning rate; mean and 95 % interval)",
            x=0.01,
            ha="left",
        )
        panels = style.panels_of(figure, len(results), sharey=True)
        for panel, result in zip(panels, results, strict=False):
            panel.set_title(result.setting.name)
            _draw_shares(panel, result, labels)
        panels[0].set_yticks(range(len(labels)), labels)
        panels[0].invert_yaxis()
        return figure


def _draw_shares(axes: "Axes", result: RaceResult, labels: Sequence[str]) -> None:
    from fedmuster.report.figures import style

    for place, label in enumerate(labels):
        shares = result.shares(label, BASELINE)
        if not np.isfinite(shares).all():
            axes.annotate("not in every seed", (0.0, place), fontsize=6.5, va="center")
            continue
        around = interval(shares)
        colour, _ = style.look(place)
        width = np.nan_to_num(around.half_width)
        axes.errorbar(
            around.mean, place, xerr=width, fmt="o", color=colour, markersize=4, capsize=2
        )
    axes.axvline(1.0, color=_MARK, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.set_xlim(0.0, max(1.05, axes.get_xlim()[1]))


def accuracy_over_time(results: Sequence[RaceResult]) -> "Figure":
    """The smoothed accuracy, mean over seeds; dotted, the baseline; a panel for each setting."""
    import matplotlib
    from matplotlib.figure import Figure

    from fedmuster.report.figures import style

    labels = [contestant.label for contestant in CONTESTANTS]
    with matplotlib.rc_context(style.STYLE):
        _, rows = style.grid_of(len(results))
        figure = Figure(figsize=(style.WIDTH, 1.2 + 2.1 * rows), layout="constrained")
        count = len(results[0].levels)
        figure.suptitle(
            f"Test accuracy over simulated time, each at its best learning rate – mean of {count} "
            "seeds",
            x=0.01,
            ha="left",
        )
        panels = style.panels_of(figure, len(results))
        for panel, result in zip(panels, results, strict=False):
            handles = draw_accuracies(panel, result, labels, baseline=BASELINE)
            panel.set_title(result.setting.name)
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        return figure


def draw_accuracies(
    axes: "Axes", milestones: Milestones, labels: Sequence[str], *, baseline: str | None = None
) -> list["Line2D"]:
    """Draw the accuracies of contestants and the mean level; what a legend needs.

    A ``baseline`` that is no contestant is drawn dotted.
    """
    from matplotlib.lines import Line2D

    from fedmuster.report.figures import style

    looks = {label: style.look(place) for place, label in enumerate(labels)}
    if baseline is not None:
        looks[baseline] = (_MARK, (0, (1, 1)))
    for label, (colour, dashes) in looks.items():
        axes.plot(*_mean_curve(milestones, label), color=colour, linestyle=dashes)
    axes.axhline(float(milestones.levels.mean()), color=_MARK, linewidth=0.6, zorder=1)
    axes.set(xlabel="simulated time (s)", xlim=(0, milestones.horizon_seconds))
    axes.yaxis.set_major_formatter(style.PERCENT)
    return [
        Line2D([], [], color=colour, linestyle=dashes, label=label)
        for label, (colour, dashes) in looks.items()
    ]


def _mean_curve(milestones: Milestones, label: str) -> tuple[FloatArray, FloatArray]:
    seconds = milestones.horizon_seconds
    times = np.linspace(0.0, seconds, _POINTS)
    curves = [last_before(times, *smoothed(run, seconds=seconds)) for run in milestones.runs[label]]
    return times, np.mean(curves, axis=0)

"""What clients have spent of their privacy, over time and rounds, and what for."""

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedmuster.report.curves import Axis, evaluations
from fedmuster.report.figures.learning import draw_evaluations
from fedmuster.report.figures.style import (
    PLAIN,
    STYLE,
    add_legend,
    draw_curves,
    mark_height,
    new_figure,
    x_title,
)
from fedmuster.report.promise import cap_in_sight, cap_text, spent_title
from fedmuster.report.runs import Comparison


def leakage(comparison: Comparison) -> Figure:
    """What the client that spent most has spent, and the mean of all, with the cap as a line."""
    with matplotlib.rc_context(STYLE):
        figure = new_figure(comparison, "Privacy spent", height=5.6)
        panels = figure.subplots(2, 2, sharex="col", sharey="row")
        for row, column in zip(panels, ("spent_max", "spent_mean"), strict=True):
            for axes, axis in zip(row, _AXES, strict=True):
                labels = draw_leakage(axes, comparison, column, axis)
        for axes in panels[0]:
            axes.set_xlabel("")
        for axes in panels[:, 1]:
            axes.set_ylabel("")
        panels[0, 0].set_title(f"against {comparison.clock}")
        panels[0, 1].set_title("against rounds")
        add_legend(figure, comparison, labels)
        return figure


def privacy_utility(comparison: Comparison) -> Figure:
    """Accuracy against the privacy that the client that spent most has spent for it."""
    with matplotlib.rc_context(STYLE):
        what = f"{comparison.evaluated_on}accuracy against privacy spent".capitalize()
        figure = new_figure(comparison, what, height=3.8)
        axes = figure.subplots()
        labels = draw_evaluations(axes, comparison, "accuracy", "spent_max")
        assert comparison.privacy is not None
        axes.set_xlabel(spent_title(comparison.privacy, "spent_max"))
        axes.set_xlim(0, 1.02 * axes.get_xlim()[1])
        add_legend(figure, comparison, labels)
        return figure


def draw_leakage(axes: Axes, comparison: Comparison, column: str, axis: Axis) -> list[str]:
    """Draw what was spent, and the cap; the labels drawn, the highest end first."""
    privacy = comparison.privacy
    assert privacy is not None
    curves = evaluations(comparison, column, axis)
    draw_curves(axes, comparison, curves, steps=axis == "seconds")
    highest = max(float(curve.mean[-1]) for curve in curves)
    if cap_in_sight(privacy, highest):
        mark_height(axes, privacy.cap, cap_text(privacy))
        axes.set_ylim(0, 1.1 * privacy.cap)
    else:
        axes.set_ylim(0, 1.15 * highest)
        axes.annotate(
            f"{cap_text(privacy)} ↑",
            (0.0, 1.0),
            (3, -3),
            xycoords="axes fraction",
            textcoords="offset points",
            va="top",
            color="#444444",
            fontsize=6.5,
        )
    axes.set_xlabel(x_title(comparison, axis))
    axes.set_ylabel(spent_title(privacy, column))
    axes.set_xlim(0, max(curve.x[-1] for curve in curves))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=axis == "round"))
    axes.xaxis.set_major_formatter(PLAIN)
    axes.yaxis.set_major_formatter(PLAIN)
    return [curve.label for curve in sorted(curves, key=lambda curve: -curve.mean[-1])]


_AXES: tuple[Axis, Axis] = ("seconds", "round")

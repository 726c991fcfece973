"""How well the model does, over time and over rounds."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedmuster.report.curves import Axis, Curve, evaluations, spans_decades
from fedmuster.report.figures.style import (
    PLAIN,
    STYLE,
    add_legend,
    draw_curves,
    mark_height,
    new_figure,
    x_title,
)
from fedmuster.report.runs import Comparison
from fedmuster.report.target import Target

_PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.10g} %")


def accuracy(comparison: Comparison, target: Target | None = None) -> Figure:
    """Accuracy against time and against rounds, with the target as a line."""
    return _both_axes(comparison, "accuracy", target)


def loss(comparison: Comparison, target: Target | None = None) -> Figure:
    """Loss against time and against rounds, with the target as a line."""
    return _both_axes(comparison, "loss", target)


def draw_evaluations(
    axes: Axes, comparison: Comparison, column: str, axis: Axis, target: Target | None = None
) -> list[str]:
    """Draw accuracy or loss; the labels drawn, the highest end first."""
    curves = evaluations(comparison, column, axis)
    # Seeds are evaluated at different times: their mean changes in steps. Rounds they share.
    draw_curves(axes, comparison, curves, steps=axis != "round")
    if target is not None and target.column == column:
        mark_height(axes, target.value, f"target {target.text}")
    axes.set_xlabel(x_title(comparison, axis))
    axes.set_ylabel(f"{comparison.evaluated_on}{column}")
    axes.set_xlim(0, max((curve.x[-1] for curve in curves), default=1.0))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=axis == "round"))
    axes.xaxis.set_major_formatter(PLAIN)
    _set_heights(axes, curves, column)
    return [curve.label for curve in sorted(curves, key=lambda curve: -curve.mean[-1])]


def _both_axes(comparison: Comparison, column: str, target: Target | None) -> Figure:
    with matplotlib.rc_context(STYLE):
        what = f"{comparison.evaluated_on}{column}".capitalize()
        figure = new_figure(comparison, what, height=3.6)
        by_time, by_round = figure.subplots(1, 2, sharey=True)
        labels = draw_evaluations(by_time, comparison, column, "seconds", target)
        draw_evaluations(by_round, comparison, column, "round", target)
        by_time.set_title(f"against {comparison.clock}")
        by_round.set_title("against rounds")
        by_round.set_ylabel("")
        add_legend(figure, comparison, labels)
        return figure


def _set_heights(axes: Axes, curves: list[Curve], column: str) -> None:
    """Of the means, with a margin: the band of two or three seeds can be wider than all else."""
    means = np.concatenate([curve.mean for curve in curves]) if curves else np.array([0.0, 1.0])
    means = means[np.isfinite(means)]
    if column == "loss" and spans_decades(curves):
        axes.set_yscale("log")
        axes.set_ylim(means.min() / 1.3, means.max() * 1.3)
        axes.yaxis.set_major_formatter(PLAIN)
        return
    low, high = float(means.min()), float(means.max())
    margin = 0.08 * max(high - low, 1e-3)
    top = min(high + margin, 1.0 + margin / 4) if column == "accuracy" else high + margin
    axes.set_ylim(max(low - margin, -margin / 4), top)
    axes.yaxis.set_major_formatter(_PERCENT if column == "accuracy" else PLAIN)

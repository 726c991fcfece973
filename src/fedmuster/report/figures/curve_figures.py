"""What adds up over the rounds: regret and time."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedmuster.report.curves import Axis, Curve, evaluations, running_totals, spans_decades
from fedmuster.report.edge_metrics import regret_title
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
from fedmuster.report.target import Target


def regret(comparison: Comparison) -> Figure:
    """Cumulative regret over rounds; on a logarithmic axis too, where log t is a straight line."""
    with matplotlib.rc_context(STYLE):
        figure = new_figure(comparison, regret_title(comparison), height=3.6)
        linear, logarithmic = figure.subplots(1, 2, sharey=True)
        labels = draw_totals(linear, comparison, "regret", "cumulative regret")
        draw_totals(logarithmic, comparison, "regret", "")
        linear.set_title("linear axis")
        logarithmic.set_title("logarithmic axis: log t is a straight line")
        logarithmic.set_xscale("log")
        logarithmic.xaxis.set_major_formatter(PLAIN)
        add_legend(figure, comparison, labels)
        return figure


def simulated_time(comparison: Comparison) -> Figure:
    """Cumulative seconds over rounds: simulated, or of a real federation."""
    with matplotlib.rc_context(STYLE):
        figure = new_figure(comparison, comparison.clock.capitalize(), height=3.8)
        title = x_title(comparison, "seconds")
        labels = draw_totals(figure.subplots(), comparison, "seconds", title)
        add_legend(figure, comparison, labels)
        return figure


def draw_totals(axes: Axes, comparison: Comparison, column: str, title: str) -> list[str]:
    """Draw the running totals of a column; the labels drawn, the highest total first."""
    curves = running_totals(comparison, column)
    draw_curves(axes, comparison, curves)
    if not curves:
        axes.text(0.5, 0.5, "not measured (regret = false)", ha="center", transform=axes.transAxes)
    axes.set_xlabel("round")
    axes.set_ylabel(title)
    axes.set_xlim(1, max(2.0, *(curve.x[-1] for curve in curves), comparison.rounds))
    axes.set_ylim(bottom=-0.015 * max(axes.get_ylim()[1], 1e-9))  # a total of 0 is a visible line
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(PLAIN)
    axes.yaxis.set_major_formatter(PLAIN)
    return [curve.label for curve in sorted(curves, key=lambda curve: -curve.mean[-1])]


# How well the model does, over time and over rounds.

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


# What clients have spent of their privacy, over time and rounds, and what for.


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

"""What adds up over the rounds: regret and time."""

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedmuster.report.curves import running_totals
from fedmuster.report.figures.style import (
    PLAIN,
    STYLE,
    add_legend,
    draw_curves,
    new_figure,
    x_title,
)
from fedmuster.report.network_metrics import regret_title
from fedmuster.report.runs import Comparison


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

"""What edge servers got for their budgets: utility, participants, and what they spent."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedmuster.report.budget_use import HIGH, LOW, BudgetUse, budget_check, spread_of_shares
from fedmuster.report.curves import moving_means, window
from fedmuster.report.figures.selection import grid_of
from fedmuster.report.figures.style import (
    PLAIN,
    STYLE,
    add_legend,
    draw_curves,
    mark_height,
    new_figure,
    shortened,
)
from fedmuster.report.figures.totals import draw_totals
from fedmuster.report.network_metrics import utility_words
from fedmuster.report.runs import Comparison
from fedmuster.report.tables import count

_PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.10g} %")
_TITLE_CHARACTERS = {1: 60, 2: 32, 3: 20}
_BOX, _MEAN = "#9CC3DE", "#D55E00"
_MOST_OF_IT = 0.6
_MOVING_TITLES = {
    "participants": "participants a round",
    "budget_share": "share of the budgets spent",
    "num_completed": "answers a round",
}


def utility(comparison: Comparison) -> Figure:
    """Cumulative realised utility over rounds."""
    with matplotlib.rc_context(STYLE):
        caption = utility_words(comparison)
        figure = new_figure(comparison, "Cumulative utility", height=3.8, caption=caption)
        labels = draw_totals(figure.subplots(), comparison, "utility", "cumulative utility")
        add_legend(figure, comparison, labels)
        return figure


def participants(comparison: Comparison) -> Figure:
    """How many of the chosen were in time, over rounds."""
    with matplotlib.rc_context(STYLE):
        what = "Participants: chosen and in time"
        figure = new_figure(comparison, what, height=3.8, band=False)
        labels = draw_moving(figure.subplots(), comparison, "participants")
        add_legend(figure, comparison, labels)
        return figure


def budget_use(comparison: Comparison) -> Figure:
    """What each edge spent of its budget: the mean, and how it spreads over rounds and seeds."""
    columns, rows = grid_of(len(comparison.labels))
    uses = {label: spread_of_shares(runs) for label, runs in comparison.runs.items()}
    bottom, top = _heights(list(uses.values()))
    with matplotlib.rc_context(STYLE):
        figure = new_figure(
            comparison,
            "What edge servers spent of their budgets",
            height=1.4 + (2.4 if rows == 1 else 1.75 * rows),
            band=False,
            caption=budget_check(comparison) or "",
        )
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        panels: list[Axes] = list(grid.flat)
        for panel in panels[len(uses) :]:
            panel.set_visible(False)
        for place, ((label, use), panel) in enumerate(zip(uses.items(), panels, strict=False)):
            _draw_use(panel, use)
            panel.set_ylim(bottom, top)
            panel.set_title(shortened(label, _TITLE_CHARACTERS[columns]))
            if place + columns >= len(uses):  # there is no policy below
                panel.set_xlabel("edge server")
                panel.tick_params(labelbottom=True)
        figure.supylabel("share of its budget", fontsize=8)
        handles = [
            Line2D([], [], color=_MEAN, marker="o", linestyle="none", markersize=4, label="mean"),
            Patch(facecolor=_BOX, label="half of the rounds of all seeds, with the median"),
            Line2D([], [], color="#444444", label=f"from {LOW} % to {HIGH} % of them"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        return figure


def draw_moving(axes: Axes, comparison: Comparison, column: str) -> list[str]:
    """Draw the moving means of a column; the labels drawn, the highest mean of all first."""
    curves, width = moving_means(comparison, column), window(comparison)
    draw_curves(axes, comparison, curves)
    axes.set_xlabel("round")
    axes.set_ylabel(
        _MOVING_TITLES[column] + (f"\n(mean of {count(width, 'round')})" if width > 1 else "")
    )
    means = np.concatenate([[0.0, 1.0], *(curve.mean for curve in curves)])[2 * bool(curves) :]
    margin = 0.08 * max(float(np.ptp(means)), 1e-3)
    axes.set_ylim(max(float(means.min()) - margin, -margin / 4), float(means.max()) + margin)
    axes.set_xlim(1, max([2.0, *(curve.x[-1] for curve in curves)]))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(PLAIN)
    axes.yaxis.set_major_formatter(_PERCENT if column == "budget_share" else PLAIN)
    return [curve.label for curve in sorted(curves, key=lambda curve: -float(curve.mean.mean()))]


def _heights(uses: Sequence[BudgetUse]) -> tuple[float, float]:
    """From 0 to above the budget, or from nearer to it if everybody spends most of it."""
    least = min(float(np.nanmin(use.low)) for use in uses)
    most = max(1.0, *(float(np.nanmax(use.high)) for use in uses))
    bottom = 0.0 if least < _MOST_OF_IT else 1.0 - 1.25 * max(1.0 - least, 0.01)
    return bottom, most + 0.12 * (most - bottom)


def _draw_use(axes: Axes, use: BudgetUse) -> None:
    edges = np.arange(len(use.mean))
    axes.vlines(edges, use.low, use.high, color="#444444", linewidth=0.9)
    axes.bar(
        edges, use.upper_quartile - use.lower_quartile, 0.6, bottom=use.lower_quartile, color=_BOX
    )
    axes.hlines(use.median, edges - 0.3, edges + 0.3, color="#0072B2", linewidth=1.1)
    axes.plot(edges, use.mean, "o", color=_MEAN, markersize=3.5 if len(edges) <= 20 else 2)
    mark_height(axes, 1.0, "the budget")
    axes.set_xlim(-0.7, len(edges) - 0.3)
    axes.grid(visible=False, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_formatter(_PERCENT)

"""Curves over rounds and time: learning, privacy, regret, time, utility; and the overview."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmuster.report.curves import (
    TIME_AND_ROUNDS,
    Axis,
    Chart,
    against,
    learning,
    moving,
    spending,
    total,
)
from fedmuster.report.edge_views import utility_words
from fedmuster.report.figures.choice_figures import draw_bars, draw_heat_maps
from fedmuster.report.figures.style import PLAIN, add_legend, draw_chart, new_figure, styled
from fedmuster.report.job_views import age_chart, busy_chart
from fedmuster.report.runs import Comparison
from fedmuster.report.target import Target


@styled
def regret(comparison: Comparison) -> Figure:
    """Cumulative regret over rounds; on a logarithmic axis too, where log t is a straight line."""
    chart = total(comparison, "regret")
    figure = new_figure(comparison, chart.title, height=3.6)
    linear, logarithmic = figure.subplots(1, 2, sharey=True)
    labels = draw_chart(linear, comparison, chart)
    draw_chart(logarithmic, comparison, chart)
    linear.set_title("linear axis")
    logarithmic.set(title="logarithmic axis: log t is a straight line", ylabel="", xscale="log")
    logarithmic.xaxis.set_major_formatter(PLAIN)
    add_legend(figure, comparison, labels)
    return figure


def simulated_time(comparison: Comparison) -> Figure:
    """Cumulative seconds over rounds: simulated, or of a real federation."""
    return _alone(comparison, comparison.clock.capitalize(), total(comparison, "seconds"))


def utility(comparison: Comparison) -> Figure:
    """Cumulative realised utility over rounds."""
    chart = total(comparison, "utility")
    return _alone(comparison, chart.title, chart, caption=utility_words(comparison))


def participants(comparison: Comparison) -> Figure:
    """How many of the chosen were in time, over rounds."""
    chart = moving(comparison, "participants")
    return _alone(comparison, _PANEL_TITLES["participants"], chart, band=False)


def privacy_utility(comparison: Comparison) -> Figure:
    """Accuracy against the privacy that the client that spent most has spent for it."""
    chart = learning(comparison, "accuracy", "spent_max")
    return _alone(comparison, chart.title, chart)


def accuracy(comparison: Comparison, target: Target | None = None) -> Figure:
    """Accuracy against time and against rounds, with the target as a line."""
    return _both_axes(comparison, "accuracy", target)


def loss(comparison: Comparison, target: Target | None = None) -> Figure:
    """Loss against time and against rounds, with the target as a line."""
    return _both_axes(comparison, "loss", target)


@styled
def leakage(comparison: Comparison) -> Figure:
    """What the client that spent most has spent, and the mean of all, with the cap as a line."""
    figure = new_figure(comparison, "Privacy spent", height=5.6)
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    for row, column in zip(panels, ("spent_max", "spent_mean"), strict=True):
        for axes, axis in zip(row, TIME_AND_ROUNDS, strict=True):
            labels = draw_chart(axes, comparison, spending(comparison, column, axis))
    for axes, axis in zip(panels[0], TIME_AND_ROUNDS, strict=True):
        axes.set(title=against(comparison, axis), xlabel="")
    for axes in panels[:, 1]:
        axes.set_ylabel("")
    add_legend(figure, comparison, labels)
    return figure


def draw_evaluations(
    axes: Axes, comparison: Comparison, column: str, axis: Axis, target: Target | None = None
) -> list[str]:
    """Draw accuracy or loss; the labels drawn, the highest end first."""
    return draw_chart(axes, comparison, learning(comparison, column, axis, target))


@styled
def _alone(comparison: Comparison, title: str, chart: Chart, **options: Any) -> Figure:
    figure = new_figure(comparison, title, height=3.8, **options)
    add_legend(figure, comparison, draw_chart(figure.subplots(), comparison, chart))
    return figure


@styled
def _both_axes(comparison: Comparison, column: str, target: Target | None) -> Figure:
    figure = new_figure(comparison, f"{comparison.evaluated_on}{column}".capitalize(), height=3.6)
    by_time, by_round = figure.subplots(1, 2, sharey=True)
    labels = draw_evaluations(by_time, comparison, column, "seconds", target)
    draw_evaluations(by_round, comparison, column, "round", target)
    by_time.set_title(against(comparison, "seconds"))
    by_round.set(title=against(comparison, "round"), ylabel="")
    add_legend(figure, comparison, labels)
    return figure


# The whole comparison in one picture.

_PANEL_TITLES = {
    "regret": "Cumulative regret",
    "participants": "Participants: chosen and in time",
    "budget_share": "Budgets spent",
}


@styled
def overview(comparison: Comparison, target: Target | None = None) -> Figure:
    """Accuracy (or loss) against time, or time alone; privacy or regret; groups; cohorts.

    With edge servers: what was learned, utility, regret, participants, budgets; the first four.
    """
    labels = comparison.labels
    policies = labels[0] if len(labels) == 1 else f"{len(labels)} policies"
    figure = new_figure(comparison, f"{policies}, {comparison.who_is_chosen}", height=7.4)
    if comparison.network is not None:
        for axes, panel in zip(figure.subplots(2, 2).flat, _edge_panels(comparison), strict=True):
            _draw_panel(axes, panel, comparison, target)
    else:
        parts: Any = figure.subfigures(2, 2, height_ratios=(1.0, 1.15), wspace=0.02, hspace=0.03)
        for part, panel in zip(parts[0], _top_panels(comparison), strict=True):
            _draw_panel(part.subplots(), panel, comparison, target)
        bars, maps = parts[1]
        axes = bars.subplots()
        axes.set_title("Who is chosen: by speed group")
        draw_bars(axes, comparison)
        maps.suptitle("Who is chosen when", x=0.02, ha="left", fontsize=8.5)
        draw_heat_maps(maps, comparison)
    add_legend(figure, comparison, labels, below=True)
    return figure


def _draw_panel(axes: Axes, panel: str, comparison: Comparison, target: Target | None) -> None:
    title = _PANEL_TITLES.get(panel)
    if panel in ("accuracy", "loss"):
        chart = learning(comparison, panel, "seconds", target)
    elif panel == "leakage":
        chart = spending(comparison, "spent_max", "seconds")
        title = f"Privacy spent {against(comparison, 'seconds')}"
    elif panel in ("participants", "budget_share", "num_completed"):
        chart = moving(comparison, panel)
        title = f"Answers {comparison.a_step}" if panel == "num_completed" else title
    elif panel in ("age", "busy"):
        chart = age_chart(comparison) if panel == "age" else busy_chart(comparison)
    elif panel == "work":
        learned = "accuracy" if comparison.classifies else "loss"
        chart = learning(comparison, learned, "updates", target)
    else:
        chart = total(comparison, panel)
        title = comparison.clock.capitalize() if panel == "seconds" else title
    axes.set_title(title or chart.title)
    draw_chart(axes, comparison, chart)


def _top_panels(comparison: Comparison) -> tuple[str, str]:
    learned = "accuracy" if comparison.classifies else "loss"
    judged = comparison.any_judged
    if comparison.privacy is not None:
        return (learned if comparison.evaluated else "regret" if judged else "seconds"), "leakage"
    if comparison.round_less:
        return (learned, "work") if comparison.evaluated else ("seconds", "busy")
    if not comparison.evaluated:
        # In a real federation nobody knows what would have been best.
        return ("seconds", "num_completed") if comparison.real else ("regret", "seconds")
    # Totals of runs with different numbers of rounds would compare nothing.
    if judged and not comparison.uneven:
        return learned, "regret"
    both = comparison.classifies and comparison.trained
    return ("accuracy", "loss") if both else (learned, "seconds")


def _edge_panels(comparison: Comparison) -> list[str]:
    """The four that say most."""
    network = comparison.network
    wanted = {
        "accuracy" if comparison.classifies else "loss": comparison.evaluated,
        "leakage": comparison.privacy is not None,
        "utility": bool(comparison.in_rounds),
        "regret": comparison.any_judged and not comparison.uneven,
        "participants": True,
        "budget_share": network is not None and network.limited,
        "seconds": True,
        "loss": comparison.trained,
        "busy": bool(comparison.round_less),
        "age": bool(comparison.round_less),
    }
    panels = [panel for panel, there in wanted.items() if there]
    return [*panels, "num_completed" if comparison.real else "regret"][:4]

"""Without rounds: ages of answers, who trains when, work used and lost, what accuracy costs."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedmuster.core.arrays import FloatArray
from fedmuster.core.words import percent
from fedmuster.report.curves import Axis, against
from fedmuster.report.figures.curve_figures import draw_evaluations
from fedmuster.report.figures.style import (
    PERCENT,
    add_legend,
    draw_chart,
    look,
    new_figure,
    number_axis,
    shortened,
    styled,
)
from fedmuster.report.job_views import (
    FATES,
    SlotChart,
    age_chart,
    age_shares,
    busy_chart,
    slot_charts,
    work_done,
)
from fedmuster.report.runs import Comparison
from fedmuster.report.target import Target

_FATE_COLOURS = ("#56A0D3", "#E69F00", "#C23B22", "#C8C8C8")
_MOST_SLOT_CHARTS = 4
_LANE_INCHES = 0.13
_MOST_TICKS = 5
_MOST_CHARACTERS = 32
"""Of the names of ages, side by side."""
_NAME_SHARE = 0.018
"""Of the width of a chart: a bar that is narrower does not name its client."""
_LABEL_CHARACTERS = 60
_TICK_CHARACTERS = 30


@styled
def staleness(comparison: Comparison) -> Figure:
    """How old answers are when the server uses them: shares, and the mean over time."""
    figure = new_figure(comparison, "Ages of the answers used", height=3.6, band=False)
    ages, over_time = figure.subplots(1, 2)
    _draw_ages(ages, comparison)
    chart = age_chart(comparison)
    labels = draw_chart(over_time, comparison, chart)
    over_time.set_title("mean over time")
    add_legend(figure, comparison, labels)
    return figure


def _draw_ages(axes: Axes, comparison: Comparison) -> None:
    found = age_shares(comparison)
    width = 0.84 / max(len(found.shares), 1)
    places = np.arange(len(found.names))
    for number, (label, shares) in enumerate(found.shares.items()):
        colour, _ = look(comparison.labels.index(label))
        offset = (number - (len(found.shares) - 1) / 2) * width
        axes.bar(places + offset, shares, width, color=colour, label=label)
    axes.set_title("all of the run")
    crowded = sum(map(len, found.names)) > _MOST_CHARACTERS
    axes.set_xticks(places, found.names, rotation=45 if crowded else 0)
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("age: aggregations since the client was asked")
    axes.set_ylabel("share of the answers used")
    axes.yaxis.set_major_formatter(PERCENT)


@styled
def slots(comparison: Comparison) -> Figure:
    """Who trains when: a row for each slot, a bar for each job; below, the share of busy slots."""
    found = slot_charts(comparison)
    shown = dict(list(found.items())[:_MOST_SLOT_CHARTS])
    heights = [0.55 + _LANE_INCHES * max(chart.slots, 5) for chart in shown.values()]
    left_out = f": the first {len(shown)} of {len(found)}" if len(shown) < len(found) else ""
    figure = new_figure(
        comparison,
        f"Who trains when{left_out}",
        height=sum(heights) + 2.6,
        first_seed=True,
        caption="A row is a slot, a bar a job with the number of its client, a tick above an "
        "aggregation. Below: all of the run, all seeds.",
    )
    ratios = [*heights, 1.9]
    panels = np.atleast_1d(figure.subplots(len(shown) + 1, 1, height_ratios=ratios))
    for (label, chart), axes in zip(shown.items(), panels, strict=False):
        _draw_slots(axes, chart)
        hidden = chart.all_slots - chart.slots
        more = f" (the first {chart.slots} of {chart.all_slots:,} slots)" if hidden else ""
        axes.set_title(f"{shortened(label, _LABEL_CHARACTERS)}{more}")
    panels[len(shown) - 1].set_xlabel(f"{comparison.clock} (s)")
    busy = busy_chart(comparison)
    draw_chart(panels[-1], comparison, busy)
    panels[-1].set_title(busy.title)
    handles = [
        Patch(facecolor=colour, label=words)
        for colour, words in zip(_FATE_COLOURS, FATES.values(), strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    if len(found) > 1:
        panels[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _draw_slots(axes: Axes, chart: SlotChart) -> None:
    begin, end = chart.begin_seconds, chart.end_seconds
    left = np.maximum(chart.asked_at_seconds, begin)
    right = np.minimum(chart.ended_at_seconds, end)
    colours = [_FATE_COLOURS[fate] for fate in chart.fate]
    axes.barh(
        chart.slot + 1,
        right - left,
        0.84,
        left=left,
        color=colours,
        edgecolor="white",
        linewidth=0.5,
    )
    for slot, client, first, last in zip(
        chart.slot.tolist(), chart.client.tolist(), left.tolist(), right.tolist(), strict=True
    ):
        if last - first > _NAME_SHARE * len(str(client)) * (end - begin) / 2:
            middle = (first + last) / 2
            axes.text(middle, slot + 1, f"{client}", ha="center", va="center", fontsize=5.5)
    top = np.full(len(chart.aggregated_at_seconds), chart.slots + 0.8)
    axes.plot(chart.aggregated_at_seconds, top, "|", color="#222222", markersize=5, clip_on=False)
    axes.set_xlim(begin, end)
    axes.set_ylim(0.4, chart.slots + 0.9)
    axes.grid(visible=False, axis="y")
    axes.set_ylabel("slot")
    axes.set_yticks(range(1, chart.slots + 1, -(-chart.slots // _MOST_TICKS)))
    number_axis(axes.xaxis, 6, integer=False)


@styled
def work(comparison: Comparison) -> Figure:
    """Client updates and client-seconds, by what became of them."""
    done = work_done(comparison)
    height = 1.4 + 0.34 * len(comparison.labels)
    figure = new_figure(comparison, "Work of clients", height=height, band=False)
    updates, seconds = figure.subplots(1, 2, sharey=True)
    _draw_work(updates, done.updates, comparison)
    _draw_work(seconds, done.seconds, comparison)
    updates.set(title="client updates", xlabel="client updates started")
    seconds.set(title="time", xlabel="client-seconds of work")
    handles = [
        Patch(facecolor=colour, label=words)
        for colour, words in zip(_FATE_COLOURS, FATES.values(), strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _draw_work(axes: Axes, amounts: FloatArray, comparison: Comparison) -> None:
    places = np.arange(len(comparison.labels))
    known = np.nan_to_num(amounts)
    left = np.cumsum(known, axis=1) - known
    for fate, colour in enumerate(_FATE_COLOURS):
        axes.barh(places, known[:, fate], 0.7, left=left[:, fate], color=colour)
    most = float(known.sum(axis=1).max()) or 1.0
    for place, own in zip(places.tolist(), amounts, strict=True):
        told = "not known in rounds"
        if not np.isnan(own).any():
            told = f"{percent(float(own[1] + own[2]) / max(float(own.sum()), 1e-9))} lost"
        end = float(known[place].sum())
        axes.annotate(
            told, (end, place), (3, 0), textcoords="offset points", va="center", fontsize=6.5
        )
    axes.set_xlim(0, 1.3 * most)
    axes.set_ylim(len(places) - 0.4, -0.6)
    axes.set_yticks(places, [shortened(label, _TICK_CHARACTERS) for label in comparison.labels])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    number_axis(axes.xaxis, 4, integer=False)


@styled
def accuracy_work(comparison: Comparison, target: Target | None = None) -> Figure:
    """Accuracy (or loss) against time and against client updates, with the target as a line."""
    column = "accuracy" if comparison.classifies else "loss"
    title = f"{comparison.evaluated_on}{column}".capitalize()
    figure = new_figure(comparison, f"{title}, and what it costs", height=3.6)
    axes_of: tuple[Axis, Axis] = ("seconds", "updates")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, axis in zip(panels, axes_of, strict=True):
        labels = draw_evaluations(axes, comparison, column, axis, target)
        axes.set_title(against(comparison, axis))
    panels[1].set_ylabel("")
    add_legend(figure, comparison, labels)
    return figure

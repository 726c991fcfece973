"""What policies think of clients: scores of a few clients, validity and utility, candidates."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedmuster.core.arrays import FloatArray
from fedmuster.report.figures.style import (
    PLAIN,
    grid_of,
    look,
    new_figure,
    number_axis,
    panels_of,
    shortened,
    stacks_of,
    styled,
)
from fedmuster.report.runs import Comparison
from fedmuster.report.score_series import (
    CANDIDACY,
    Plane,
    ScoreLine,
    Timeline,
    planes,
    scored,
    timelines,
)

_TITLE_CHARACTERS = {1: 80, 2: 44, 3: 28}
"""By the number of panels side by side."""
_NAME_POINTS = 7.5
"""From one client's name to the next."""


@styled
def score_convergence(comparison: Comparison) -> Figure:
    """Scores of at most ten clients over rounds, for each policy that publishes them."""
    lines = scored(comparison)
    columns, rows = grid_of(len(lines))
    height = 3.4 if rows == 1 else 2.4 * rows
    figure = new_figure(
        comparison, "What policies think of clients", height=0.6 + height, first_seed=True
    )
    panels = panels_of(figure, len(lines))
    for (label, own), panel in zip(lines.items(), panels, strict=False):
        _draw_lines(panel, own, height=0.7 * height / rows)
        panel.set_title(shortened(label, _TITLE_CHARACTERS[columns]))
    figure.supxlabel(comparison.step, fontsize=8)
    figure.supylabel("score", fontsize=8)
    return figure


def _draw_lines(axes: Axes, lines: Sequence[ScoreLine], *, height: float) -> None:
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, len(lines)))
    for line, colour in zip(lines, colours, strict=True):
        alone = len(line.rounds) == 1
        axes.plot(line.rounds, line.values, color=colour, linewidth=0.9, marker="." * alone)
    axes.set_xlim(1, max(2.0, *(line.rounds[-1] for line in lines)))
    number_axis(axes.xaxis, 5)
    axes.yaxis.set_major_formatter(PLAIN)
    low, high = axes.get_ylim()
    ends = np.array([(line.values[-1] - low) / (high - low) for line in lines])
    gap = _NAME_POINTS / (72 * height)
    places = spread(ends[::-1], gap)[::-1]
    for line, colour, end, place in zip(lines, colours, ends, places, strict=True):
        axes.plot(
            [1.01, 1.04, 1.08],
            [end, place, place],
            color=colour,
            linewidth=0.5,
            transform=axes.transAxes,
            clip_on=False,
        )
        _name(axes, place, f"{line.client:,}", colour)
    _name(axes, places.max() + 1.2 * gap, "client", "#444444")


def _name(axes: Axes, height: float, text: str, colour: Any) -> None:
    """Beside the axes."""
    axes.text(1.09, height, text, color=colour, fontsize=6.5, va="center", transform=axes.transAxes)


def spread(places: FloatArray, gap: float) -> FloatArray:
    """Increasing places moved apart so that names can stand there, within [0, 1] if they fit.

    Example:
        >>> spread(np.array([0.4, 0.4, 0.4, 0.9]), 0.1)
        array([0.3, 0.4, 0.5, 0.9])
    """
    steps = gap * np.arange(len(places))
    level = places - steps  # where these increase, places are far enough apart
    upwards = np.maximum.accumulate(level)
    downwards = np.minimum.accumulate(level[::-1])[::-1]
    room = max(1.0 - gap * (len(places) - 1), 0.0)
    return np.asarray(np.clip((upwards + downwards) / 2, 0.0, room) + steps)


# The candidates by validity and utility, and when and why the other clients left.

_PLANE_TITLE_CHARACTERS = {1: 40, 2: 26, 3: 16}
_FRONT = "#D55E00"
_MARGIN = 0.03


@styled
def validity_utility(comparison: Comparison) -> Figure:
    """The plane of validity and utility: how long clients were candidates, how often chosen."""
    found = planes(comparison)
    _, rows = grid_of(len(found))
    alone = len(found) == 1
    figure = new_figure(
        comparison,
        "Validity and utility of watched clients",
        height=4.2 if alone else 0.6 + 2 * (0.4 + 2.6 * rows),
        first_seed=True,
    )
    parts: Any = figure.subfigures(1, 2) if alone else figure.subfigures(2, 1)
    most = max(own.most_rounds for own in found.values())
    _draw_planes(parts[0], found, "candidate_rounds", f"rounds as a candidate, of {most:,}", 1.0)
    _draw_planes(parts[1], found, "chosen", "times chosen", gamma=0.5)
    front = Line2D([], [], color=_FRONT)
    known = all(own.true for own in found.values())
    front.set_label("Pareto front" + (": of candidates, if the truth is unknown" * (not known)))
    figure.legend(handles=[front], loc="outside lower center")
    return figure


@styled
def elimination(comparison: Comparison) -> Figure:
    """How many of the watched clients are candidates in each round, and why the others are not."""
    lines = timelines(comparison)
    columns, rows = grid_of(len(lines))
    told = all(line.validity is not None for line in lines.values())  # all had the same world
    parts = (3.0, 1.2) if told else (3.0,)
    figure = new_figure(
        comparison,
        "Candidates over time",
        height=0.8 + 1.15 * sum(parts) * (1.0 if rows == 1 else 0.65 * rows),
        first_seed=True,
    )
    grid = figure.subplots(rows * len(parts), columns, squeeze=False, height_ratios=parts * rows)
    stacks = stacks_of(grid, len(lines), len(parts))
    for (label, line), panels in zip(lines.items(), stacks, strict=False):
        panels[0].set_title(shortened(label, _PLANE_TITLE_CHARACTERS[columns]))
        _draw_timeline(list(panels), line)
    handles = [Patch(color=look(number)[0], label=words) for _, words, number in CANDIDACY]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _draw_planes(
    figure: FigureBase, found: Mapping[str, Plane], values: str, what: str, gamma: float
) -> None:
    """A panel for each policy, all with the same colours; ``gamma`` < 1 tells small ones apart."""
    columns, _ = grid_of(len(found))
    panels = panels_of(figure, len(found))
    shown = {label: own.shown(getattr(own, values)) for label, own in found.items()}
    most = max(float(np.nanmax(one)) for one in shown.values())
    norm = PowerNorm(gamma, 0.0, most or 1.0)
    averaged = False
    for (label, own), panel in zip(found.items(), panels, strict=False):
        if own.bins is None:
            size = float(np.clip(6000 / (len(own.clients) + 1), 8, 40))
            drawn: Any = panel.scatter(
                own.validity, own.utility, c=shown[label], s=size, norm=norm, linewidth=0
            )
        else:
            averaged = True
            edges = own.bins.validity_edges, own.bins.utility_edges
            drawn = panel.pcolormesh(*edges, shown[label], norm=norm, rasterized=True)
        panel.use_sticky_edges = False  # cells would fill the axes, and the front be their frame
        panel.margins(_MARGIN)
        _draw_front(panel, own.front)
        name = shortened(label, _PLANE_TITLE_CHARACTERS[columns])
        panel.set_title(f"{name}: {len(own.clients):,} clients")
        panel.set_xlabel(own.validity_title)
        panel.set_ylabel(own.utility_title)
        panel.grid(visible=False)
        panel.xaxis.set_major_formatter(PLAIN)
        panel.yaxis.set_major_formatter(PLAIN)
    bar = figure.colorbar(drawn, ax=panels, aspect=30, pad=0.01)
    bar.ax.minorticks_off()
    number_axis(bar.ax.yaxis, 6, integer=not averaged)
    bar.set_label(f"{what}: mean of a cell" if averaged else what, fontsize=7.5)


def _draw_front(axes: Axes, front: FloatArray) -> None:
    """The edge of what is dominated, from one end of the axes to the other."""
    if len(front) == 0:
        return
    left, bottom = axes.get_xlim()[0], axes.get_ylim()[0]
    validity = np.concatenate([[left], front[:, 0], front[-1:, 0]])
    utility = np.concatenate([front[:1, 1], front[:, 1], [bottom]])
    axes.autoscale(enable=False)
    axes.step(validity, utility, where="pre", color=_FRONT, linewidth=1.2)


def _draw_timeline(panels: Sequence[Axes], line: Timeline) -> None:
    last = float(line.rounds[-1]) + 0.5
    # A round is as wide as one, also the only one.
    edges = np.append(line.rounds - 0.5, last)
    counts = [np.append(own, own[-1]) for own in (getattr(line, kind) for kind, _, _ in CANDIDACY)]
    colours = [look(number)[0] for _, _, number in CANDIDACY]
    panels[0].stackplot(edges, counts, colors=colours, linewidth=0, step="post")
    panels[0].set_ylim(0, line.watched)
    panels[0].set_ylabel(f"of {line.watched:,} watched clients")
    panels[0].yaxis.set_major_locator(MaxNLocator(5, integer=True))
    if line.validity is not None:
        validity = np.append(line.validity, line.validity[-1])
        panels[1].step(edges, validity, where="post", color=colours[0])
        panels[1].set_ylabel("mean expected\nvalidity of\ncandidates")
    for panel in panels:
        panel.yaxis.set_major_formatter(PLAIN)
        panel.set_xlim(0.5, last)
        number_axis(panel.xaxis, 5, min_n_ticks=1)
        panel.tick_params(labelbottom=panel is panels[-1])
    panels[-1].set_xlabel("round")

"""How the scores of clients settle: a line for each of a few clients, a panel for each policy."""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedmuster.core.records import FloatArray
from fedmuster.report.convergence import ScoreLine, scored
from fedmuster.report.figures.selection import grid_of
from fedmuster.report.figures.style import PLAIN, STYLE, new_figure, shortened
from fedmuster.report.runs import Comparison

_TITLE_CHARACTERS = {1: 80, 2: 44, 3: 28}
"""By the number of panels side by side."""
_NAME_POINTS = 7.5
"""From one client's name to the next."""


def score_convergence(comparison: Comparison) -> Figure:
    """Scores of at most ten clients over rounds, for each policy that publishes them."""
    lines = scored(comparison)
    columns, rows = grid_of(len(lines))
    height = 3.4 if rows == 1 else 2.4 * rows
    with matplotlib.rc_context(STYLE):
        figure = new_figure(
            comparison, "What policies think of clients", height=0.6 + height, first_seed=True
        )
        panels: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
        for panel in panels[len(lines) :]:
            panel.set_visible(False)
        for (label, own), panel in zip(lines.items(), panels, strict=False):
            _draw_lines(panel, own, height=0.7 * height / rows)
            panel.set_title(shortened(label, _TITLE_CHARACTERS[columns]))
        figure.supxlabel("round", fontsize=8)
        figure.supylabel("score", fontsize=8)
        return figure


def _draw_lines(axes: Axes, lines: Sequence[ScoreLine], *, height: float) -> None:
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.88, len(lines)))
    for line, colour in zip(lines, colours, strict=True):
        alone = len(line.rounds) == 1
        axes.plot(line.rounds, line.values, color=colour, linewidth=0.9, marker="." * alone)
    axes.set_xlim(1, max(2.0, *(line.rounds[-1] for line in lines)))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(PLAIN)
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

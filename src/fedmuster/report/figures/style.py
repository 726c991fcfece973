"""How all figures look: fonts, colours, titles, legends, files."""

import io
import math
import textwrap
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedmuster.core.arrays import FloatArray
from fedmuster.core.errors import ConfigError
from fedmuster.core.files import write_file
from fedmuster.core.words import percent, plain
from fedmuster.report.curves import Chart, Curve
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import LEVEL

FORMATS = ("png", "svg", "pdf")
P = ParamSpec("P")

_LINE = 1.5
_MOST_WIDER = 2
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#444444",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": _LINE,
    "figure.titlesize": 9.5,
    "figure.facecolor": "white",
    "figure.constrained_layout.wspace": 0.05,
    "svg.hashsalt": "fedmuster",  # else the ids in an SVG are random
}
PLAIN = FuncFormatter(lambda value, _: plain(value))
PERCENT = FuncFormatter(lambda value, _: f"{plain(100 * value)} %")

WIDTH = 8.0
"""Inches: 1,600 pixels at the resolution of a PNG, to be shown at half that size."""
_DPI = 200

# Okabe and Ito's palette, which colour-blind readers can tell apart, less its yellow, which
# nobody can see on white; grey instead.
_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#888888"]
_Dashes = Literal["solid"] | tuple[float, Sequence[float]]
_DASHES: tuple[_Dashes, ...] = ("solid", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)))
"""The lines of the first eight policies are solid, of the second eight dashed, …"""

NOTE_CHARACTERS = 105
_NOTE_INCHES = 0.16
_BAND_OPACITY = 0.18
_MARK = "#444444"
_MOST_IN_A_ROW = 6


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Make a function draw its figure in :data:`STYLE`."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


def new_figure(
    comparison: Comparison,
    what: str,
    *,
    height: float,
    band: bool = True,
    first_seed: bool = False,
    caption: str = "",
) -> Figure:
    """An empty figure whose title says what it shows and how sure it is, and holds the notes.

    Notes and a caption, what else there is to say, make it higher than ``height``. With
    ``first_seed`` it shows one run of each policy.
    """
    count = len(comparison.seeds)
    if count == 1:
        over = f"one seed ({comparison.seeds[0]})"
    elif first_seed:
        over = f"seed {comparison.seeds[0]}, the first of {count}"
    elif band:
        over = f"mean of {count} seeds with {percent(LEVEL, 0)} band"
    else:
        over = f"mean of {count} seeds"
    lines = [f"{what} – {comparison.length}, {over}"]
    for note in (caption, *comparison.notes):
        lines += textwrap.wrap(note, NOTE_CHARACTERS)
    size = (WIDTH, height + _NOTE_INCHES * (len(lines) - 1))
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle("\n".join(lines), x=0.01, ha="left")
    return figure


def draw_chart(axes: Axes, comparison: Comparison, chart: Chart) -> list[str]:
    """Draw curves with their axes; the labels drawn, in the order of the curves' heights."""
    draw_curves(axes, comparison, chart.curves, steps=chart.steps)
    axes.set_xlabel(chart.x_title)
    axes.set_ylabel(chart.y_title + f"\n({chart.smoothed})" * bool(chart.smoothed))
    ends = [float(curve.x[-1]) for curve in chart.curves]
    if chart.kind in ("total", "moving"):
        axes.set_xlim(1, max([2.0, comparison.rounds, *ends]))
    else:
        # The end of what was spent stands off the frame.
        axes.set_xlim(0, max(ends, default=1.0) * (1.02 if chart.axis == "spent_max" else 1.0))
    number_axis(axes.xaxis, 5, integer=chart.axis == "round")
    axes.yaxis.set_major_formatter(PERCENT if chart.percent else PLAIN)
    if chart.kind == "total":
        if not chart.curves:
            words = "not measured (regret = false)"
            axes.text(0.5, 0.5, words, ha="center", transform=axes.transAxes)
        # A total of 0 is a visible line.
        axes.set_ylim(bottom=-0.015 * max(axes.get_ylim()[1], 1e-9))
    elif chart.kind == "spending":
        _draw_cap(axes, chart)
    else:
        _fit_heights(axes, chart)
        if chart.mark is not None:
            mark_height(axes, chart.mark.value, chart.mark.text)
    height = np.mean if chart.kind == "moving" else _last
    return [curve.label for curve in sorted(chart.curves, key=lambda curve: -height(curve.mean))]


def _last(values: FloatArray) -> float:
    return float(values[-1])


def _draw_cap(axes: Axes, chart: Chart) -> None:
    assert chart.mark is not None
    if chart.mark.within:
        mark_height(axes, chart.mark.value, chart.mark.text)
        axes.set_ylim(0, 1.1 * chart.mark.value)
        return
    axes.set_ylim(0, 1.15 * max(float(curve.mean[-1]) for curve in chart.curves))
    axes.annotate(
        f"{chart.mark.text} ↑",
        (0.0, 1.0),
        (3, -3),
        xycoords="axes fraction",
        textcoords="offset points",
        va="top",
        color=_MARK,
        fontsize=6.5,
    )


def _fit_heights(axes: Axes, chart: Chart) -> None:
    """To the means, with a margin: the band of two or three seeds can be wider than all else."""
    means = np.concatenate([[0.0, 1.0], *(curve.mean for curve in chart.curves)])
    means = means[2 * bool(chart.curves) :]
    means = means[np.isfinite(means)]
    low, high = float(means.min()), float(means.max())
    if chart.floor is not None:
        low = min(low, chart.floor)
    if chart.logarithmic:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.3, high * 1.3)
        axes.yaxis.set_major_formatter(PLAIN)
        return
    margin = 0.08 * max(high - low, 1e-3)
    axes.set_ylim(max(low - margin, -margin / 4), min(high + margin, chart.most + margin / 4))


def draw_curves(
    axes: Axes, comparison: Comparison, curves: Sequence[Curve], *, steps: bool = False
) -> None:
    """Means with their bands, in the policies' colours.

    A curve that others lie upon is wider than they are, so that it can be seen.
    """
    for place, curve in enumerate(curves):
        above = sum(_coincide(curve, other) for other in curves[place + 1 :])
        colour, dashes = look(comparison.labels.index(curve.label))
        axes.plot(
            curve.x,
            curve.mean,
            color=colour,
            linestyle=dashes,
            linewidth=_LINE * (1 + min(above, _MOST_WIDER)),
            label=curve.label,
            drawstyle="steps-post" if steps else "default",
        )
        if not np.isnan(curve.half_width).all():
            axes.fill_between(
                curve.x,
                curve.mean - curve.half_width,
                curve.mean + curve.half_width,
                color=colour,
                alpha=_BAND_OPACITY,
                linewidth=0,
                step="post" if steps else None,
            )


def mark_height(axes: Axes, value: float, text: str) -> None:
    """A dotted line across, and what it stands for; nothing where that is beyond the axes."""
    axes.axhline(value, color=_MARK, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    axes.annotate(
        text,
        (0.0, value),
        (3, 2),
        xycoords=axes.get_yaxis_transform(),
        textcoords="offset points",
        color=_MARK,
        fontsize=6.5,
        annotation_clip=True,
    )


def add_legend(
    figure: Figure, comparison: Comparison, labels: Sequence[str], *, below: bool = False
) -> None:
    """The policies' colours, outside of the axes; nothing to tell apart with a single policy."""
    if len(comparison.labels) == 1:
        return
    handles = []
    for label in labels:
        colour, dashes = look(comparison.labels.index(label))
        handles.append(Line2D([], [], color=colour, linestyle=dashes, label=label))
    if below:
        rows = math.ceil(len(handles) / _MOST_IN_A_ROW)
        columns = math.ceil(len(handles) / rows)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    else:
        figure.legend(handles=handles, loc="outside right center")


def number_axis(axis: XAxis | YAxis, ticks: int, *, integer: bool = True, **options: Any) -> None:
    """At most ``count`` intervals between plain numbers."""
    axis.set_major_locator(MaxNLocator(ticks, integer=integer, **options))
    axis.set_major_formatter(PLAIN)


def grid_of(panels: int) -> tuple[int, int]:
    """Columns and rows for a number of panels."""
    columns = min(panels, 3 if panels != 4 else 2)
    return columns, math.ceil(panels / columns)


def panels_of(figure: FigureBase, count: int, **options: Any) -> list[Axes]:
    """The first ``count`` panels of a grid; the others are not drawn."""
    columns, rows = grid_of(count)
    panels: list[Axes] = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for panel in panels[count:]:
        panel.set_visible(False)
    return panels


def stacks_of(grid: Any, count: int, height: int) -> Any:
    """[n, height]: panels below each other; all beyond the first ``count`` are not drawn."""
    columns = grid.shape[1]
    stacks = grid.reshape(-1, height, columns).transpose(0, 2, 1).reshape(-1, height)
    for panel in stacks[count:].flat:
        panel.set_visible(False)
    return stacks


def shortened(label: str, characters: int) -> str:
    """For where there is no room; the legend has all of it.

    Example:
        >>> shortened("bsfl with alpha = 3", 10), shortened("bsfl", 10)
        ('bsfl with…', 'bsfl')
    """
    return label if len(label) <= characters else label[: characters - 1].rstrip() + "…"


def save(figure: Figure, path: Path) -> None:
    """Write a figure as the path's ending says; equal figures give equal bytes."""
    kind = path.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise ConfigError(
            f"{path} ends in {path.suffix!r}, expected one of: .{', .'.join(FORMATS)}"
        )
    dated = {"png": None, "svg": "Date", "pdf": "CreationDate"}[kind]
    image = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(image, format=kind, dpi=_DPI, metadata={dated: None} if dated else None)
    write_file(path, image.getvalue())


def _coincide(one: Curve, two: Curve) -> bool:
    return np.array_equal(one.x, two.x) and np.allclose(one.mean, two.mean, rtol=1e-3)


def look(number: int) -> tuple[str, _Dashes]:
    """Colour and line style of the policy with this number."""
    times, colour = divmod(number, len(_COLOURS))
    return _COLOURS[colour], _DASHES[times % len(_DASHES)]

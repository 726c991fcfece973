"""How all figures look: fonts, colours, titles, legends, files."""

import io
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from fedmuster.core.errors import ConfigError
from fedmuster.core.files import write_file
from fedmuster.report.curves import Axis, Curve
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import LEVEL

FORMATS = ("png", "svg", "pdf")

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
PLAIN = FuncFormatter(lambda value, _: f"{value:,.10g}".replace("-", "−"))
"""Thousands separators, and no more digits than needed."""

WIDTH = 8.0
"""Inches: 1,600 pixels at the resolution of a PNG, to be shown at half that size."""
_DPI = 200

# Okabe and Ito's palette, which colour-blind readers can tell apart, less its yellow, which
# nobody can see on white; grey instead.
_COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#E69F00",
    "#CC79A7",
    "#56B4E9",
    "#000000",
    "#888888",
)
_Dashes = Literal["solid"] | tuple[float, Sequence[float]]
_DASHES: tuple[_Dashes, ...] = (
    "solid",
    (0, (4, 1.5)),
    (0, (1, 1)),
    (0, (5, 1.5, 1, 1.5)),
)
"""The first eight policies are solid, the second dashed, the third dotted, …"""

NOTE_CHARACTERS = 105
_NOTE_INCHES = 0.16
_BAND_OPACITY = 0.18
_MARK = "#444444"
_MOST_IN_A_ROW = 6


def x_title(comparison: Comparison, axis: Axis) -> str:
    """What an axis shows; nothing of privacy, whose currency its own figures know."""
    return {"seconds": f"{comparison.clock} (s)", "round": "round"}.get(axis, "")


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
        over = f"mean of {count} seeds with {100 * LEVEL:.0f} % band"
    else:
        over = f"mean of {count} seeds"
    lines = [f"{what} – {comparison.length}, {over}"]
    for note in (caption, *comparison.notes):
        lines += textwrap.wrap(note, NOTE_CHARACTERS)
    size = (WIDTH, height + _NOTE_INCHES * (len(lines) - 1))
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle("\n".join(lines), x=0.01, ha="left")
    return figure


def draw_curves(
    axes: Axes, comparison: Comparison, curves: Sequence[Curve], *, steps: bool = False
) -> None:
    """Means with their bands, in the policies' colours.

    A curve that others lie upon is wider than they are, so that it can be seen.
    """
    for place, curve in enumerate(curves):
        above = sum(_coincide(curve, other) for other in curves[place + 1 :])
        colour, dashes = _look(comparison.labels.index(curve.label))
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
        colour, dashes = _look(comparison.labels.index(label))
        handles.append(Line2D([], [], color=colour, linestyle=dashes, label=label))
    if below:
        rows = math.ceil(len(handles) / _MOST_IN_A_ROW)
        columns = math.ceil(len(handles) / rows)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    else:
        figure.legend(handles=handles, loc="outside right center")


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


def _look(number: int) -> tuple[str, _Dashes]:
    """Colour and line style of the policy of that number."""
    times, colour = divmod(number, len(_COLOURS))
    return _COLOURS[colour], _DASHES[times % len(_DASHES)]

"""A comparison in pictures. Needs matplotlib; every function returns a figure of its own."""

import io
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.core.files import write_file
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.report import participation
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import LEVEL, mean_and_half_width

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure, FigureBase
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import FuncFormatter, MaxNLocator
except ImportError as error:
    raise MissingExtraError("matplotlib", extra="report", purpose="drawing figures") from error

FORMATS = ("png", "svg", "pdf")

_WIDTH = 8.0
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

_STYLE: dict[Any, Any] = {
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
    "lines.linewidth": 1.5,
    "figure.titlesize": 9.5,
    "figure.facecolor": "white",
    "figure.constrained_layout.wspace": 0.05,
    "svg.hashsalt": "fedmuster",  # else the ids in an SVG are random
}
_MOST_POINTS = 400
_NOTE_CHARACTERS = 105
_MOST_DOUBLINGS = 3
_BAND_OPACITY = 0.18
_PLAIN = FuncFormatter(lambda value, _: f"{value:,.10g}".replace("-", "−"))
"""Thousands separators, and no more digits than needed."""


def regret(comparison: Comparison) -> Figure:
    """Cumulative regret over rounds; on a logarithmic axis too, where log t is a straight line."""
    with matplotlib.rc_context(_STYLE):
        figure = _figure(comparison, "Cumulative regret", height=3.6)
        linear, logarithmic = figure.subplots(1, 2, sharey=True)
        labels = _curves(linear, comparison, "regret", "cumulative regret")
        _curves(logarithmic, comparison, "regret", "")
        linear.set_title("linear axis")
        logarithmic.set_title("logarithmic axis: log t is a straight line")
        logarithmic.set_xscale("log")
        logarithmic.xaxis.set_major_formatter(_PLAIN)
        _policy_legend(figure, comparison, labels)
        return figure


def simulated_time(comparison: Comparison) -> Figure:
    """Cumulative simulated seconds over rounds."""
    with matplotlib.rc_context(_STYLE):
        figure = _figure(comparison, "Simulated time", height=3.8)
        labels = _curves(figure.subplots(), comparison, "seconds", "simulated time (s)")
        _policy_legend(figure, comparison, labels)
        return figure


def selection_by_group(comparison: Comparison) -> Figure:
    """How often clients of each speed group were chosen."""
    with matplotlib.rc_context(_STYLE):
        figure = _figure(comparison, "Who is chosen: by speed group", height=3.8, band=False)
        _bars(figure.subplots(), comparison)
        return figure


def cohorts(comparison: Comparison) -> Figure:
    """Heat maps: which clients were chosen when."""
    with matplotlib.rc_context(_STYLE):
        columns, rows = _grid(len(comparison.labels))
        figure = _figure(
            comparison,
            "Who is chosen when: clients from fast to slow",
            height=1.1 + (3.0 if rows == 1 else 1.9 * rows),
            band=False,
        )
        _heat_maps(figure, comparison, columns, rows)
        return figure


def overview(comparison: Comparison) -> Figure:
    """Regret, time, speed groups and cohorts in one picture."""
    with matplotlib.rc_context(_STYLE):
        figure = _figure(
            comparison,
            f"{_policies(comparison)}, {comparison.cohort_size:,} of "
            f"{comparison.num_clients:,} clients a round",
            height=7.4,
        )
        parts: Any = figure.subfigures(2, 2, height_ratios=(1.0, 1.15), wspace=0.02, hspace=0.03)
        (regret_part, time_part), (bars, maps) = parts
        axes = regret_part.subplots()
        axes.set_title("Cumulative regret")
        _curves(axes, comparison, "regret", "cumulative regret")
        axes = time_part.subplots()
        axes.set_title("Simulated time")
        _curves(axes, comparison, "seconds", "simulated time (s)")
        axes = bars.subplots()
        axes.set_title("Who is chosen: by speed group")
        _bars(axes, comparison)
        maps.suptitle("Who is chosen when", x=0.02, ha="left", fontsize=8.5)
        _heat_maps(maps, comparison, *_grid(len(comparison.labels)))
        _policy_legend(figure, comparison, comparison.labels, below=True)
        return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure as the path's ending says; equal figures give equal bytes."""
    kind = path.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise ConfigError(
            f"{path} ends in {path.suffix!r}, expected one of: .{', .'.join(FORMATS)}"
        )
    dated = {"png": None, "svg": "Date", "pdf": "CreationDate"}[kind]
    image = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(image, format=kind, dpi=_DPI, metadata={dated: None} if dated else None)
    write_file(path, image.getvalue())


def _figure(comparison: Comparison, what: str, *, height: float, band: bool = True) -> Figure:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    count = len(comparison.seeds)
    if count == 1:
        over = f"one seed ({comparison.seeds[0]})"
    elif band:
        over = f"mean of {count} seeds with {100 * LEVEL:.0f} % band"
    else:
        over = f"mean of {count} seeds"
    lines = [f"{what} – {comparison.rounds:,} rounds, {over}"]
    for note in comparison.notes:
        lines += textwrap.wrap(note, _NOTE_CHARACTERS)
    figure.suptitle("\n".join(lines), x=0.01, ha="left")
    return figure


def _curves(axes: Axes, comparison: Comparison, column: str, title: str) -> list[str]:
    """Draw the running totals of a column; the labels drawn, the highest total first."""
    rounds = _plotted_rounds(comparison.rounds)
    totals: dict[str, float] = {}
    for number, label in enumerate(comparison.labels):
        values = comparison.column(label, column)
        if np.isnan(values).any():
            continue
        running = np.cumsum(values, axis=1)[:, rounds - 1]
        mean, half_width = mean_and_half_width(running)
        colour, dashes = _look(number)
        axes.plot(rounds, mean, color=colour, linestyle=dashes, label=label)
        if len(comparison.seeds) > 1:
            axes.fill_between(
                rounds,
                mean - half_width,
                mean + half_width,
                color=colour,
                alpha=_BAND_OPACITY,
                linewidth=0,
            )
        totals[label] = float(mean[-1])
    if not totals:
        axes.text(0.5, 0.5, "not measured (regret = false)", ha="center", transform=axes.transAxes)
    axes.set_xlabel("round")
    axes.set_ylabel(title)
    axes.set_xlim(1, max(comparison.rounds, 2))
    axes.set_ylim(bottom=-0.015 * max(axes.get_ylim()[1], 1e-9))  # a total of 0 is a visible line
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(_PLAIN)
    axes.yaxis.set_major_formatter(_PLAIN)
    return sorted(totals, key=lambda label: -totals[label])


def _bars(axes: Axes, comparison: Comparison) -> None:
    latencies = participation.group_latencies(comparison)
    shares = np.stack([participation.group_shares(comparison.runs[x]) for x in comparison.labels])
    groups = np.flatnonzero(~np.isnan(latencies))
    colours = matplotlib.colormaps["viridis"](np.linspace(0.95, 0.0, len(groups)))
    width = 0.84 / len(groups)
    policies = np.arange(len(comparison.labels))
    for place, (group, colour) in enumerate(zip(groups, colours, strict=True)):
        offset = (place - (len(groups) - 1) / 2) * width
        axes.bar(policies + offset, shares[:, group], width, color=colour)
    equal = comparison.cohort_size / comparison.num_clients
    line = axes.axhline(equal, color="#000000", linewidth=0.9, linestyle=(0, (4, 2)))
    _cut_tall_bars(axes, shares[:, groups], equal)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("share of rounds a client is chosen in")
    axes.yaxis.set_major_formatter(_PLAIN)
    slanted = len(comparison.labels) > 4
    axes.set_xticks(
        policies,
        comparison.labels,
        rotation=35 if slanted else 0,
        ha="right" if slanted else "center",
        rotation_mode="anchor" if slanted else "default",
    )
    axes.tick_params(axis="x", length=0)
    keys: list[Patch | Line2D] = [
        Patch(color=colours[place], label=f"{latencies[groups[place]]:.3g} s")
        for place in _shown(len(groups))
    ]
    line.set_label(f"equal: {equal:.3g}")
    axes.legend(
        handles=[*keys, line],
        title="mean latency",
        title_fontsize=7.5,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        handlelength=1.3,
        labelspacing=0.35,
    )


def _cut_tall_bars(axes: Axes, shares: FloatArray, equal: float) -> None:
    """Keep a policy that asks (nearly) everyone from pressing all the others flat."""
    crowded = shares.mean(axis=1) > 2 * equal
    if crowded.all() or not crowded.any():
        axes.set_ylim(0, 1.08 * max(shares.max(), equal))
        return
    top = 1.15 * max(shares[~crowded].max(), equal)
    axes.set_ylim(0, top)
    for place in np.flatnonzero(crowded):
        low, high = shares[place].min(), shares[place].max()
        text = f"{high:.2g}" if math.isclose(low, high, rel_tol=0.01) else f"{low:.2g}–{high:.2g}"
        axes.annotate(
            f"↑ {text}",
            (float(place), top),
            (0, -4),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=7,
            bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none"},
        )


def _heat_maps(figure: FigureBase, comparison: Comparison, columns: int, rows: int) -> None:
    clients, bins = participation.resolution(comparison)
    maps = [
        participation.choice_density(comparison.runs[label], rows=clients, bins=bins)
        for label in comparison.labels
    ]
    # Logarithmic, so that twice and half an equal share are equally far from it.
    strongest = float(np.percentile(np.stack(maps), 99.5))
    doublings = min(max(math.ceil(math.log2(max(strongest, 1.0))), 1), _MOST_DOUBLINGS)
    lowest, highest = 2.0**-doublings, 2.0**doublings
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels: list[Axes] = list(grid.flat)
    for panel in panels[len(maps) :]:
        panel.set_visible(False)
    for label, panel, density in zip(comparison.labels, panels, maps, strict=False):
        image = panel.imshow(
            np.maximum(density, lowest),
            norm=LogNorm(lowest, highest),
            cmap="PuOr",
            aspect="auto",
            interpolation="nearest",
            extent=(0.5, comparison.rounds + 0.5, comparison.num_clients, 0),
        )
        panel.set_title(label, fontsize=7.5, pad=2)
        panel.grid(visible=False)
        panel.xaxis.set_major_locator(MaxNLocator(2 if columns > 2 else 4, integer=True))
        panel.xaxis.set_major_formatter(_PLAIN)
        panel.set_yticks([])
    figure.supxlabel("round", fontsize=8)
    figure.supylabel("slow  ←  clients  →  fast", fontsize=8)
    bar = figure.colorbar(image, ax=panels, extend="both", aspect=30, pad=0.01)
    bar.set_label("times an equal share", fontsize=7.5)
    powers = range(-doublings, doublings + 1)
    bar.set_ticks(
        [2.0**power for power in powers],
        labels=[f"{2**power}" if power >= 0 else f"1/{2**-power}" for power in powers],
    )
    bar.ax.minorticks_off()


def _policy_legend(
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
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 5))
    else:
        figure.legend(handles=handles, loc="outside right center")


def _look(number: int) -> tuple[str, _Dashes]:
    """Colour and line style of the policy of that number."""
    times, colour = divmod(number, len(_COLOURS))
    return _COLOURS[colour], _DASHES[times % len(_DASHES)]


def _plotted_rounds(rounds: int) -> IntArray:
    """Enough rounds for both a linear and a logarithmic axis; all of them if they are few."""
    if rounds <= _MOST_POINTS:
        return np.arange(1, rounds + 1)
    both = [np.linspace(1, rounds, _MOST_POINTS), np.geomspace(1, rounds, _MOST_POINTS // 2)]
    return np.unique(np.rint(np.concatenate(both)).astype(np.int64))


def _grid(panels: int) -> tuple[int, int]:
    """Columns and rows for so many panels."""
    columns = min(panels, 3 if panels != 4 else 2)
    return columns, math.ceil(panels / columns)


def _shown(count: int) -> IntArray:
    """Which of so many groups the legend names: at most ten, the first and last among them."""
    return np.unique(np.rint(np.linspace(0, count - 1, min(count, 10))).astype(np.int64))


def _policies(comparison: Comparison) -> str:
    count = len(comparison.labels)
    return comparison.labels[0] if count == 1 else f"{count} policies"

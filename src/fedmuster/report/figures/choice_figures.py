"""Which clients are chosen: by speed group, and by client over time."""

import math

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fedmuster.core.arrays import FloatArray
from fedmuster.report.curves import thinned
from fedmuster.report.figures.style import (
    PLAIN,
    grid_of,
    new_figure,
    number_axis,
    panels_of,
    shortened,
    styled,
)
from fedmuster.report.participation import choice_densities, group_shares
from fedmuster.report.runs import Comparison

_MOST_DOUBLINGS = 3
_TICK_CHARACTERS = 24
_ROW_CHARACTERS = 48
"""That fit below half a figure, side by side."""
_TITLE_CHARACTERS = {1: 40, 2: 26, 3: 16}
"""By the number of panels side by side, in half a figure."""
_TALL = 4.0
"""Times an equal share."""


@styled
def selection_by_group(comparison: Comparison) -> Figure:
    """How often clients of each speed group were chosen."""
    figure = new_figure(comparison, "Who is chosen: by speed group", height=3.8, band=False)
    draw_bars(figure.subplots(), comparison)
    return figure


@styled
def cohorts(comparison: Comparison) -> Figure:
    """Heat maps: which clients were chosen when."""
    _, rows = grid_of(len(comparison.labels))
    first, last, _ = comparison.ranking
    figure = new_figure(
        comparison,
        f"Who is chosen when: clients from {first} to {last}",
        height=1.1 + (3.0 if rows == 1 else 1.9 * rows),
        band=False,
    )
    draw_heat_maps(figure, comparison)
    return figure


def draw_bars(axes: Axes, comparison: Comparison) -> None:
    """The share of rounds in which clients of each speed group were chosen."""
    latencies, shares, equal = group_shares(comparison)
    count = len(latencies)
    colours = matplotlib.colormaps["viridis"](np.linspace(0.95, 0.0, count))
    width = 0.84 / count
    policies = np.arange(len(comparison.labels))
    for group, colour in enumerate(colours):
        offset = (group - (count - 1) / 2) * width
        axes.bar(policies + offset, shares[:, group], width, color=colour)
    line = axes.axhline(equal, color="#000000", linewidth=0.9, linestyle=(0, (4, 2)))
    _cut_tall_bars(axes, shares, equal)
    axes.grid(visible=False, axis="x")
    of_updates = "share of all client updates, of a client"
    axes.set_ylabel(
        of_updates if comparison.round_less else "share of rounds a client is chosen in"
    )
    axes.yaxis.set_major_formatter(PLAIN)
    names = [shortened(label, _TICK_CHARACTERS) for label in comparison.labels]
    slanted = len(names) > 4 or len(names) * max(map(len, names)) > _ROW_CHARACTERS
    axes.set_xticks(
        policies,
        names,
        rotation=35 if slanted else 0,
        ha="right" if slanted else "center",
        rotation_mode="anchor" if slanted else "default",
    )
    axes.tick_params(axis="x", length=0)
    keys: list[Patch | Line2D] = [
        Patch(color=colours[group], label=f"{latencies[group]:.3g} s")
        for group in thinned(np.arange(count), 10)
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
    """Cut the bars of a policy that always asks the same clients, or all: others stay readable."""
    tall = shares.max(axis=1) > _TALL * equal
    if tall.all() or not tall.any():
        axes.set_ylim(0, 1.08 * max(shares.max(), equal) or 1.0)  # nobody was ever chosen
        return
    top = 1.25 * max(shares[~tall].max(), equal)
    axes.set_ylim(0, top)
    for place in np.flatnonzero(tall):
        cut = shares[place][shares[place] > top]
        low, high = cut.min(), cut.max()
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


def draw_heat_maps(figure: FigureBase, comparison: Comparison) -> None:
    """A panel for each policy: clients in order, rounds from left to right."""
    columns, _ = grid_of(len(comparison.labels))
    maps = choice_densities(comparison)
    # Logarithmic, so that twice and half an equal share are equally far from it.
    strongest = float(np.percentile(np.stack([own.density for own in maps]), 99.5))
    doublings = min(max(math.ceil(math.log2(max(strongest, 1.0))), 1), _MOST_DOUBLINGS)
    lowest, highest = 2.0**-doublings, 2.0**doublings
    # Runs that have their own number of rounds have their own axis.
    panels = panels_of(figure, len(maps), sharex=not comparison.uneven, sharey=True)
    for label, panel, own in zip(comparison.labels, panels, maps, strict=False):
        image = panel.imshow(
            np.maximum(own.density, lowest),
            norm=LogNorm(lowest, highest),
            cmap="PuOr",
            aspect="auto",
            interpolation="nearest",
            extent=(0.5, own.rounds + 0.5, comparison.num_clients, 0),
        )
        panel.set_title(shortened(label, _TITLE_CHARACTERS[columns]), fontsize=7.5, pad=2)
        panel.grid(visible=False)
        number_axis(panel.xaxis, 2 if columns > 2 else 4)
        panel.set_yticks([])
    figure.supxlabel(comparison.step, fontsize=8)
    first, last, _ = comparison.ranking
    figure.supylabel(f"{last}  ←  clients  →  {first}", fontsize=8)
    bar = figure.colorbar(image, ax=panels, extend="both", aspect=30, pad=0.01)
    bar.set_label("times an equal share", fontsize=7.5)
    powers = range(-doublings, doublings + 1)
    bar.set_ticks(
        [2.0**power for power in powers],
        labels=[f"{2**power}" if power >= 0 else f"1/{2**-power}" for power in powers],
    )
    bar.ax.minorticks_off()

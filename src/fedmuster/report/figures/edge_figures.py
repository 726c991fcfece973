"""What edge servers spent of their budgets, and the network seen from above."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import EllipseCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from fedmuster.report.edge_views import (
    HIGH,
    LOW,
    Box,
    BudgetUse,
    Dots,
    NetworkMap,
    budget_check,
    network_maps,
    spread_of_shares,
    usual_success,
)
from fedmuster.report.figures.style import (
    PERCENT,
    WIDTH,
    grid_of,
    mark_height,
    new_figure,
    number_axis,
    panels_of,
    shortened,
    stacks_of,
    styled,
)
from fedmuster.report.runs import Comparison

_TITLE_CHARACTERS = {1: 60, 2: 32, 3: 20}
_BOX, _MEAN = "#9CC3DE", "#D55E00"
_MOST_OF_IT = 0.6


@styled
def budget_use(comparison: Comparison) -> Figure:
    """What each edge spent of its budget: the mean, and how it spreads over rounds and seeds."""
    uses = {label: spread_of_shares(comparison.runs[label]) for label in comparison.in_rounds}
    columns, rows = grid_of(len(uses))
    bottom, top = _heights(list(uses.values()))
    figure = new_figure(
        comparison,
        "What edge servers spent of their budgets",
        height=1.4 + (2.4 if rows == 1 else 1.75 * rows),
        band=False,
        caption=budget_check(comparison) or "",
    )
    panels = panels_of(figure, len(uses), sharex=True, sharey=True)
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


def _heights(uses: Sequence[BudgetUse]) -> tuple[float, float]:
    """From 0 to above the budget, or from nearer to it if all edges spend most of it."""
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
    axes.yaxis.set_major_formatter(PERCENT)


# The network from above: edge servers and their reach, clients, and where they were chosen.

_MOST_MAPS = 6
_MAP_TITLE_CHARACTERS = {1: 40, 2: 40, 3: 24, 4: 18}
_FEW_EDGES = 12
_LAYERS = ("clients", "choices")
_DISC, _EDGE, _NEVER = "#DCE6EE", "#B2182B", "#9A9A9A"
_PALETTE = "viridis"


@styled
def network_map(comparison: Comparison) -> Figure:
    """A panel for each policy: clients, and below, unless they stand still, where choices fell."""
    box, found = network_maps(comparison)
    maps = dict(list(found.items())[:_MOST_MAPS])
    layers = [
        layer for layer in _LAYERS if any(getattr(own, layer) is not None for own in maps.values())
    ]
    columns = len(maps) if len(maps) <= 4 else 3
    # One policy alone has its layers side by side.
    rows, columns = (1, len(layers)) if len(maps) == 1 else (-(-len(maps) // columns), columns)
    each = 1 if len(maps) == 1 else len(layers)
    norm = Normalize(*usual_success(maps.values()))
    panel = 0.8 * WIDTH / max(columns, 2)
    figure = new_figure(
        comparison,
        "The network"
        + (f": the first {len(maps)} of {len(found)} policies" if maps != found else ""),
        height=1.3 + rows * each * (panel * box.height / box.width + 0.3),
        first_seed=True,
        caption=_caption(maps, "Beside it" if len(maps) == 1 else "Below"),
    )
    figure.set_layout_engine("compressed")
    grid = figure.subplots(rows * each, columns, squeeze=False, sharex=True, sharey=True)
    stacks = grid if len(maps) == 1 else stacks_of(grid, len(maps), each)
    for place, ((label, one), panels) in enumerate(zip(maps.items(), stacks, strict=False)):
        for layer, axes in zip(layers, panels, strict=True):
            _draw_network(axes, one, box)
            _draw_dots(axes, getattr(one, layer), most=_most(maps, layer), norm=norm)
            axes.set_ylabel("km" if axes in grid[:, 0] else "", labelpad=1)
        for axes in panels if each == 1 else panels[-1:]:
            if place + columns >= len(maps):  # there is no policy below
                axes.set_xlabel("km", labelpad=1)
                axes.tick_params(labelbottom=True)
        panels[0].set_title(shortened(label, _MAP_TITLE_CHARACTERS[columns]))
    ends = {(True, False): "max", (False, True): "min", (False, False): "both"}
    bar = figure.colorbar(
        ScalarMappable(norm, _PALETTE),
        ax=list(grid.flat),
        aspect=30,
        pad=0.01,
        extend=ends.get((norm.vmin == 0, norm.vmax == 1), "neither"),
    )
    bar.set_label("share of the chosen who were in time", fontsize=7.5)
    bar.ax.yaxis.set_major_formatter(PERCENT)
    reach = any(one.radius_km is not None for one in maps.values())
    handles = [
        Line2D([], [], color=_EDGE, marker="^", linestyle="none", label="edge server"),
        *([_circle("its reach", "#8FA6B8", _DISC, 9)] if reach else []),
        _circle("never chosen", _NEVER, "none", 4),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _circle(label: str, colour: str, filling: str, size: float) -> Line2D:
    circle = Line2D([], [], color=colour, label=label, marker="o", linestyle="none")
    circle.set(markerfacecolor=filling, markersize=size)
    return circle


def _caption(maps: Mapping[str, NetworkMap], second: str) -> str:
    """Where dots are, and what their size is; ``second`` is where the second layer is."""
    first = next(iter(maps.values()))
    words = []
    if first.clients is not None:
        who = "clients" if first.clients.cell_km is None else "squares with all clients in them"
        words.append(
            f"Dots are {who}, at their places in round 1; their area is how often they were chosen"
            f" (the largest: {_most(maps, 'clients'):,} times)."
        )
    if first.choices is not None:
        where = f"{second} are" if first.clients is not None else "Dots are"
        words.append(
            f"{where} the squares in which clients were when they were chosen (the largest: "
            f"{_most(maps, 'choices'):,} times)."
        )
    elif first.clients is not None:
        words.append("Nobody moved.")
    return " ".join(words)


def _most(maps: Mapping[str, NetworkMap], layer: str) -> int:
    found: list[Dots | None] = [getattr(one, layer) for one in maps.values()]
    return max((int(dots.chosen.max(initial=0)) for dots in found if dots is not None), default=0)


def _draw_network(axes: Axes, one: NetworkMap, box: Box) -> None:
    for number, place in enumerate(one.edge_km.tolist()):
        if one.radius_km:
            disc = Circle(place, one.radius_km, facecolor=_DISC, edgecolor="none", alpha=0.5)
            rim = Circle(place, one.radius_km, facecolor="none", edgecolor="#8FA6B8", linewidth=0.5)
            axes.add_patch(disc).set_zorder(1)
            axes.add_patch(rim).set_zorder(1.5)
        axes.annotate(
            f"{number}",
            place,
            (2.5, 2.5),
            textcoords="offset points",
            fontsize=6.5 if len(one.edge_km) <= _FEW_EDGES else 5,
            zorder=5,
            color=_EDGE,
            path_effects=[withStroke(linewidth=1.6, foreground="white")],
        )
    (marks,) = axes.plot(*one.edge_km.T, "^", color=_EDGE, markersize=4.5, zorder=4)
    marks.set(markeredgecolor="white", markeredgewidth=0.5)
    axes.set_aspect("equal")
    axes.set_xlim(box.left, box.right)
    axes.set_ylim(box.bottom, box.top)
    axes.grid(visible=False)
    for axis in (axes.xaxis, axes.yaxis):
        number_axis(axis, 5)


def _draw_dots(axes: Axes, dots: Dots | None, *, most: int, norm: Normalize) -> None:
    if dots is None or len(dots.chosen) == 0:
        return
    largest = dots.cell_km
    if largest is None:  # clients: as large as leaves room for all of them
        span = np.ptp(np.asarray(axes.get_xlim())) * np.ptp(np.asarray(axes.get_ylim()))
        largest = float(np.sqrt(0.5 * span / len(dots.chosen)))
    smallest = 0.2 * largest
    asked = dots.chosen > 0
    width = np.maximum(largest * np.sqrt(dots.chosen / max(most, 1)), smallest)
    for mask, look in (
        (~asked, {"facecolors": "none", "edgecolors": _NEVER, "linewidths": 0.6}),
        (asked, {"edgecolors": "#33333380", "linewidths": 0.3}),
    ):
        circles = EllipseCollection(
            width[mask],
            width[mask],
            np.zeros(mask.sum()),
            units="xy",
            offsets=dots.place_km[mask],
            offset_transform=axes.transData,
            zorder=3,
            **look,
        )
        if mask is asked:
            circles.set(array=dots.success[mask], cmap=_PALETTE, norm=norm)
        axes.add_collection(circles)

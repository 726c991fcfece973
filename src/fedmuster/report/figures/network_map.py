"""The network from above: edge servers and their reach, clients, and where they were chosen."""

from collections.abc import Mapping

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import EllipseCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator

from fedmuster.report.figures.style import PLAIN, STYLE, WIDTH, new_figure, shortened
from fedmuster.report.network_map import Box, Dots, NetworkMap, network_maps, usual_success
from fedmuster.report.runs import Comparison

_MOST_MAPS = 6
_TITLE_CHARACTERS = {1: 40, 2: 40, 3: 24, 4: 18}
_FEW_EDGES = 12
_LAYERS = ("clients", "choices")
_DISC, _EDGE, _NEVER = "#DCE6EE", "#B2182B", "#9A9A9A"
_PALETTE = "viridis"
_PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.10g} %")


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
    with matplotlib.rc_context(STYLE):
        figure = new_figure(
            comparison,
            "The network"
            + (f": the first {len(maps)} of {len(found)} policies" if maps != found else ""),
            height=1.3 + rows * each * (panel * box.height / box.width + 0.3),
            first_seed=True,
            caption=caption(maps, "Beside it" if len(maps) == 1 else "Below"),
        )
        figure.set_layout_engine("compressed")
        grid = figure.subplots(rows * each, columns, squeeze=False, sharex=True, sharey=True)
        # A policy's layers are below each other.
        own = grid.reshape(rows, each, columns).transpose(0, 2, 1).reshape(-1, len(layers))
        for panels in own[len(maps) :]:
            for axes in panels:
                axes.set_visible(False)
        for place, ((label, one), panels) in enumerate(zip(maps.items(), own, strict=False)):
            for layer, axes in zip(layers, panels, strict=True):
                _draw_network(axes, one, box)
                _draw_dots(axes, getattr(one, layer), most=_most(maps, layer), norm=norm)
                axes.set_ylabel("km" if axes in grid[:, 0] else "", labelpad=1)
            for axes in panels if each == 1 else panels[-1:]:
                if place + columns >= len(maps):  # there is no policy below
                    axes.set_xlabel("km", labelpad=1)
                    axes.tick_params(labelbottom=True)
            panels[0].set_title(shortened(label, _TITLE_CHARACTERS[columns]))
        ends = {(True, False): "max", (False, True): "min", (False, False): "both"}
        bar = figure.colorbar(
            ScalarMappable(norm, _PALETTE),
            ax=list(grid.flat),
            aspect=30,
            pad=0.01,
            extend=ends.get((norm.vmin == 0, norm.vmax == 1), "neither"),
        )
        bar.set_label("share of the chosen who were in time", fontsize=7.5)
        bar.ax.yaxis.set_major_formatter(_PERCENT)
        _add_legend(figure, maps)
        return figure


def caption(maps: Mapping[str, NetworkMap], second: str) -> str:
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
        axis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_major_formatter(PLAIN)


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


def _add_legend(figure: Figure, maps: Mapping[str, NetworkMap]) -> None:
    handles = [
        Line2D([], [], color=_EDGE, marker="^", linestyle="none", label="edge server"),
        Line2D(
            [],
            [],
            color="#8FA6B8",
            markerfacecolor=_DISC,
            marker="o",
            markersize=9,
            linestyle="none",
            label="its reach",
        ),
        Line2D(
            [],
            [],
            color=_NEVER,
            markerfacecolor="none",
            marker="o",
            markersize=4,
            linestyle="none",
            label="never chosen",
        ),
    ]
    if all(one.radius_km is None for one in maps.values()):
        del handles[1]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))

"""Which client has what data, in one line and in a picture. Needs matplotlib."""

import textwrap
from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.words import several, span
from fedmuster.report.figures.style import NOTE_CHARACTERS, PLAIN, WIDTH, number_axis, styled
from fedmuster.training.training_records import Targets


def label_counts(targets: Targets, offsets: IntArray, num_classes: int) -> IntArray:
    """[K, C], how many samples of each label each client has."""
    sizes = np.diff(offsets)
    cell = np.repeat(np.arange(len(sizes)), sizes) * num_classes + targets
    counts = np.bincount(cell, minlength=len(sizes) * num_classes)
    return counts.reshape(len(sizes), num_classes)


def describe(
    targets: Targets, offsets: IntArray, num_classes: int, quality: FloatArray | None = None
) -> str:
    r"""One line: how many samples, labels and what quality clients have.

    Example:
        >>> describe(np.array([0, 1, 1, 1]), np.array([0, 2, 4]), 2)
        '4 samples among 2 clients: 2 each; 1–2 of 2 labels each, the main one 75\xa0% on average'
    """
    sizes = np.diff(offsets)
    text = f"{sizes.sum():,} samples among {several(len(sizes), 'client')}: {_span(sizes)} each"
    if num_classes:
        counts = label_counts(targets, offsets, num_classes)
        main = 100 * np.mean(counts.max(axis=1) / sizes)
        text += (
            f"; {_span(np.count_nonzero(counts, axis=1))} of {num_classes} labels each, "
            f"the main one {main:.0f}\u00a0% on average"
        )
    if quality is not None:
        text += f"; quality {quality.min():.2f}–{quality.max():.2f}"
    return text


def _span(numbers: IntArray) -> str:
    return span(int(numbers.min()), int(numbers.max()))


# Paul Tol's "muted" palette, which colour-blind readers can tell apart.
_LABEL_COLOURS = [
    "#332288",
    "#88CCEE",
    "#44AA99",
    "#117733",
    "#999933",
    "#DDCC77",
    "#CC6677",
    "#882255",
    "#AA4499",
    "#BBBBBB",
]
_INK = "#0072B2"
_SHARES = LinearSegmentedColormap.from_list("shares", ["#FFFFFF", "#A6CBE3", _INK, "#04263F"])
_MOST_STACKS = 60
"""With more clients than this a stack of labels is too thin to read."""
_MOST_NAMES = 30
_MOST_COLUMNS = 640
"""Two pixels each in a PNG."""

_Panel = tuple[float, Callable[[Axes], None]]
"""Relative height, and what draws it."""


@styled
def partition_figure(
    targets: Targets,
    offsets: IntArray,
    *,
    num_classes: int,
    quality: FloatArray | None = None,
    title: str = "Who has what",
) -> Figure:
    """Sizes, labels and quality of every client, from the one with the most data to the least.

    Args:
        targets: of the samples, those of one client after those of the other.
        offsets: [K+1], client k has ``targets[offsets[k]:offsets[k+1]]``.
        num_classes: 0 in a regression, where a panel shows the values instead of labels.
        quality: [K], or None.
        title: the first line of the picture.
    """
    sizes = np.diff(offsets)
    order = np.argsort(-sizes, kind="stable")
    panels: list[_Panel]
    if num_classes == 0:
        values = [targets[offsets[k] : offsets[k + 1]] for k in order]
        panels = [
            (1.0, lambda axes: _draw_sizes(axes, sizes[order])),
            (1.0, lambda axes: _draw_values(axes, values)),
        ]
    else:
        counts = label_counts(targets, offsets, num_classes)
        if len(sizes) <= _MOST_STACKS and num_classes <= len(_LABEL_COLOURS):
            panels = [(2.0, lambda axes: _draw_stacks(axes, counts[order]))]
        else:
            panels = [
                (1.0, lambda axes: _draw_sizes(axes, sizes[order])),
                (1.6, lambda axes: _draw_shares(axes, counts[order])),
            ]
    if quality is not None:
        panels.append((0.6, lambda axes: _draw_quality(axes, quality[order])))
    heights = [height for height, _ in panels]
    figure = Figure(figsize=(WIDTH, 1.0 + 1.4 * sum(heights)), layout="constrained")
    lines = [title, describe(targets, offsets, num_classes, quality)]
    wrapped = [part for line in lines for part in textwrap.wrap(line, NOTE_CHARACTERS)]
    figure.suptitle("\n".join(wrapped), x=0.01, ha="left")
    grid = figure.subplots(len(panels), 1, sharex=True, height_ratios=heights, squeeze=False)
    for (_, draw), axes in zip(panels, grid[:, 0], strict=True):
        draw(axes)
        axes.grid(visible=False, axis="x")
    _name_clients(grid[-1, 0], order)
    return figure


def _draw_stacks(axes: Axes, counts: IntArray) -> None:
    bottom = np.zeros(len(counts))
    for label, colour in zip(range(counts.shape[1]), _LABEL_COLOURS, strict=False):
        axes.bar(
            np.arange(len(counts)),
            counts[:, label],
            0.84,
            bottom=bottom,
            color=colour,
            edgecolor="white",
            linewidth=0.3,
        )
        bottom += counts[:, label]
    axes.set_ylabel("samples")
    axes.yaxis.set_major_formatter(PLAIN)
    keys = [Patch(color=_LABEL_COLOURS[c], label=f"{c}") for c in range(counts.shape[1])]
    axes.legend(
        handles=keys[::-1],  # as they are stacked
        title="label",
        title_fontsize=7.5,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        handlelength=1.0,
        handleheight=1.0,
    )


def _draw_sizes(axes: Axes, sizes: IntArray) -> None:
    axes.stairs(sizes, np.arange(len(sizes) + 1) - 0.5, fill=True, color=_INK)
    axes.set_ylim(0, 1.05 * sizes.max())
    axes.set_ylabel("samples")
    number_axis(axes.yaxis, 5, steps=(1, 2, 2.5, 5, 10))


def _draw_shares(axes: Axes, counts: IntArray) -> None:
    num_clients = len(counts)
    columns = np.unique(np.linspace(0, num_clients, _MOST_COLUMNS, endpoint=False, dtype=int))
    per_column = num_clients / len(columns)
    together = np.add.reduceat(counts, columns)  # neighbours, where there are too many
    image = axes.imshow(
        100 * (together / together.sum(axis=1, keepdims=True)).T,
        cmap=_SHARES,
        # The same scale in all pictures, so that they can be compared; finer near 0.
        norm=PowerNorm(0.5, 0, 100),
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        extent=(-0.5, num_clients - 0.5, -0.5, counts.shape[1] - 0.5),
    )
    axes.grid(visible=False)
    axes.set_ylabel("label")
    axes.yaxis.set_major_locator(MaxNLocator(12, integer=True, steps=(1, 2, 5, 10)))
    figure = axes.get_figure()
    if figure is not None:
        bar = figure.colorbar(image, ax=axes, aspect=14, pad=0.01, ticks=(0, 1, 5, 10, 25, 50, 100))
        bar.ax.minorticks_off()
        whose = "the client's" if len(columns) == num_clients else f"{per_column:.0f} clients'"
        bar.set_label(f"% of {whose} samples", fontsize=7.5)


def _draw_values(axes: Axes, values: list[Targets]) -> None:
    low, middle, high = np.array([np.percentile(v, (10, 50, 90)) for v in values]).T
    place = np.arange(len(values))
    width = min(5.0, max(0.6, 430 / len(values)))
    axes.vlines(place, low, high, color="#A6CBE3", linewidth=width, label="10–90 %")
    axes.plot(place, middle, "o", color=_INK, markersize=min(3.5, width), label="median")
    axes.set_ylabel("target")
    axes.yaxis.set_major_formatter(PLAIN)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.0)


def _draw_quality(axes: Axes, quality: FloatArray) -> None:
    place = np.arange(len(quality))
    axes.plot(
        place, quality, "o", color="#D55E00", markersize=3.5 if len(place) <= 100 else 1.8, mew=0
    )
    axes.set_ylim(min(0.0, quality.min()), 1.04)
    axes.set_ylabel("quality")


def _name_clients(axes: Axes, order: IntArray) -> None:
    axes.set_xlim(-0.6, len(order) - 0.4)
    if len(order) <= _MOST_NAMES:
        axes.set_xticks(np.arange(len(order)), [f"{client}" for client in order])
        axes.tick_params(axis="x", length=0)
        axes.set_xlabel("client, from the most data to the least")
    else:
        number_axis(axes.xaxis, 8, steps=(1, 2, 5, 10))
        axes.set_xlabel("clients, from the most data to the least")

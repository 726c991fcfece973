"""MAB-CS's own figures: elapsed time against FedCS, over rounds and over eta."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedmuster.claims.mab_cs_cell import FEDCS, RIVALS
from fedmuster.core.records import FloatArray
from fedmuster.report.curves import Curve, plotted_rounds
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import mean_and_half_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def difference_over_rounds(panels: Mapping[str, Comparison]) -> "Figure":
    """Fig. 1: ``T_FedCS - T`` (12) as rounds go by, a panel for each comparison."""
    import matplotlib

    from fedmuster.report.figures import style

    first = next(iter(panels.values()))
    with matplotlib.rc_context(style.STYLE):
        figure = style.new_figure(first, "Elapsed time saved against FedCS", height=3.6)
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for (title, comparison), panel in zip(panels.items(), axes, strict=True):
            style.draw_curves(panel, comparison, differences(comparison))
            panel.axhline(0.0, color="#444444", linewidth=0.8, zorder=1)
            panel.set(title=title, xlabel="round", xlim=(1, comparison.rounds))
            panel.xaxis.set_major_formatter(style.PLAIN)
            panel.yaxis.set_major_formatter(style.PLAIN)
        axes[0].set_ylabel(r"$T_\mathrm{FedCS} - T$ (s)")
        style.add_legend(figure, first, RIVALS, below=True)
        return figure


def reduction_over_eta(
    comparison: Comparison, reduction: Mapping[float | None, Mapping[str, FloatArray]]
) -> "Figure":
    """Fig. 2: ``1 - T / T_FedCS`` against eta; dashed where resources do not fluctuate.

    Args:
        comparison: any of the runs, for names and colours.
        reduction: [seeds] by eta (None for no fluctuation) and label.
    """
    import matplotlib
    from matplotlib.ticker import PercentFormatter

    from fedmuster.report.figures import style

    etas = np.array([eta for eta in reduction if eta is not None])
    # What a rate may sink to is 1 - rate^(eta/2 - 1) of its mean: all that matters is near 2.
    places = -np.log10(2.0 - etas)
    with matplotlib.rc_context(style.STYLE):
        figure = style.new_figure(comparison, "Reduction of elapsed time against FedCS", height=3.8)
        axes = figure.subplots()
        for label in RIVALS:
            values = np.stack([reduction[float(eta)][label] for eta in etas], axis=1)
            mean, half_width = mean_and_half_width(values)
            curve = Curve(label=label, x=places, mean=mean, half_width=half_width)
            style.draw_curves(axes, comparison, [curve])
            colour = axes.get_lines()[-1].get_color()
            without = float(reduction[None][label].mean())
            axes.axhline(without, color=colour, linewidth=0.9, linestyle=(0, (4, 2)))
        axes.set_xticks(places, [f"{eta:g}" for eta in etas])
        axes.set(
            xlabel="eta, on the scale of log (2 − eta); dashed: resources do not fluctuate",
            ylabel=r"$1 - T / T_\mathrm{FedCS}$",
            xlim=(places[0], places[-1]),
        )
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
        style.add_legend(figure, comparison, RIVALS)
        return figure


def differences(comparison: Comparison) -> list[Curve]:
    """``T_FedCS - T`` of each rival up to each round, seed by seed."""
    elapsed = {
        label: np.cumsum(comparison.column(label, "seconds"), axis=1) for label in (FEDCS, *RIVALS)
    }
    rounds = plotted_rounds(comparison.rounds)
    curves = []
    for label in RIVALS:
        saved = (elapsed[FEDCS] - elapsed[label])[:, rounds - 1]  # Eq. 12
        mean, half_width = mean_and_half_width(saved)
        curves.append(
            Curve(label=label, x=rounds.astype(np.float64), mean=mean, half_width=half_width)
        )
    return curves

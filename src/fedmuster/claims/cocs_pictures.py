"""COCS's figures: utility, regret and participants over rounds; what is left to explore."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedmuster.claims.cocs_exploration import Exploration
from fedmuster.claims.cocs_network import ORACLE, OURS, Utilities
from fedmuster.claims.cocs_placements import Solved
from fedmuster.claims.cocs_theorem import order
from fedmuster.core.records import FloatArray
from fedmuster.report.curves import Curve, moving_means, plotted_rounds, window
from fedmuster.report.statistics import mean_and_half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARGIN = 0.06
_BELOW = 3.5
_BLOCKS = 40
"""Of rounds, in each of which shares are taken."""


def utility_over_rounds(utilities: Utilities) -> "Figure":
    """Fig. 3a, 5: cumulative utility, and as a share of Oracle's, where one can see it."""
    import matplotlib
    from matplotlib.ticker import PercentFormatter

    from fedmuster.report.figures import style

    comparison = utilities.comparison
    with matplotlib.rc_context(style.STYLE):
        figure = style.new_figure(comparison, "Cumulative utility", height=3.8)
        totals, shares = figure.subplots(1, 2)
        _draw(totals, utilities, comparison.labels, utilities.running, bands=False)
        totals.set(title="up to each round")
        totals.yaxis.set_major_formatter(style.PLAIN)
        others = [label for label in comparison.labels if label != ORACLE]

        def share(label: str) -> FloatArray:
            # In the first rounds nobody may have taken part yet.
            return utilities.running(label) / np.maximum(utilities.running(ORACLE), 1e-9)

        first = max(1, comparison.rounds // 20)
        _draw(shares, utilities, others, share, first=first, from_zero=False)
        style.mark_height(shares, 1.0, "Oracle")
        shares.set(title="as a share of Oracle's")
        shares.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
        style.add_legend(figure, comparison, comparison.labels, below=True)
        return figure


def regret_and_participants(
    utilities: Utilities, *, exponent: float, without: Sequence[str] = ()
) -> "Figure":
    """Fig. 3b, 6 and 4b; regret by rounds so far, where linear growth is level.

    Args:
        utilities: the runs.
        exponent: of T in the theorems' law.
        without: whose regret means nothing, for they know the round's luck.
    """
    import matplotlib
    from matplotlib.ticker import NullFormatter

    from fedmuster.report.figures import style

    comparison = utilities.comparison
    losers = [
        label for label in comparison.labels if label not in without and utilities.has_regret(label)
    ]
    rounds = np.arange(1.0, comparison.rounds + 1)
    with matplotlib.rc_context(style.STYLE):
        figure = style.new_figure(comparison, "Regret and participants", height=3.8)
        regret, participants = figure.subplots(1, 2)
        first = max(2, comparison.rounds // 100)
        _draw(
            regret, utilities, losers, lambda label: utilities.regret(label) / rounds, first=first
        )
        # Theorem 2's law is drawn to end where COCS does: what matters is how it bends.
        law = order(rounds, exponent) / rounds
        law *= utilities.regret(OURS)[:, -1].mean() / comparison.rounds / law[-1]
        regret.plot(rounds[first - 1 :], law[first - 1 :], color="0.4", linewidth=1.2, ls=":")
        regret.annotate(
            f"$T^{{{exponent:g}}}\\,\\ln\\,T$",
            (first, law[first - 1]),
            (4, -3),
            textcoords="offset points",
            color="0.35",
            fontsize=7,
            va="top",
        )
        regret.set(xscale="log", title="regret so far, a round: level is linear")
        regret.xaxis.set_major_formatter(style.PLAIN)
        regret.xaxis.set_minor_formatter(NullFormatter())

        style.draw_curves(participants, comparison, moving_means(comparison, "participants"))
        participants.xaxis.set_major_formatter(style.PLAIN)
        participants.set(
            title=f"participants a round, mean over {window(comparison)} rounds",
            xlabel="round",
            xlim=(1, comparison.rounds),
        )
        style.add_legend(figure, comparison, comparison.labels, below=True)
        return figure


def exploration_over_rounds(
    utilities: Utilities, explorations: Mapping[str, Sequence[Exploration]]
) -> "Figure":
    """How much of what could be chosen is unexplored, and how many are chosen to explore it."""
    import matplotlib
    from matplotlib.ticker import PercentFormatter

    from fedmuster.report.figures import style

    comparison = utilities.comparison
    starts = np.unique(np.linspace(0, comparison.rounds, _BLOCKS, endpoint=False).astype(np.int64))
    middle = 0.5 * (starts + np.append(starts[1:], comparison.rounds)) + 0.5
    with matplotlib.rc_context(style.STYLE):
        figure = style.new_figure(comparison, "Exploration", height=3.4)
        for panel, title, part, whole in zip(
            figure.subplots(1, 2, sharey=True),
            ("pairs that could be chosen: under-explored", "clients chosen: to explore"),
            ("under_explored", "to_explore"),
            ("possible", "chosen"),
            strict=True,
        ):
            curves = []
            for label, own in explorations.items():
                sums = [
                    np.add.reduceat(np.stack([getattr(one, name) for one in own]), starts, axis=1)
                    for name in (part, whole)
                ]
                mean, half_width = mean_and_half_width(sums[0] / np.maximum(sums[1], 1))
                curves.append(Curve(label=label, x=middle, mean=mean, half_width=half_width))
            style.draw_curves(panel, comparison, curves)
            panel.get_lines()[0].set_linewidth(_BELOW)  # others may lie upon it
            panel.set(title=title, ylim=(-0.02, 1.03), xlabel="round", xlim=(1, comparison.rounds))
            panel.xaxis.set_major_formatter(style.PLAIN)
            panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
        style.add_legend(figure, comparison, list(explorations), below=True)
        return figure


def greedy_against_optimum(
    groups: Mapping[str, Sequence[Solved]],
    networks: Sequence[str],
    *,
    guarantee: float,
    num_edges: int,
) -> "Figure":
    """How near FLGreedy comes to the optimum, and in how many iterations.

    Args:
        groups: problems that were solved.
        networks: those of them that are rounds of a whole network.
        guarantee: what FLGreedy is sure to reach in these.
        num_edges: of these.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    from fedmuster.report.figures import style

    colours = dict(zip(groups, ("#888888", "#0072B2", "#D55E00"), strict=True))
    with matplotlib.rc_context(style.STYLE):
        figure = Figure(figsize=(style.WIDTH, 3.4), layout="constrained")
        count = sum(map(len, groups.values()))
        title = f"FLGreedy against the optimum – {count:,} instances"
        figure.suptitle(title, x=0.01, ha="left")
        reach, steps = figure.subplots(1, 2)
        for name, group in groups.items():
            share = np.sort([one.greedy_share for one in group])
            height = np.arange(1, len(share) + 1) / len(share)
            reach.step(share, height, where="post", color=colours[name], label=name)
        reach.axvline(guarantee, color="#444444", linewidth=0.8, linestyle=(0, (1, 2)))
        reach.annotate(
            f"guaranteed for M = {num_edges} (Lemma 3)",
            (guarantee, 0.5),
            (4, 0),
            textcoords="offset points",
            color="#444444",
            fontsize=6.5,
        )
        reach.set(
            title="share of the optimal utility: instances up to it",
            xlabel="FLGreedy's utility / the largest",
            xlim=(0, 1.02),
            ylim=(0, 1.02),
        )
        for name in networks:
            counts = np.bincount([one.iterations for one in groups[name]])
            steps.bar(
                np.arange(len(counts)),
                counts / counts.sum(),
                width=0.9,
                color=colours[name],
                alpha=0.8,
                label=name,
            )
        steps.axvline(num_edges + 0.5, color="#444444", linewidth=0.8, linestyle=(0, (1, 2)))
        steps.annotate(
            f"M = {num_edges}: the paper's most",
            (num_edges + 0.5, 1.0),
            (4, -7),
            xycoords=steps.get_xaxis_transform(),
            textcoords="offset points",
            color="#444444",
            fontsize=6.5,
        )
        steps.margins(y=0.15)
        steps.set(title="iterations: share of rounds", xlabel="clients placed", xlim=(0, None))
        for axes in (reach, steps):
            axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
        handles, labels = reach.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
        return figure


def _draw(
    axes: "Axes",
    utilities: Utilities,
    labels: Sequence[str],
    values: Callable[[str], FloatArray],
    *,
    first: int = 1,
    from_zero: bool = True,
    bands: bool = True,
) -> None:
    """Means and bands of [seeds, rounds] of each policy, from round ``first`` on.

    The means decide how high the axes are: the bands of two seeds would dwarf them.
    """
    from fedmuster.report.figures import style

    comparison = utilities.comparison
    rounds = plotted_rounds(comparison.rounds)
    rounds = rounds[rounds >= first]
    curves = []
    for label in labels:
        mean, half_width = mean_and_half_width(values(label)[:, rounds - 1])
        half_width = half_width if bands else np.full(len(mean), np.nan)
        x = rounds.astype(np.float64)
        curves.append(Curve(label=label, x=x, mean=mean, half_width=half_width))
    style.draw_curves(axes, comparison, curves)
    low = 0.0 if from_zero else min(float(curve.mean.min()) for curve in curves)
    high = max(float(curve.mean.max()) for curve in curves)
    margin = _MARGIN * (high - low)
    axes.set(
        xlabel="round",
        xlim=(first, comparison.rounds),
        ylim=(low - (not from_zero) * margin, high + margin),
    )
    axes.xaxis.set_major_formatter(style.PLAIN)

"""The pictures of a league."""

from typing import TYPE_CHECKING, Final

import numpy as np

from claims.league.score import Score
from fedmuster.core.words import several

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_IN_ROUNDS, _WITHOUT = "#0072b2", "#d55e00"
_MARK = "#444444"
_TICKS: Final = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0)
_MOST_CURVES = 8
_SHADES: Final = 2.0
"""Shares from 1/4 to 4 have shades of their own."""


def leaderboard(score: Score) -> "Figure":
    """The score of each contestant with its interval, the best at the top."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import NullLocator

    from fedmuster.report.figures import style

    standings = score.standings(score.labels)
    with matplotlib.rc_context(style.STYLE):
        height = 1.3 + 0.24 * len(standings)
        figure = Figure(figsize=(style.WIDTH, height), layout="constrained")
        figure.suptitle(
            "Time to target as a share of random choice in rounds\n"
            f"(geometric mean over {len(score.names)} settings; 95 % interval over "
            f"{several(len(score.record.judging_seeds), 'seed')})",
            x=0.01,
            ha="left",
        )
        axes = figure.subplots()
        for place, one in enumerate(standings):
            colour = _IN_ROUNDS if one.in_rounds else _WITHOUT
            ends = np.nan_to_num([[one.time.mean - one.time.low], [one.time.high - one.time.mean]])
            axes.errorbar(one.time.mean, place, xerr=ends, fmt="o", color=colour, capsize=2)
        axes.axvline(1.0, color=_MARK, linewidth=0.8, linestyle=(0, (1, 2)))
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xticks([tick for tick in _TICKS if low <= tick <= high])
        axes.xaxis.set_major_formatter(style.PLAIN)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yticks(range(len(standings)), [one.label for one in standings])
        axes.invert_yaxis()
        figure.legend(
            handles=[
                Line2D([], [], color=colour, marker="o", linestyle="", label=text)
                for colour, text in ((_IN_ROUNDS, "in rounds"), (_WITHOUT, "without rounds"))
            ],
            loc="outside lower center",
            ncols=2,
        )
        return figure


def by_setting(score: Score) -> "Figure":
    """Shares in each setting: blue is sooner than random choice in rounds, red is later."""
    import matplotlib
    from matplotlib.figure import Figure

    from fedmuster.report.figures import style

    labels = [one.label for one in score.standings(score.labels)]
    shares = np.array([[share.mean for share in score.setting_shares(one)] for one in labels])
    with matplotlib.rc_context(style.STYLE):
        figure = Figure(figsize=(style.WIDTH, 1.7 + 0.22 * len(labels)), layout="constrained")
        figure.suptitle(
            "Time to target as a share of random choice in rounds, by setting\n"
            "(geometric mean over the seeds; a missed target counts as twice the horizon)",
            x=0.01,
            ha="left",
        )
        axes = figure.subplots()
        axes.imshow(np.log2(shares), cmap="RdBu_r", vmin=-_SHADES, vmax=_SHADES, aspect="auto")
        for (row, column), share in np.ndenumerate(shares):
            dark = abs(np.log2(share)) > 0.6 * _SHADES
            colour = "white" if dark else "black"
            text = f"{share:.2f}" if share < 9.95 else f"{share:.0f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=6, color=colour)
        axes.grid(visible=False)
        axes.set_yticks(range(len(labels)), labels)
        axes.set_xticks(range(len(score.names)), score.names, rotation=40, ha="right")
        return figure


def accuracy_curves(score: Score) -> "Figure":
    """Accuracy over time in each setting: random choice in rounds, and the first of the board."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from fedmuster.report.figures import style

    others = [one.label for one in score.standings(score.labels) if one.label != score.base]
    labels = [score.base, *others[: _MOST_CURVES - 1]]
    runs = {one.label: one.runs for one in score.record.contestants}
    with matplotlib.rc_context(style.STYLE):
        settings = score.record.settings
        _, rows = style.grid_of(len(settings))
        figure = Figure(figsize=(style.WIDTH, 1.4 + 1.7 * rows), layout="constrained")
        figure.suptitle(
            "Test accuracy over simulated time (s), mean of "
            f"{several(len(score.record.judging_seeds), 'seed')}; the line is the target",
            x=0.01,
            ha="left",
        )
        for axes, setting in zip(style.panels_of(figure, len(settings)), settings, strict=False):
            for place, label in enumerate(labels):
                curve = np.array(runs[label][setting.name].curve, dtype=np.float64)
                times = setting.seconds * np.arange(1, len(curve) + 1) / len(curve)
                colour, dashes = style.look(place)
                axes.plot(times, curve, color=colour, linestyle=dashes, linewidth=1.0)
            axes.axhline(setting.target, color=_MARK, linewidth=0.6, zorder=1)
            axes.set(title=setting.name, xlim=(0, setting.seconds))
            axes.yaxis.set_major_formatter(style.PERCENT)
        looks = [style.look(place) for place in range(len(labels))]
        figure.legend(
            handles=[
                Line2D([], [], color=colour, linestyle=dashes, label=label)
                for label, (colour, dashes) in zip(labels, looks, strict=True)
            ],
            loc="outside lower center",
            ncols=3,
        )
        return figure

"""Accuracy over wall-clock time, and which nodes were chosen."""

from typing import TYPE_CHECKING

import numpy as np

from fedmuster.claims.flower_race import Race, Tracks
from fedmuster.report.target import Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def accuracy_over_time(race: Race, tracks: Tracks, target: Target) -> "Figure":
    """Left: every run thin, the mean over seeds thick. Right: who trained, by speed."""
    import matplotlib
    from matplotlib.figure import Figure

    from fedmuster.report.figures import style

    with matplotlib.rc_context(style.STYLE):
        figure = Figure(figsize=(style.WIDTH, 4.0), layout="constrained")
        named = ", ".join(map(str, race.seeds))
        over = f"seeds {named} (thin) and their mean" if len(race.seeds) > 1 else f"seed {named}"
        figure.suptitle(
            f"Flower on loopback, {race.cohort_size} of {len(race.node_seconds)} SuperNodes a "
            f"round, {race.rounds} rounds – {over}",
            x=0.01,
            ha="left",
        )
        curves, choices = figure.subplots(1, 2, width_ratios=(3, 2))
        for number, runs in enumerate(tracks.values()):
            colour = f"C{number}"
            for run in runs:
                curves.plot(run.seconds, 100 * run.accuracy, color=colour, linewidth=0.6, alpha=0.5)
            ends = min(run.seconds[-1] for run in runs)
            times = np.linspace(0.0, ends, 400)
            mean = np.mean([np.interp(times, run.seconds, run.accuracy) for run in runs], axis=0)
            curves.plot(times, 100 * mean, color=colour)
        curves.set(
            title="test accuracy (%)", xlabel="wall-clock time (s)", xlim=(0, None), ylim=(0, 100)
        )
        style.mark_height(curves, 100 * target.value, f"target: {target.text}")
        _draw_choices(choices, race, tracks)
        handles = [
            matplotlib.lines.Line2D([], [], color=f"C{number}", label=label)
            for number, label in enumerate(tracks)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
        return figure


def _draw_choices(axes: "Axes", race: Race, tracks: Tracks) -> None:
    """How often a node of each speed was chosen; dotted, what is equal for all."""
    speed = np.array(race.node_seconds)
    groups, counts = np.unique(speed, return_counts=True)
    width = 0.8 / len(tracks)
    for number, runs in enumerate(tracks.values()):
        chosen = np.concatenate([speed[cohort] for run in runs for cohort in run.chosen])
        rounds = sum(run.rounds for run in runs)
        share = [
            np.count_nonzero(chosen == group) / (count * rounds)
            for group, count in zip(groups, counts, strict=True)
        ]
        places = np.arange(len(groups)) + (number - (len(tracks) - 1) / 2) * width
        axes.bar(places, 100 * np.array(share), width, color=f"C{number}")
    axes.axhline(
        100 * race.cohort_size / len(speed), color="#444444", linewidth=0.8, linestyle=(0, (1, 2))
    )
    axes.set_xticks(
        np.arange(len(groups)),
        [f"{count} × {group:g} s" for group, count in zip(groups, counts, strict=True)],
    )
    axes.grid(visible=False, axis="x")
    axes.set(title="rounds in which a node trained (%)", xlabel="nodes, by their training time")

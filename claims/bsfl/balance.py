"""BSFL, Fig. 5 and 6: how alpha and beta change how often each speed group is chosen."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from claims.claim import Claim, Evidence, Finding, RunCells, play, seeds
from claims.measures import each, number
from fedmuster.core.records import FloatArray
from fedmuster.experiments.spec import Experiment
from fedmuster.policies.bsfl import BSFL
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import interval
from fedmuster.report.summary import evenness
from fedmuster.report.tables import Table
from fedmuster.worlds import BSFLGroups

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WINDOW = 500
_ALPHAS = (0.0, 1.0, 3.0, 10.0)
_BETAS = (0.5, 1.0, 1.5, 2.0)
_ALPHA_IN_FIG_6 = 3.0
_ALMOST = 0.25  # "almost equally": no group further than this from the equal share


def _experiment(policies: dict[str, BSFL], *, quick: bool) -> Experiment:
    return Experiment(
        policies=policies,
        world=BSFLGroups(num_clients=100, cohort_size=5) if quick else BSFLGroups(),
        rounds=100 if quick else 10_000,
        seeds=seeds(2 if quick else 10),
        regret=False,
    )


def _window(comparison: Comparison) -> int:
    """500 rounds; a quick run is shorter, and has two windows."""
    return min(_WINDOW, comparison.rounds // 2)


def _windows(comparison: Comparison, label: str) -> FloatArray:
    """[seed, window, group]: selections of a client in a window of rounds, group mean."""
    runs, window = [], _window(comparison)
    for run in comparison.runs[label]:
        size = np.bincount(run.groups)
        windows = -(-comparison.rounds // window)
        cell = run.chosen_rounds() // window * len(size) + run.groups[run.chosen]
        counts = np.bincount(cell, minlength=windows * len(size))
        runs.append(counts.reshape(windows, len(size)) / size)
    return np.stack(runs)


def _evenness(comparison: Comparison) -> dict[str, FloatArray]:
    """Jain's index of how often each client was chosen, by policy, one value a seed."""
    return each(comparison, lambda run: evenness(run.selection_counts()))


def _rises(values: Sequence[FloatArray]) -> bool:
    """Whether each is larger than the one before in every seed."""
    return all((after > before).all() for before, after in pairwise(values))


def _gather_alpha(folder: Path, *, quick: bool, run: RunCells) -> Evidence:
    policies = {f"alpha = {alpha:g}": BSFL(alpha=alpha, beta=1.0) for alpha in _ALPHAS}
    comparison = play(_experiment(policies, quick=quick), folder, run)
    zero = _windows(comparison, "alpha = 0")
    first, last = zero[:, 0], zero[:, -1]
    window = _window(comparison)
    equal = window * comparison.cohort_size / comparison.num_clients
    most_unequal = float(np.abs(first / equal - 1).max())
    fastest = zero[:, :, 0].mean(axis=0)
    even = _evenness(comparison)
    slow = [_windows(comparison, label)[:, :, 5:].sum(axis=(1, 2)) for label in policies]
    return Evidence(
        setting=_setting(comparison),
        findings=(
            Finding(
                sentence=f"With alpha = 0 the first {window} rounds choose all groups almost "
                "equally",
                measured="selections of a client, by group from fast to slow: "
                + ", ".join(f"{mean:.0f}" for mean in first.mean(axis=0))
                + f"; up to {most_unequal:.0%} from the equal {equal:.0f}",
                holds=most_unequal < _ALMOST,
            ),
            Finding(
                sentence="With alpha = 0 the fastest group is then favoured more and more, while "
                "slower groups are still explored",
                measured=f"selections of a client of the fastest group per {window} rounds: "
                f"{fastest[0]:.0f} at first, {fastest[-1]:.0f} at last; of the slowest group "
                f"{last[:, -1].mean():.0f} at last",
                holds=bool(
                    (last[:, 0] > first[:, 0]).all()
                    and (last[:, 0] > last[:, -1]).all()
                    and (last[:, -1] > 0).all()
                ),
            ),
            Finding(
                sentence="The larger alpha, the more often clients of slower groups are chosen",
                measured="selections of the slower half of the groups (mean of a client over the "
                "run, summed over groups): " + ", ".join(f"{s.mean():.0f}" for s in slow),
                holds=_rises(slow),
            ),
        ),
        tables=(_table(comparison, even),),
        figures={"groups": _figure(comparison)},
        notes=(_UNSTATED,),
    )


def _gather_beta(folder: Path, *, quick: bool, run: RunCells) -> Evidence:
    policies = {f"beta = {beta:g}": BSFL(alpha=_ALPHA_IN_FIG_6, beta=beta) for beta in _BETAS}
    comparison = play(_experiment(policies, quick=quick), folder, run)
    even = _evenness(comparison)
    return Evidence(
        setting=_setting(comparison),
        findings=(
            Finding(
                sentence="The smaller beta, the more equally often clients are chosen",
                measured="Jain's index of the clients' selections: "
                + ", ".join(f"{v.mean():.4f} ({label})" for label, v in even.items()),
                holds=_rises(list(even.values())[::-1]),
            ),
        ),
        tables=(_table(comparison, even),),
        figures={"groups": _figure(comparison)},
        notes=(_UNSTATED,),
    )


_UNSTATED = (
    "The paper states neither the four values, the law of the latencies nor tau_min; here "
    "latencies are normal with a relative standard deviation of 0.1 and a floor of tau_min = 0.1 s."
)


def _setting(comparison: Comparison) -> str:
    return (
        f"10 groups of {comparison.num_clients // 10} clients with mean iteration times of 0.1 … "
        f"1.0 s, {comparison.cohort_size} chosen a round, {comparison.rounds:,} rounds, "
        f"{len(comparison.seeds)} seeds"
    )


def _table(comparison: Comparison, even: dict[str, FloatArray]) -> Table:
    rows = []
    for label in comparison.labels:
        share = _windows(comparison, label).sum(axis=1).mean(axis=0) / comparison.rounds
        jain = number(interval(even[label]), 4)
        rows.append((label, *(f"{value:.3f}" for value in share), jain))
    return Table(
        title="Share of rounds in which a client takes part, by mean iteration time of its group",
        columns=("policy", *(f"{0.1 * (g + 1):.1f} s" for g in range(10)), "Jain's index"),
        rows=tuple(rows),
        footnotes=(),
    )


def _figure(comparison: Comparison) -> "Figure":
    """The paper's bar charts: stacked windows of rounds, one bar a group."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True).flat
    for panel, label in zip(panels, comparison.labels, strict=True):
        windows = _windows(comparison, label).mean(axis=0)
        groups = np.arange(1, windows.shape[1] + 1) / 10
        bottom = np.zeros(len(groups))
        for place, counts in enumerate(windows):
            colour = colormaps["viridis"](place / max(len(windows) - 1, 1))
            panel.bar(groups, counts, width=0.08, bottom=bottom, color=colour)
            bottom += counts
        panel.set(title=label, xticks=groups)
        panel.axhline(
            comparison.rounds * comparison.cohort_size / comparison.num_clients,
            color="black",
            linestyle="--",
            linewidth=0.8,
        )
    figure.supxlabel("mean iteration time of the group (s)")
    figure.supylabel(
        f"selections of a client\n(dark: first {_window(comparison)} rounds … light: last; dashed: "
        "equal)"
    )
    return figure


ALPHA = Claim(
    name="bsfl-alpha",
    source="BSFL, Fig. 5",
    statement="With alpha = 0 the first 500 iterations select all groups almost equally, then the "
    "fastest group increasingly; as alpha grows, more clients of slower groups are selected.",
    gather=_gather_alpha,
)

BETA = Claim(
    name="bsfl-beta",
    source="BSFL, Fig. 6",
    statement="As beta decreases, the algorithm promotes greater equality in the frequency with "
    "which each client is selected.",
    gather=_gather_beta,
)

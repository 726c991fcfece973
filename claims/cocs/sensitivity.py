"""COCS, Fig. 4d and 4f: cumulative utility with other budgets and other deadlines."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from claims.claim import Claim, Evidence, Finding, RunCells, play, seeds
from claims.cocs.network import FIVE, OURS, Utilities, described, five
from claims.measures import INTERVALS, number, percent
from claims.published import PUBLISHED_RULES
from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.policy import Policy
from fedmuster.core.records import FloatArray
from fedmuster.experiments.spec import Experiment
from fedmuster.report.curves import Curve
from fedmuster.report.statistics import interval, mean_and_half_width, paired
from fedmuster.report.tables import Table
from fedmuster.worlds import EdgeNetwork

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BUDGETS: Final = (3.5, 5.0, 10.0)
_DEADLINES: Final = (2.0, 4.0, 8.0)
_LITTLE = 0.1
"""An increase by no more than this share is no significant improvement, or similar."""
_PUBLISHED = 5_378 / 5_125 - 1
_BUDGET, _DEADLINE = "B", "deadline"

Sweep = Mapping[float, Utilities]
"""The runs at each value of what is varied."""


def _sweep(
    policies: Mapping[str, Policy[Any]],
    worlds: Mapping[float, EdgeNetwork],
    folder: Path,
    *,
    rounds: int,
    count: int,
    run: RunCells,
) -> Sweep:
    return {
        value: Utilities(
            comparison=play(
                Experiment(
                    federation=PUBLISHED_RULES,
                    policies=policies,
                    world=world,
                    rounds=rounds,
                    seeds=seeds(count),
                    reward=EdgeUtility(),
                    regret=False,
                ),
                folder / f"{value:g}",
                run,
            )
        )
        for value, world in worlds.items()
    }


def _budget(folder: Path, *, quick: bool, run: RunCells) -> Evidence:
    rounds, count = (6, 2) if quick else (200, 10)
    worlds = {value: EdgeNetwork(budget=value) for value in _BUDGETS}
    sweep = _sweep(five(), worlds, folder, rounds=rounds, count=count, run=run)
    low, middle, high = _BUDGETS
    return Evidence(
        setting=f"the network of Table I for MNIST ({described(EdgeNetwork())}) with B = "
        f"{_listed(_BUDGETS)}; selection alone, {rounds} rounds, {count} seeds",
        findings=(
            _increases(sweep, _BUDGET),
            Finding(
                sentence="From B = 5 to 10 there is no significant improvement (tested as: at most "
                f"{_LITTLE:.0%}, of every policy)",
                measured=_rises(sweep, middle, high),
                holds=all(
                    interval(rise(sweep, label, middle, high)).high <= _LITTLE for label in FIVE
                ),
            ),
            Finding(
                sentence="From B = 3.5 to 5 the benefit is larger than from 5 to 10, per unit of "
                "budget (significantly, for COCS)",
                measured=_per_unit(sweep),
                holds=paired(
                    (sweep[middle].total(OURS) - sweep[low].total(OURS)) / (middle - low),
                    (sweep[high].total(OURS) - sweep[middle].total(OURS)) / (high - middle),
                ).verdict
                == "higher",
                ours=True,
            ),
            _fewer_in_time(sweep),
        ),
        tables=(_table(sweep, _BUDGET),),
        figures={"utility": _picture(sweep, "budget B of each edge")},
        notes=(
            f'"No significant improvement" was put at {_LITTLE:.0%} before the first run.',
            _enough(sweep[high]),
        ),
    )


def _deadline(folder: Path, *, quick: bool, run: RunCells) -> Evidence:
    rounds, count = (6, 2) if quick else (300, 5)
    usual = EdgeNetwork()
    worlds = {value: replace(usual, deadline_seconds=value) for value in _DEADLINES}
    sweep = _sweep(five(), worlds, folder / "deadline", rounds=rounds, count=count, run=run)
    budgets = _sweep(
        {OURS: five()[OURS]},
        {value: EdgeNetwork(budget=value) for value in (_BUDGETS[0], _BUDGETS[-1])},
        folder / "budget",
        rounds=rounds,
        count=count,
        run=run,
    )
    short, middle, long = _DEADLINES
    by_deadline = rise(sweep, OURS, short, long)
    by_budget = rise(budgets, OURS, _BUDGETS[0], _BUDGETS[-1])
    return Evidence(
        setting=f"the network of Table I for MNIST ({described(usual)}) with deadlines of "
        f"{_listed(_DEADLINES)} s; selection alone, {rounds:,} rounds, {count} seeds",
        findings=(
            _increases(sweep, _DEADLINE, labels=(OURS,)),
            Finding(
                sentence="8 s performs similarly to 4 s: COCS's cumulative utility only increases "
                f"from 5,125 to 5,378, by {_PUBLISHED:.1%} (tested as: at most {_LITTLE:.0%})",
                measured=f"{percent(interval(rise(sweep, OURS, middle, long)))}: from "
                f"{_participants(sweep[middle])} to {_participants(sweep[long])} participants",
                holds=interval(rise(sweep, OURS, middle, long)).high <= _LITTLE,
            ),
            Finding(
                sentence="The increase by the deadline is less than that by the budget "
                "(significantly, COCS: 2 to 8 s against B = 3.5 to 10)",
                measured=f"{percent(interval(by_deadline))} against {percent(interval(by_budget))}",
                holds=paired(by_deadline, by_budget).verdict == "lower",
            ),
        ),
        tables=(_table(sweep, "deadline (s)"),),
        figures={"utility": _picture(sweep, "deadline (s)")},
        notes=(
            f'"Similarly" was put at {_LITTLE:.0%} before the first run.',
            "The paper's 5,125 and 5,378 can only be participants of all edges together over 1,000 "
            "rounds: Eq. 8 would divide them by M = 3, and in 200 rounds no budget of 3.5 pays for "
            "25 clients each.",
            f"Computing alone takes {usual.workload / usual.compute_mhz[1]:.2f} to "
            f"{usual.workload / usual.compute_mhz[0]:.2f} s. What a longer deadline adds are links "
            "on which little gets through: a rate that is too low for 4 s must be at least half "
            "of what is needed, to be of use in 8 s.",
        ),
    )


def rise(sweep: Sweep, label: str, low: float, high: float) -> FloatArray:
    """[seeds], by which share cumulative utility grows from one value to the other."""
    return np.asarray(sweep[high].total(label) / sweep[low].total(label) - 1.0)


def in_time(utilities: Utilities, label: str) -> FloatArray:
    """[seeds], which share of the chosen took part."""
    chosen = [run.cohort_sizes.sum() for run in utilities.comparison.runs[label]]
    return np.asarray(utilities.participants(label).sum(axis=1) / np.maximum(chosen, 1))


def _increases(sweep: Sweep, what: str, labels: Sequence[str] = FIVE) -> Finding:
    steps = list(pairwise(sweep))
    comparisons = len(steps) * len(labels)
    tests = [
        paired(sweep[high].total(label), sweep[low].total(label), comparisons=comparisons)
        for label in labels
        for low, high in steps
    ]
    whom = "all five" if len(labels) == len(FIVE) else " and ".join(labels)
    return Finding(
        sentence=f"The larger the {'budget' if what == _BUDGET else what}, the higher the "
        f"cumulative utility of {whom} (significantly, at each step)",
        measured=", ".join(
            f"{label} " + " → ".join(f"{own.total(label).mean():,.0f}" for own in sweep.values())
            for label in labels
        ),
        holds=all(test.verdict == "higher" for test in tests),
    )


def _fewer_in_time(sweep: Sweep) -> Finding:
    _, middle, high = _BUDGETS
    shares = {
        label: [interval(in_time(own, label)) for own in sweep.values()] for label in FIVE[:2]
    }
    test = paired(in_time(sweep[high], OURS), in_time(sweep[middle], OURS))
    return Finding(
        sentence="The reason that the paper supposes: with more budget more of the chosen fail to "
        "be in time (significantly, COCS from B = 5 to 10)",
        measured="; ".join(
            f"{label} " + " → ".join(f"{share.mean:.1%}" for share in own)
            for label, own in shares.items()
        )
        + " of the chosen in time",
        holds=test.verdict == "lower",
        ours=True,
    )


def _enough(utilities: Utilities) -> str:
    chosen = np.mean([run.cohort_sizes.mean() for run in utilities.comparison.runs[OURS]])
    return (
        f"Why B = {_BUDGETS[-1]:g} is not yet too much: it pays for {chosen:.1f} clients a round "
        f"of {utilities.world.num_clients}, so there is always somebody left who would be in time."
    )


def _rises(sweep: Sweep, low: float, high: float) -> str:
    return ", ".join(
        f"{label} {percent(interval(rise(sweep, label, low, high)))}" for label in FIVE
    )


def _per_unit(sweep: Sweep) -> str:
    return ", ".join(
        f"{(sweep[high].total(OURS) - sweep[low].total(OURS)).mean() / (high - low):,.1f} a unit "
        f"from {low:g} to {high:g}"
        for low, high in pairwise(sweep)
    )


def _participants(utilities: Utilities) -> str:
    return f"{utilities.participants(OURS).sum(axis=1).mean():,.0f}"


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _table(sweep: Sweep, what: str) -> Table:
    return Table(
        title="Cumulative utility (Eq. 8), and participants of all edges together",
        columns=("policy", *(f"{what} = {value:g}" for value in sweep)),
        rows=tuple(
            (
                label,
                *(
                    f"{number(interval(own.total(label)), 0)} "
                    f"({own.participants(label).sum(axis=1).mean():,.0f})"
                    for own in sweep.values()
                ),
            )
            for label in FIVE
        ),
        footnotes=(INTERVALS,),
    )


def _picture(sweep: Sweep, what: str) -> "Figure":
    """Utility and success of the five, over what is varied."""
    import matplotlib
    from matplotlib.ticker import PercentFormatter

    from fedmuster.report.figures import style

    first = next(iter(sweep.values())).comparison
    with matplotlib.rc_context(style.STYLE):
        figure = style.new_figure(first, "Cumulative utility and success", height=3.6)
        totals, shares = figure.subplots(1, 2)
        for axes, measure in ((totals, Utilities.total), (shares, in_time)):
            means = []
            for label in FIVE:
                values = np.stack([measure(own, label) for own in sweep.values()], axis=1)
                mean, half_width = mean_and_half_width(values)
                x = np.array(list(sweep))
                curve = Curve(label=label, x=x, mean=mean, half_width=half_width)
                style.draw_curves(axes, first, [curve])
                axes.get_lines()[-1].set_marker("o")
                means.append(mean)
            # Not the bands: those of two seeds would dwarf the means.
            margin = 0.2 * float(np.ptp(means))
            axes.set_ylim(float(np.min(means)) - margin, float(np.max(means)) + margin)
            axes.set_xticks(list(sweep), [f"{value:g}" for value in sweep])
            axes.set(xlabel=what)
        totals.set(title="cumulative utility (Eq. 8)", ylim=(0, None))
        totals.yaxis.set_major_formatter(style.PLAIN)
        shares.set(title="chosen clients who were in time")
        shares.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
        style.add_legend(figure, first, FIVE, below=True)
        return figure


BUDGET = Claim(
    name="cocs-budget",
    source="COCS, Fig. 4d",
    statement="All five achieve higher cumulative utilities with an increasing budget; but from "
    "B = 5 to 10 there is no significant improvement.",
    gather=_budget,
)

DEADLINE = Claim(
    name="cocs-deadline",
    source="COCS, Fig. 4f",
    statement="A longer deadline increases the number of participants, but 8 s performs similarly "
    "to 4 s (5,125 to 5,378), and the increase is less than by the budget.",
    gather=_deadline,
)

"""MAB-CS, Fig. 1 and 2: elapsed time against FedCS, the more resources fluctuate."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from claims.claim import Claim, Evidence, RunCells, play, seeds
from claims.mab_cs import lte_cell as references
from claims.mab_cs.elapsed_findings import (
    CLAIRVOYANT,
    KNOWING_MEANS,
    NO_BONUS,
    ElapsedTimes,
    all_longer,
    all_shorter,
    bandits_shorter,
    element_wise_best,
    exploration_pays,
    naive_longest,
    near_the_means,
    reduction_text,
)
from claims.mab_cs.lte_cell import (
    ALPHA,
    ELEMENT_WISE,
    EXTENDED,
    FEDCS,
    NAIVE,
    REQUEST_FRACTION,
    RIVALS,
    SETTING,
    WIDEST,
    cell,
    element_wise,
    naive,
    policies,
)
from claims.measures import INTERVALS, in_percent
from claims.published import PUBLISHED_RULES
from fedmuster import Random
from fedmuster.core.policy import Policy
from fedmuster.core.records import FloatArray
from fedmuster.experiments.spec import Experiment
from fedmuster.report.curves import Curve, plotted_rounds
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import mean_and_half_width
from fedmuster.report.tables import Table
from fedmuster.worlds import LTECell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ETAS = (None, 0.0, 1.0, 1.5, 1.8, 1.9, 1.95, WIDEST)
_QUICK_ETAS = (None, 1.5, WIDEST)
_NOTHING = 1e-3
"""As alpha or beta, in seconds: what is left of the bonus is a millisecond."""
_GREEDY_NAIVE = f"{NAIVE} without bonus"
_MILD_NAIVE = f"{NAIVE} with alpha = 100"
_BOLD = f"{ELEMENT_WISE} with beta = 500"
_READY_FIRST = f"{FEDCS}'s cohorts, whoever is ready first uploads"
_ZERO_FILLED = f"{EXTENDED}, averages that begin with 0 s"


def _gather(folder: Path, *, quick: bool, run: RunCells) -> Evidence:
    etas = _QUICK_ETAS if quick else _ETAS
    times = {eta: _played(eta, folder, run, quick=quick) for eta in etas}
    still, widest = times[None], times[WIDEST]
    comparison = widest.comparison
    reduction = {
        eta: {label: own.reduction(label) for label in RIVALS} for eta, own in times.items()
    }
    return Evidence(
        setting=f"{SETTING}; selection alone, {comparison.rounds:,} rounds, "
        f"{len(comparison.seeds)} seeds, eta = {', '.join(map(_named, etas))}",
        findings=(
            all_longer(still),
            naive_longest(still),
            all_shorter(widest),
            bandits_shorter(widest),
            element_wise_best(widest),
            exploration_pays(still, widest),
            near_the_means(widest),
        ),
        tables=(_by_eta(times), _others(still, widest)),
        figures={
            "difference": difference_over_rounds(
                {"resources do not fluctuate": still.comparison, f"eta = {WIDEST}": comparison}
            ),
            "reduction": reduction_over_eta(comparison, reduction),
        },
        notes=(_unsaid(comparison), _why_equal(still), _why_naive(still), _AFTERWARDS),
    )


def _played(eta: float | None, folder: Path, run: RunCells, *, quick: bool) -> ElapsedTimes:
    """The four policies and, where resources fluctuate least and most, what explains them."""
    shown = eta in (None, WIDEST)
    chosen: dict[str, Policy[Any]] = policies() | (_variants() if shown else {})
    world = cell(eta)
    experiment = Experiment(
        federation=PUBLISHED_RULES,
        policies=chosen,
        world=world,
        rounds=15 if quick else 500,
        seeds=seeds(2 if quick else 20),
        regret=False,
    )
    comparison = play(experiment, folder / f"eta-{_named(eta)}", run)
    total = {label: comparison.column(label, "seconds").sum(axis=1) for label in chosen}
    if shown:
        total |= _hindsight(comparison, world)
    return ElapsedTimes(comparison=comparison, total=total)


def _variants() -> dict[str, Policy[Any]]:
    return {
        _GREEDY_NAIVE: naive(_NOTHING),
        _MILD_NAIVE: naive(100.0),
        NO_BONUS: element_wise(_NOTHING),
        _BOLD: element_wise(500.0),
        Random.name: Random(),
    }


def _hindsight(comparison: Comparison, world: LTECell) -> dict[str, FloatArray]:
    """What the same rounds would have taken with other choices."""
    found: dict[str, list[float]] = {}
    for place, seed in enumerate(comparison.seeds):
        rounds = references.replay(
            world, seed=seed, rounds=comparison.rounds, request_fraction=REQUEST_FRACTION
        )
        chosen = comparison.runs[FEDCS][place].chosen.reshape(comparison.rounds, -1)
        taken = {
            _READY_FIRST: references.ready_first(*rounds.of(chosen)),
            _ZERO_FILLED: references.zero_filled(rounds),
            KNOWING_MEANS: references.knowing_means(rounds),
            CLAIRVOYANT: references.clairvoyant(rounds),
        }
        for label, seconds in taken.items():
            found.setdefault(label, []).append(float(seconds.sum()))
    return {label: np.array(totals) for label, totals in found.items()}


def _unsaid(comparison: Comparison) -> str:
    return (
        "A reduction is 1 - T / T_FedCS, where T is the elapsed time of all rounds; negative is "
        "longer. The paper does not say how many rounds its figures have, nor how its clients' "
        f"throughputs came about in detail; here it is {comparison.rounds:,} rounds in a cell "
        "whose one free number is calibrated to the stated mean and maximum throughput. "
        "Times are tested as reductions, seed by seed, with Bonferroni's correction within each "
        "sentence."
    )


_AFTERWARDS = (
    "What explains the findings – other parameters, averages that begin with 0 s, and whether the "
    "bonus pays – was added when eight of the seeds had been seen."
)


def _why_equal(still: ElapsedTimes) -> str:
    runs = still.comparison.runs
    same = all(
        np.array_equal(one.chosen, other.chosen)
        for one, other in zip(runs[FEDCS], runs[EXTENDED], strict=True)
    )
    return (
        "Where nothing fluctuates, the mean of a client's last five times is its last time: "
        f"Extended FedCS chose {'the very cohorts' if same else 'not always the cohorts'} of "
        "FedCS. An increase as in Fig. 1 (a) would come about if averages of five began with the "
        f"0 s that clients report at first: {reduction_text(still, _ZERO_FILLED)} in place of "
        f"{reduction_text(still, EXTENDED)}."
    )


def _why_naive(still: ElapsedTimes) -> str:
    base = still.total[FEDCS] / still.comparison.rounds
    increment = float(base.mean()) / still.comparison.cohort_size
    return (
        f"Why Naive MAB-CS takes so long: alpha = {ALPHA:g} s is called similar to T_inc, which "
        f"is {increment:.0f} s here on average, so that its bonus outweighs what it has learned. "
        f"Without fluctuation its reduction is {reduction_text(still, NAIVE)}; with alpha = 100 s "
        f"{reduction_text(still, _MILD_NAIVE)}, and without any bonus "
        f"{reduction_text(still, _GREEDY_NAIVE)}: what is left is due to its payoff, which depends "
        "on who else was there."
    )


def _by_eta(times: Mapping[float | None, ElapsedTimes]) -> Table:
    return Table(
        title="Reduction of elapsed time against FedCS (%)",
        columns=("eta", *RIVALS, "a round of FedCS (s)"),
        rows=tuple(
            (
                _named(eta),
                *(_reduction(own, label) for label in RIVALS),
                f"{own.total[FEDCS].mean() / own.comparison.rounds:,.0f}",
            )
            for eta, own in times.items()
        ),
        footnotes=(INTERVALS,),
    )


def _others(still: ElapsedTimes, widest: ElapsedTimes) -> Table:
    labels = [label for label in still.total if label not in (FEDCS, *RIVALS)]
    return Table(
        title="Reduction of elapsed time against FedCS with other parameters, and in hindsight (%)",
        columns=("who", "no fluctuation", f"eta = {WIDEST}"),
        rows=tuple(
            (label, *(_reduction(own, label) for own in (still, widest))) for label in labels
        ),
        footnotes=(
            "In hindsight: with the same candidates and the times that the same rounds had. The "
            "best cohort is the shortest of all that can be made of the candidates, uploaded in "
            "the best order.",
        ),
    )


def _reduction(times: ElapsedTimes, label: str) -> str:
    return in_percent(times.against(label, comparisons=1).interval, 2)


def _named(eta: float | None) -> str:
    return "none" if eta is None else f"{eta:g}"


CLAIM = Claim(
    name="mab-cs-elapsed",
    source="MAB-CS, Fig. 1–2",
    statement="Without fluctuation all three take longer than FedCS, Naive MAB-CS longest; with "
    "wide fluctuation they are shorter, Naive and Element-wise MAB-CS significantly, and "
    "Element-wise MAB-CS most.",
    gather=_gather,
)


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

"""MAB-CS, Fig. 1 and 2: elapsed time against FedCS, the more resources fluctuate."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedmuster.claims import mab_cs_references as references
from fedmuster.claims.claim import Claim, Evidence, Finding, RunCells, play
from fedmuster.claims.mab_cs_cell import (
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
from fedmuster.claims.mab_cs_pictures import difference_over_rounds, reduction_over_eta
from fedmuster.core.policy import Policy
from fedmuster.core.records import FloatArray
from fedmuster.experiments.spec import Experiment
from fedmuster.policies import Random
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import Difference, interval, paired
from fedmuster.report.tables import Table
from fedmuster.worlds import LTECell

_ETAS = (None, 0.0, 1.0, 1.5, 1.8, 1.9, 1.95, WIDEST)
_QUICK_ETAS = (None, 1.5, WIDEST)
_NO_BONUS = 1e-3
"""As alpha or beta, in seconds: what is left of the bonus is a millisecond."""
_GREEDY_NAIVE = f"{NAIVE} without bonus"
_MILD_NAIVE = f"{NAIVE} with alpha = 100"
_GREEDY = f"{ELEMENT_WISE} without bonus"
_BOLD = f"{ELEMENT_WISE} with beta = 500"
_READY_FIRST = f"{FEDCS}'s cohorts, whoever is ready first uploads"
_ZERO_FILLED = f"{EXTENDED}, averages that begin with 0 s"
_MEANS = "Algorithm 1 on each client's mean times"
_CLAIRVOYANT = "the best cohort and order in hindsight"
_NEAR = 0.05


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Times:
    """Elapsed seconds of whole runs at one eta.

    Args:
        comparison: the runs.
        total: [seeds] by label, references among them.
    """

    comparison: Comparison
    total: Mapping[str, FloatArray]

    def reduction(self, label: str) -> FloatArray:
        """[seeds], ``1 - T / T_FedCS``; exactly 0 where the two took the same."""
        base = self.total[FEDCS]
        return np.asarray((base - self.total[label]) / base)

    def against(self, label: str, other: str = FEDCS, *, comparisons: int) -> Difference:
        """By how much more ``label`` reduces the time than ``other``, seed by seed."""
        return paired(self.reduction(label), self.reduction(other), comparisons=comparisons)


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
            _all_longer(still),
            _naive_longest(still),
            _all_shorter(widest),
            _bandits_shorter(widest),
            _element_wise_best(widest),
            _exploration_pays(still, widest),
            _near_the_means(widest),
        ),
        tables=(_by_eta(times), _others(still, widest)),
        figures={
            "difference": difference_over_rounds(
                {
                    "resources do not fluctuate": still.comparison,
                    f"eta = {WIDEST}": comparison,
                }
            ),
            "reduction": reduction_over_eta(comparison, reduction),
        },
        notes=(_unsaid(comparison), _why_equal(still), _why_naive(still)),
    )


def _played(eta: float | None, folder: Path, run: RunCells, *, quick: bool) -> Times:
    """The four policies and, where resources fluctuate least and most, what explains them."""
    shown = eta in (None, WIDEST)
    chosen: dict[str, Policy[Any]] = policies() | (_variants() if shown else {})
    world = cell(eta)
    experiment = Experiment(
        policies=chosen,
        world=world,
        rounds=40 if quick else 500,
        seeds=tuple(range(2 if quick else 20)),
        regret=False,
    )
    comparison = play(experiment, folder / f"eta-{_named(eta)}", run)
    total = {label: comparison.column(label, "seconds").sum(axis=1) for label in chosen}
    if shown:
        total |= _hindsight(comparison, world)
    return Times(comparison=comparison, total=total)


def _variants() -> dict[str, Policy[Any]]:
    return {
        _GREEDY_NAIVE: naive(_NO_BONUS),
        _MILD_NAIVE: naive(100.0),
        _GREEDY: element_wise(_NO_BONUS),
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
            _MEANS: references.knowing_means(rounds),
            _CLAIRVOYANT: references.clairvoyant(rounds),
        }
        for label, seconds in taken.items():
            found.setdefault(label, []).append(float(seconds.sum()))
    return {label: np.array(totals) for label, totals in found.items()}


def _all_longer(still: Times) -> Finding:
    tests = {label: still.against(label, comparisons=len(RIVALS)) for label in RIVALS}
    return Finding(
        sentence="When the resources did not fluctuate, the training time was longer than that of "
        "FedCS for all three algorithms (significantly)",
        measured=_listed(tests),
        holds=all(test.verdict == "lower" for test in tests.values()),
    )


def _naive_longest(still: Times) -> Finding:
    others = [label for label in RIVALS if label != NAIVE]
    tests = [still.against(NAIVE, other, comparisons=len(others)) for other in others]
    return Finding(
        sentence="Among the three, the increase in training time by Naive MAB-CS was the largest "
        "(significantly, against each)",
        measured=_means(still),
        holds=all(test.verdict == "lower" for test in tests),
    )


def _all_shorter(widest: Times) -> Finding:
    tests = {label: widest.against(label, comparisons=len(RIVALS)) for label in RIVALS}
    return Finding(
        sentence="When resources fluctuate widely, the learning times of the three tend to be "
        f"shorter than that of FedCS (significantly, at eta = {WIDEST})",
        measured=_listed(tests),
        holds=all(test.verdict == "higher" for test in tests.values()),
    )


def _bandits_shorter(widest: Times) -> Finding:
    bandits = (NAIVE, ELEMENT_WISE)
    tests = {label: widest.against(label, comparisons=len(bandits)) for label in bandits}
    return Finding(
        sentence=f"When eta = {WIDEST}, the learning times of Naive and Element-wise MAB-CS are "
        "significantly shorter than that of FedCS",
        measured=_listed(tests),
        holds=all(test.verdict == "higher" for test in tests.values()),
    )


def _element_wise_best(widest: Times) -> Finding:
    others = [label for label in RIVALS if label != ELEMENT_WISE]
    tests = {
        other: widest.against(ELEMENT_WISE, other, comparisons=len(others)) for other in others
    }
    return Finding(
        sentence="When the resources fluctuate widely, Element-wise MAB-CS exhibits the largest "
        f"reduction ratio (significantly, against each, at eta = {WIDEST})",
        measured=f"{_means(widest)}; Element-wise more than "
        + ", ".join(f"{other} by {_percent(test)} points" for other, test in tests.items()),
        holds=all(test.verdict == "higher" for test in tests.values()),
    )


def _exploration_pays(still: Times, widest: Times) -> Finding:
    tests = [own.against(ELEMENT_WISE, _GREEDY, comparisons=2) for own in (still, widest)]
    return Finding(
        sentence="Exploration is not required without fluctuation, and its importance increases "
        "when resources fluctuate widely (tested as: Element-wise MAB-CS is significantly shorter "
        f"than without its bonus at eta = {WIDEST})",
        measured="reduction by the bonus alone, in points: "
        f"{_percent(tests[0])} without fluctuation, {_percent(tests[1])} at eta = {WIDEST}",
        holds=tests[1].verdict == "higher",
    )


def _near_the_means(widest: Times) -> Finding:
    """How much there was to learn."""
    ratio = interval(widest.total[ELEMENT_WISE] / widest.total[_MEANS])
    return Finding(
        sentence=f"At eta = {WIDEST} Element-wise MAB-CS comes within {_NEAR:.0%} of Algorithm 1 "
        "for who knows each client's mean times from the start",
        measured=f"{ratio.mean:.3f} ± {ratio.half_width:.3f} times as long; the reductions are "
        f"{_reduction(widest, ELEMENT_WISE)} and {_reduction(widest, _MEANS)}, and "
        f"{_reduction(widest, _CLAIRVOYANT)} for who knows the luck of each round too",
        holds=ratio.high <= 1 + _NEAR,
        ours=True,
    )


def _unsaid(comparison: Comparison) -> str:
    return (
        "A reduction is 1 - T / T_FedCS, where T is the elapsed time of all rounds; negative is "
        "longer. The paper does not say how many rounds its figures have, nor how its clients' "
        f"throughputs came about in detail; here it is {comparison.rounds:,} rounds in a cell "
        "whose one free number is calibrated to the stated mean and maximum throughput. "
        "Times are tested as reductions, seed by seed, with Bonferroni's correction within each "
        "sentence."
    )


def _why_equal(still: Times) -> str:
    runs = still.comparison.runs
    same = all(
        np.array_equal(one.chosen, other.chosen)
        for one, other in zip(runs[FEDCS], runs[EXTENDED], strict=True)
    )
    return (
        "Where nothing fluctuates, the mean of a client's last five times is its last time: "
        f"Extended FedCS chose {'the very cohorts' if same else 'not always the cohorts'} of "
        "FedCS. An increase as in Fig. 1 (a) would come about if averages of five began with the "
        f"0 s that clients report at first: {_reduction(still, _ZERO_FILLED)} in place of "
        f"{_reduction(still, EXTENDED)}."
    )


def _why_naive(still: Times) -> str:
    base = still.total[FEDCS] / still.comparison.rounds
    increment = float(base.mean()) / still.comparison.cohort_size
    return (
        f"Naive MAB-CS explores too much: alpha = {ALPHA:g} s is called similar to T_inc, which "
        f"is {increment:.0f} s here on average. Without fluctuation its reduction is "
        f"{_reduction(still, NAIVE)}; with alpha = 100 s {_reduction(still, _MILD_NAIVE)}, and "
        f"without any bonus {_reduction(still, _GREEDY_NAIVE)}: what is left is its payoff, which "
        "depends on who was there before."
    )


def _by_eta(times: Mapping[float | None, Times]) -> Table:
    return Table(
        title="Reduction of elapsed time against FedCS (%)",
        columns=("eta", *RIVALS, "a round of FedCS (s)"),
        rows=tuple(
            (
                _named(eta),
                *(_percent(own.against(label, comparisons=1)) for label in RIVALS),
                f"{own.total[FEDCS].mean() / own.comparison.rounds:,.0f}",
            )
            for eta, own in times.items()
        ),
        footnotes=("± half-width of the 95 % Student-t interval over the seeds.",),
    )


def _others(still: Times, widest: Times) -> Table:
    labels = [label for label in still.total if label not in (FEDCS, *RIVALS)]
    return Table(
        title="Reduction of elapsed time against FedCS with other parameters, and in hindsight (%)",
        columns=("who", "no fluctuation", f"eta = {WIDEST}"),
        rows=tuple(
            (label, *(_percent(own.against(label, comparisons=1)) for own in (still, widest)))
            for label in labels
        ),
        footnotes=(
            "In hindsight: with the same candidates and the times that the same rounds had. The "
            "best cohort is the shortest of all that can be made of the candidates, uploaded in "
            "the best order.",
        ),
    )


def _listed(tests: Mapping[str, Difference]) -> str:
    return "reduction: " + ", ".join(
        f"{label} {_percent(test)} %" + (" (equal)" if test.verdict == "equal" else "")
        for label, test in tests.items()
    )


def _means(times: Times) -> str:
    return "reduction: " + ", ".join(f"{label} {_reduction(times, label)}" for label in RIVALS)


def _reduction(times: Times, label: str) -> str:
    return f"{100 * times.reduction(label).mean():.2f} %"


def _percent(test: Difference) -> str:
    return f"{100 * test.interval.mean:.2f} ± {100 * test.interval.half_width:.2f}"


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

"""Findings on what MAB-CS says of elapsed times."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from claims.claim import Finding
from claims.mab_cs.lte_cell import ELEMENT_WISE, FEDCS, NAIVE, RIVALS, WIDEST
from claims.measures import in_percent, number
from fedmuster.core.records import FloatArray
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import Difference, interval, paired

NO_BONUS: Final = f"{ELEMENT_WISE} without bonus"
KNOWING_MEANS: Final = "Algorithm 1 on each client's mean times"
CLAIRVOYANT: Final = "the best cohort and order in hindsight"
_NEAR = 0.05


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ElapsedTimes:
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


def all_longer(still: ElapsedTimes) -> Finding:
    """Fig. 1 (a)."""
    tests = {label: still.against(label, comparisons=len(RIVALS)) for label in RIVALS}
    return Finding(
        sentence="When the resources did not fluctuate, the training time was longer than that of "
        "FedCS for all three algorithms (significantly)",
        measured=_listed(tests),
        holds=all(test.verdict == "lower" for test in tests.values()),
    )


def naive_longest(still: ElapsedTimes) -> Finding:
    """Fig. 1 (a)."""
    others = [label for label in RIVALS if label != NAIVE]
    tests = [still.against(NAIVE, other, comparisons=len(others)) for other in others]
    return Finding(
        sentence="Among the three, the increase in training time by Naive MAB-CS was the largest "
        "(significantly, against each)",
        measured=_means(still),
        holds=all(test.verdict == "lower" for test in tests),
    )


def all_shorter(widest: ElapsedTimes) -> Finding:
    """Fig. 1 (b)."""
    tests = {label: widest.against(label, comparisons=len(RIVALS)) for label in RIVALS}
    return Finding(
        sentence="When resources fluctuate widely, the learning times of the three tend to be "
        f"shorter than that of FedCS (significantly, at eta = {WIDEST})",
        measured=_listed(tests),
        holds=all(test.verdict == "higher" for test in tests.values()),
    )


def bandits_shorter(widest: ElapsedTimes) -> Finding:
    """Fig. 1 (b)."""
    bandits = (NAIVE, ELEMENT_WISE)
    tests = {label: widest.against(label, comparisons=len(bandits)) for label in bandits}
    return Finding(
        sentence=f"When eta = {WIDEST}, the learning times of Naive and Element-wise MAB-CS are "
        "significantly shorter than that of FedCS",
        measured=_listed(tests),
        holds=all(test.verdict == "higher" for test in tests.values()),
    )


def element_wise_best(widest: ElapsedTimes) -> Finding:
    """Fig. 2, at its right end."""
    others = [label for label in RIVALS if label != ELEMENT_WISE]
    tests = {
        other: widest.against(ELEMENT_WISE, other, comparisons=len(others)) for other in others
    }
    return Finding(
        sentence="When the resources fluctuate widely, Element-wise MAB-CS exhibits the largest "
        f"reduction ratio (significantly, against each, at eta = {WIDEST})",
        measured=f"{_means(widest)}; Element-wise more than "
        + ", ".join(
            f"{other} by {in_percent(test.interval, 2)} points" for other, test in tests.items()
        ),
        holds=all(test.verdict == "higher" for test in tests.values()),
    )


def exploration_pays(still: ElapsedTimes, widest: ElapsedTimes) -> Finding:
    """The paper's explanation of Fig. 2."""
    tests = [own.against(ELEMENT_WISE, NO_BONUS, comparisons=2) for own in (still, widest)]
    return Finding(
        sentence="Exploration is not required without fluctuation, and its importance increases "
        "when resources fluctuate widely (tested as: Element-wise MAB-CS is significantly shorter "
        f"than without its bonus at eta = {WIDEST})",
        measured="reduction by the bonus alone, in points: "
        f"{in_percent(tests[0].interval, 2)} without fluctuation, "
        f"{in_percent(tests[1].interval, 2)} at eta = {WIDEST}",
        holds=tests[1].verdict == "higher",
    )


def near_the_means(widest: ElapsedTimes) -> Finding:
    """Element-wise MAB-CS against Algorithm 1 with known mean times."""
    ratio = interval(widest.total[ELEMENT_WISE] / widest.total[KNOWING_MEANS])
    return Finding(
        sentence=f"At eta = {WIDEST} Element-wise MAB-CS comes within {_NEAR:.0%} of Algorithm 1 "
        "for who knows each client's mean times from the start",
        measured=f"{number(ratio, 3)} times as long; the reductions are "
        f"{reduction_text(widest, ELEMENT_WISE)} and {reduction_text(widest, KNOWING_MEANS)}, and "
        f"{reduction_text(widest, CLAIRVOYANT)} for who knows the luck of each round too",
        holds=ratio.high <= 1 + _NEAR,
        ours=True,
    )


def _listed(tests: Mapping[str, Difference]) -> str:
    return "reduction: " + ", ".join(
        f"{label} {in_percent(test.interval, 2)} %"
        + (" (equal)" if test.verdict == "equal" else "")
        for label, test in tests.items()
    )


def _means(times: ElapsedTimes) -> str:
    return "reduction: " + ", ".join(f"{label} {reduction_text(times, label)}" for label in RIVALS)


def reduction_text(times: ElapsedTimes, label: str) -> str:
    """The mean reduction over the seeds."""
    return f"{100 * times.reduction(label).mean():.2f} %"

"""What FedSUV's section 6.3 says of candidates and selections, sentence by sentence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedmuster.claims.claim import Finding
from fedmuster.core.records import BoolArray, FloatArray, IntArray
from fedmuster.policies.fedsuv.candidates import ELIMINATED
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.score_series import plane
from fedmuster.report.statistics import Interval, interval, paired

FEDSUV = "fedsuv"
SOON, LATE = 20, 40
"""What counts as "approximately 30 rounds"."""
_LOW_VALIDITY = 0.4
_MIDDLE = 0.5
_QUARTER = (1 - _MIDDLE) ** 2
"""The upper right quarter of the plane, and how many clients are there."""
_GONE = 0.95


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stay:
    """For how long each client was a candidate in one run of FedSUV, and how often it was chosen.

    Args:
        validity: [K], true.
        utility: [K], true.
        rounds: [K], for how many of the rounds each was a candidate.
        remained: [K], who still is one in the last round.
        eliminated: [K], who left for its validity (and not because another dominates it).
        chosen: [K], how often each was.
    """

    validity: FloatArray
    utility: FloatArray
    rounds: IntArray
    remained: BoolArray
    eliminated: BoolArray
    chosen: IntArray

    @classmethod
    def of(cls, run: Run) -> "Stay":
        """From a journal in which all clients were watched."""
        assert run.scores is not None
        own = plane(run)
        left_by = run.scores.values["left_by"][-1]
        return cls(
            validity=own.validity,
            utility=own.utility,
            rounds=own.candidate_rounds,
            remained=left_by == 0,
            eliminated=left_by == ELIMINATED,
            chosen=own.chosen,
        )

    @property
    def low(self) -> BoolArray:
        """Of whom the paper says that they are gone after 30 rounds."""
        return self.validity < _LOW_VALIDITY

    @property
    def low_rounds(self) -> float:
        """How long they were candidates, on average."""
        return float(self.rounds[self.low].mean())

    @property
    def other_rounds(self) -> float:
        """How long the others were."""
        return float(self.rounds[~self.low].mean())

    @property
    def low_gone(self) -> float:
        """The share of them that is gone after 40 rounds."""
        return float((self.rounds[self.low] < LATE).mean())

    def upper_right(self, weights: IntArray | BoolArray) -> float:
        """The share that is above the middle in both."""
        there = (self.validity > _MIDDLE) & (self.utility > _MIDDLE)
        return float(np.average(there, weights=weights))


Stays = Sequence[Stay]
"""One for each seed."""


def stays_of(comparison: Comparison) -> Stays:
    """Those of FedSUV."""
    return [Stay.of(run) for run in comparison.runs[FEDSUV]]


def over(stays: Stays, of: Callable[[Stay], float]) -> Interval:
    """The mean over seeds."""
    return interval(np.array([of(stay) for stay in stays]))


def leave_around_30(stays: Stays) -> Finding:
    """Fig. 6 (a), its left part."""
    low = over(stays, lambda stay: stay.low_rounds)
    others = over(stays, lambda stay: stay.other_rounds)
    return Finding(
        sentence="Clients with a validity below 40 % are candidates in approximately 30 rounds "
        f"(tested as: on average in {SOON} to {LATE})",
        measured=f"in {number(low)} rounds on average; the others in {number(others)}",
        holds=low.low >= SOON and low.high <= LATE,
    )


def effectively_removed(stays: Stays) -> Finding:
    """What the paper concludes from it."""
    gone = over(stays, lambda stay: stay.low_gone)
    by_validity = over(stays, lambda stay: float(stay.eliminated[stay.low].mean()))
    return Finding(
        sentence="The elimination process effectively removes these clients (tested as: "
        f"{_GONE:.0%} of them are gone after {LATE} rounds, most of them for their validity)",
        measured=f"{gone.mean:.1%} are gone, {by_validity.mean:.1%} for their validity, the others "
        "because another client dominates them",
        holds=gone.mean >= _GONE and by_validity.mean > 0.5,
    )


def upper_right(stays: Stays, whose: Literal["remained", "chosen"]) -> Finding:
    """Fig. 6 (a) and (b), their upper right corners."""
    who, sentence = {
        "remained": ("the remaining candidates", "The remaining candidates tend to be"),
        "chosen": ("the selections", "Selections are more frequent"),
    }[whose]
    share = over(stays, lambda stay: stay.upper_right(getattr(stay, whose)))
    validity = over(stays, lambda stay: _average(stay.validity, getattr(stay, whose)))
    utility = over(stays, lambda stay: _average(stay.utility, getattr(stay, whose)))
    return Finding(
        sentence=f"{sentence} in the upper right corner, where both validity and utility are high "
        f"(tested as: significantly more than {_QUARTER:.0%} are above {_MIDDLE:g} in both, and the"
        f" means of both are significantly above {_MIDDLE:g})",
        measured=f"{percent(share)} of {who} are; mean validity {number(validity, 2)}, mean "
        f"utility {number(utility, 2)}",
        holds=share.low > _QUARTER and min(validity.low, utility.low) > _MIDDLE,
    )


def worth_more(comparison: Comparison) -> Finding:
    """What all of it is for (OPT in section 3)."""
    worth = {label: worth_of(runs) for label, runs in comparison.runs.items()}
    rivals = [label for label in worth if label != FEDSUV]
    beaten = [
        label
        for label in rivals
        if paired(worth[FEDSUV], worth[label], comparisons=len(rivals)).verdict == "higher"
    ]
    return Finding(
        sentence="FedSUV's cohorts are worth more than the others' in the sum of v u, which the "
        "paper sets out to maximise (significantly)",
        measured=", ".join(f"{label} {percent(interval(own))}" for label, own in worth.items())
        + " of what the best cohort is worth",
        holds=beaten == rivals,
        ours=True,
    )


def worth_of(runs: Sequence[Run]) -> FloatArray:
    """[seeds], the expected sum of v u over all choices, as a share of the best cohort's."""
    shares = []
    for run in runs:
        assert run.validity is not None
        assert run.utility is not None
        worth = run.validity * run.utility
        best = np.sort(worth)[-run.cohort_size :].sum() * run.rounds
        shares.append(float(run.selection_counts() @ worth / best))
    return np.array(shares)


def mean_of_chosen(runs: Sequence[Run], what: Literal["validity", "utility"]) -> float:
    """The expected validity or utility of a chosen client, over all choices and seeds."""
    return float(np.mean([_average(getattr(run, what), run.selection_counts()) for run in runs]))


def number(around: Interval, digits: int = 1) -> str:
    """With its half-width."""
    return f"{around.mean:.{digits}f} ± {around.half_width:.{digits}f}"


def percent(around: Interval) -> str:
    """The same of a share."""
    return f"{100 * around.mean:.1f} ± {100 * around.half_width:.1f} %"


def _average(values: FloatArray, weights: IntArray | BoolArray) -> float:
    return float(np.average(values, weights=weights))

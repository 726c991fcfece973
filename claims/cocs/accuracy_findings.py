"""Findings, table and figure on what COCS's section VI says of accuracy and rounds to accuracy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Final, Literal, Self

import numpy as np

from claims.claim import Finding
from claims.cocs.network import ORACLE, OURS, RANDOM, RIVALS
from claims.measures import (
    INTERVALS,
    different_clients,
    each,
    equivalence,
    names,
    number,
    rounds_to,
    settled_accuracy,
)
from fedmuster.core.records import FloatArray
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import Interval, interval, mean_and_half_width, paired
from fedmuster.report.summary import evenness
from fedmuster.report.tables import Table
from fedmuster.report.target import Target, find_target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIMILAR: Final = 2.0
"""Points of accuracy by which two may differ that are called similar."""
_SPEED: Final = "rounds"
_END: Final = "accuracy"
Measure = Literal["rounds", "accuracy"]
_BETTER: Final[Mapping[Measure, str]] = {_SPEED: "lower", _END: "higher"}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Accuracies:
    """Final accuracies and rounds to a target accuracy.

    Args:
        comparison: the runs.
        target: the accuracy to which rounds are counted.
    """

    comparison: Comparison
    target: Target

    @classmethod
    def of(cls, comparison: Comparison, wanted: float | None = None, *, base: str = RANDOM) -> Self:
        """With the wanted target, or else what ``base`` comes to in every seed."""
        return cls(comparison=comparison, target=find_target(comparison, base, wanted))

    @property
    def labels(self) -> tuple[str, ...]:
        """The policies."""
        return self.comparison.labels

    def rounds(self, label: str) -> FloatArray:
        """[seeds], to the target; one more than there are where it is not reached.

        So their mean is that of the rounds spent below the target while somebody looked.
        """
        reached = self.reached(label)
        return np.where(np.isnan(reached), self.comparison.rounds + 1.0, reached)

    def reached(self, label: str) -> FloatArray:
        """[seeds], rounds to the target; NaN where it is not reached."""
        return np.array([rounds_to(self.target, run) for run in self.comparison.runs[label]])

    def accuracy(self, label: str) -> FloatArray:
        """[seeds], in per cent, mean of the evaluations in the last fifth of the rounds."""
        return 100 * np.array([settled_accuracy(run) for run in self.comparison.runs[label]])

    def measured(self, label: str, measure: Measure) -> FloatArray:
        """[seeds], rounds to the target or final accuracy."""
        return self.rounds(label) if measure == _SPEED else self.accuracy(label)

    def better(self, label: str, other: str, measure: Measure, *, comparisons: int = 1) -> bool:
        """Whether ``label`` is significantly superior to the other."""
        values = self.measured(label, measure), self.measured(other, measure)
        return paired(*values, comparisons=comparisons).verdict == _BETTER[measure]

    def beaten(self, label: str, others: Sequence[str], measure: Measure) -> list[str]:
        """Those of the others to whom ``label`` is significantly superior."""
        count = len(others)
        return [o for o in others if self.better(label, o, measure, comparisons=count)]

    def superior(self, label: str, others: Sequence[str], measure: Measure) -> list[str]:
        """Those of the others who are significantly superior to ``label``."""
        count = len(others)
        return [o for o in others if self.better(o, label, measure, comparisons=count)]

    def text(self, measure: Measure, labels: Sequence[str] | None = None) -> str:
        """Means of each policy."""
        one = self.rounds_text if measure == _SPEED else self.accuracy_text
        return ", ".join(f"{label} {one(label)}" for label in labels or self.labels)

    def rounds_text(self, label: str) -> str:
        """Rounds to the target, and in how many seeds if not in all."""
        count = int(np.isfinite(self.reached(label)).sum())
        total = len(self.comparison.seeds)
        text = number(interval(self.rounds(label)), 0)
        return text if count == total else f"{text} ({count} of {total} seeds)"

    def accuracy_text(self, label: str) -> str:
        """The final accuracy with its interval."""
        return f"{number(interval(self.accuracy(label)), 2)} %"


def oracle_first(accuracies: Accuracies, measure: Measure) -> Finding:
    """Fig. 4a, 7."""
    others = [label for label in accuracies.labels if label != ORACLE]
    beaten = accuracies.beaten(ORACLE, others, measure)
    said = (
        f"in the fastest convergence: fewer rounds to {accuracies.target.text}"
        if measure == _SPEED
        else "in the highest accuracy"
    )
    return Finding(
        sentence=f"Oracle results {said} (significantly, against each of the other four)",
        measured=f"{accuracies.text(measure)}; significantly better than {names(beaten)}",
        holds=beaten == others,
    )


def ours_ahead(
    accuracies: Accuracies, measure: Measure, words: str, *, ours: bool = False
) -> Finding:
    """Fig. 4a, 7, Table II: COCS against CUCB, LinUCB and Random."""
    ahead = accuracies.beaten(OURS, RIVALS, measure)
    behind = accuracies.superior(OURS, RIVALS, measure)
    return Finding(
        sentence=f"{words} (significantly, against each of the three)",
        measured=f"{accuracies.text(measure, (OURS, *RIVALS))}; significantly better than "
        f"{names(ahead)}, significantly worse than {names(behind)}",
        holds=ahead == list(RIVALS),
        ours=ours,
    )


def gap(accuracies: Accuracies, label: str, other: str) -> Interval:
    """By how many points ``label`` is ahead, with the interval of two one-sided tests."""
    return equivalence(accuracies.accuracy(label), accuracies.accuracy(other))


def near_oracle(accuracies: Accuracies) -> Finding:
    """Fig. 4a."""
    apart = gap(accuracies, OURS, ORACLE)
    return Finding(
        sentence="COCS achieves similar testing accuracy to Oracle in the last rounds (tested as: "
        f"within ± {SIMILAR:g} points)",
        measured=f"COCS less Oracle: between {apart.low:.2f} and {apart.high:.2f} points",
        holds=apart.low > -SIMILAR and apart.high < SIMILAR,
    )


def random_last(accuracies: Accuracies) -> Finding:
    """Fig. 4a."""
    others = [label for label in accuracies.labels if label != RANDOM]
    above = accuracies.superior(RANDOM, others, _END)
    return Finding(
        sentence="Random is considerably inferior to all others (its accuracy is significantly "
        "lower)",
        measured=f"{accuracies.text(_END)}; significantly higher than Random: {names(above)}",
        holds=above == others,
    )


def participants(run: Run) -> float:
    """The mean number of replies in time, a round."""
    return float(run.columns["participants"].mean())


def evenly(run: Run) -> float:
    """Jain's index of how often each client was chosen."""
    return evenness(run.selection_counts())


def more_is_better(accuracies: Accuracies) -> Finding:
    """What the paper's utility supposes, asked of the policies themselves."""
    return _go_together(accuracies, participants, "Who has more participants a round")


def even_is_better(accuracies: Accuracies) -> Finding:
    """What it leaves out: that clients have different data."""
    return _go_together(accuracies, evenly, "Who chooses clients more equally often")


def _go_together(accuracies: Accuracies, of: Callable[[Run], float], who: str) -> Finding:
    """Whether something and accuracy have the same order of policies, seed by seed."""
    cause = each(accuracies.comparison, of)
    agreements = [
        np.sign(cause[one] - cause[two])
        * np.sign(accuracies.accuracy(one) - accuracies.accuracy(two))
        for one, two in combinations(accuracies.labels, 2)
    ]
    around = interval(np.mean(agreements, axis=0))
    return Finding(
        sentence=f"{who} ends with more accuracy (tested as: Kendall's rank correlation of the two "
        "over the five policies is significantly above 0)",
        measured=f"{number(around, 2)} on average over seeds",
        holds=around.low > 0,
        ours=True,
    )


def table(accuracies: Accuracies, title: str, published: Mapping[str, str] | None = None) -> Table:
    """Table II, with participants and evenness of choices."""
    measured = {
        "participants a round": (each(accuracies.comparison, participants), "{:.2f}"),
        "different clients": (each(accuracies.comparison, different_clients), "{:.1f}"),
        "evenness of choices": (each(accuracies.comparison, evenly), "{:.2f}"),
    }
    paper = () if published is None else ("in the paper",)
    return Table(
        title=title,
        columns=(
            "policy",
            "final accuracy",
            f"rounds to {accuracies.target.text}",
            *paper,
            *measured,
        ),
        rows=tuple(
            (
                label,
                accuracies.accuracy_text(label),
                accuracies.rounds_text(label),
                *(() if published is None else (published.get(label, "–"),)),
                *(form.format(values[label].mean()) for values, form in measured.values()),
            )
            for label in accuracies.labels
        ),
        footnotes=(
            INTERVALS,
            "Final: the mean of the evaluations in the last fifth of the rounds. A run "
            f"that does not reach the target within {accuracies.comparison.rounds:,} rounds counts "
            f"as {accuracies.comparison.rounds + 1:,}. Evenness is Jain's index: 1 if all clients "
            "are chosen equally often.",
        ),
    )


def side_by_side(runs: Mapping[str, tuple[Comparison, str]]) -> Comparison:
    """Runs of several comparisons as one, each under a new label."""
    first = next(iter(runs.values()))[0]
    return replace(
        first, runs={label: whole.runs[policy] for label, (whole, policy) in runs.items()}
    )


def accuracy_over_rounds(accuracies: Accuracies) -> "Figure":
    """Accuracy with bands; and in the end, against participants a round."""
    import matplotlib

    from fedmuster.report.figures import style
    from fedmuster.report.figures.curve_figures import draw_evaluations

    comparison = accuracies.comparison
    many = each(comparison, participants)
    with matplotlib.rc_context(style.STYLE):
        figure = style.new_figure(comparison, "Test accuracy", height=3.8)
        curves, ends = figure.subplots(1, 2, width_ratios=(3, 2))
        draw_evaluations(curves, comparison, "accuracy", "round", accuracies.target)
        for line in curves.get_lines():
            label = str(line.get_label())
            if label not in many:
                continue
            x, y = (
                mean_and_half_width(values) for values in (many[label], accuracies.accuracy(label))
            )
            ends.errorbar(
                x[0], y[0], xerr=x[1], yerr=y[1], color=line.get_color(), marker="o", capsize=2
            )
        ends.set(
            title="in the end, against participants a round",
            xlabel="participants a round",
            ylabel="test accuracy (%)",
            xlim=(0, None),
        )
        low, high = ends.get_ylim()
        ends.set_ylim(max(low, 0.0), min(high, 100.0))  # two seeds may have any interval
        curves.set_title("over rounds")
        style.add_legend(figure, comparison, comparison.labels, below=True)
        return figure

"""The numbers of a comparison: each policy's means over seeds and its distance to the baseline."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import IntArray
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import Difference, Interval, interval, paired


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One number of a run.

    Args:
        key: its name in files.
        title: its name for people.
        unit: e.g. "s"; empty for a plain number.
        of: computes it.
        words: what a policy is that has less or more of it than the baseline; None where the
            difference is not tested.
    """

    key: str
    title: str
    unit: str
    of: Callable[[Run], float]
    words: tuple[str, str] | None = None


def evenness(counts: IntArray) -> float:
    """Jain's index ``(sum x)² / (K sum x²)``: 1 if all take part alike, 1/K if one does all.

    Example:
        >>> evenness(np.array([3, 3, 3, 3])), evenness(np.array([8, 0, 0, 0]))
        (1.0, 0.25)
    """
    shares = counts / max(counts.sum(), 1)
    squares = float(shares @ shares)
    return 1.0 / (len(counts) * squares) if squares > 0 else 1.0


def _completed_percent(run: Run) -> float:
    asked = run.cohort_sizes.sum()
    return 100.0 * float(run.columns["num_completed"].sum() / asked) if asked else 100.0


METRICS = (
    Metric(
        key="simulated_seconds",
        title="Simulated time",
        unit="s",
        of=lambda run: float(run.columns["seconds"].sum()),
        words=("faster", "slower"),
    ),
    Metric(
        key="round_seconds",
        title="Mean round",
        unit="s",
        of=lambda run: float(run.columns["seconds"].mean()),
    ),
    Metric(
        key="regret",
        title="Regret",
        unit="",
        of=lambda run: float(run.columns["regret"].sum()),
        words=("lower", "higher"),
    ),
    Metric(
        key="reward",
        title="Mean reward",
        unit="",
        of=lambda run: float(run.columns["reward"].mean()),
    ),
    Metric(key="completed_percent", title="Completed", unit="%", of=_completed_percent),
    Metric(
        key="evenness",
        title="Evenness",
        unit="",
        of=lambda run: evenness(run.selection_counts()),
    ),
)

TESTED = tuple(metric for metric in METRICS if metric.words is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySummary:
    """By metric key: the means of a policy and its differences to the baseline, if it has any."""

    label: str
    means: Mapping[str, Interval]
    differences: Mapping[str, Difference]


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """All numbers of a comparison."""

    comparison: Comparison
    baseline: str
    policies: tuple[PolicySummary, ...]


def summarise(comparison: Comparison, baseline: str | None = None) -> Summary:
    """Means over seeds, and paired differences to ``baseline`` (see Comparison.baseline)."""
    against = comparison.baseline(baseline)
    values = {
        label: {metric.key: np.array([metric.of(run) for run in runs]) for metric in METRICS}
        for label, runs in comparison.runs.items()
    }
    policies = []
    for label, own in values.items():
        differences = {
            metric.key: paired(
                own[metric.key],
                values[against][metric.key],
                comparisons=len(values) - 1,
            )
            for metric in TESTED
            if label != against
            and not np.isnan(own[metric.key] - values[against][metric.key]).any()
        }
        means = {key: interval(numbers) for key, numbers in own.items()}
        policies.append(PolicySummary(label=label, means=means, differences=differences))
    return Summary(comparison=comparison, baseline=against, policies=tuple(policies))

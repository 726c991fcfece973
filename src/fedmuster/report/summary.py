"""The numbers of a comparison: each policy's means over seeds and its distance to the baseline."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.privacy.budget import Privacy
from fedmuster.report.edge_metrics import network_metrics
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import Difference, Interval, Metric, interval, paired
from fedmuster.report.target import Target, final, find_target


def metrics(comparison: Comparison, target: Target | None) -> tuple[Metric, ...]:
    """What can be said of the runs of a comparison: of the model if one was trained, …"""
    judged = any(comparison.judged(label) for label in comparison.labels)
    return (
        *(_accuracy() if comparison.classifies else ()),
        *(_loss() if comparison.trained else ()),
        *(() if target is None else (_time_to(target),)),
        *(() if comparison.privacy is None else _spending(comparison, comparison.privacy)),
        *network_metrics(comparison),
        *((_ROUNDS,) if comparison.uneven else ()),
        *_time(comparison),
        *((_regret(a_round=comparison.uneven),) if judged else ()),
        # With edge servers it is the utility, which is there without a judge.
        *((_REWARD,) if judged and comparison.network is None else ()),
        *_participation(),
    )


def evenness(counts: IntArray) -> float:
    """Jain's index ``(sum x)² / (K sum x²)``: 1 if all take part alike, 1/K if one does all.

    Example:
        >>> evenness(np.array([3, 3, 3, 3])), evenness(np.array([8, 0, 0, 0]))
        (1.0, 0.25)
    """
    shares = counts / max(counts.sum(), 1)
    squares = float(shares @ shares)
    return 1.0 / (len(counts) * squares) if squares > 0 else 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySummary:
    """One policy, by metric key.

    Args:
        label: of the policy.
        values: one number a seed.
        means: over the seeds; NaN where a seed has none.
        differences: to the baseline, where there are any.
    """

    label: str
    values: Mapping[str, FloatArray]
    means: Mapping[str, Interval]
    differences: Mapping[str, Difference]

    def reached(self, key: str) -> int:
        """In how many seeds there is such a number."""
        return int(np.isfinite(self.values[key]).sum())


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """All numbers of a comparison; ``target`` is None where no model was trained."""

    comparison: Comparison
    baseline: str
    target: Target | None
    metrics: tuple[Metric, ...]
    policies: tuple[PolicySummary, ...]

    @property
    def tested(self) -> tuple[Metric, ...]:
        """The metrics whose differences are tested."""
        return tuple(metric for metric in self.metrics if metric.words is not None)


def summarise(
    comparison: Comparison, baseline: str | None = None, target: float | None = None
) -> Summary:
    """Means over seeds, and paired differences to a baseline.

    Args:
        comparison: the runs.
        baseline: see :meth:`Comparison.baseline`.
        target: see :func:`fedmuster.report.target.find_target`.
    """
    against = comparison.baseline(baseline)
    aim = None
    if comparison.evaluated:
        aim = find_target(comparison, against, target)
    elif target is not None:
        raise ConfigError(
            f"target = {target}, but no model was trained in every run: leave it out",
            key=("target",),
        )
    measured = metrics(comparison, aim)
    values = {
        label: {metric.key: np.array([metric.of(run) for run in runs]) for metric in measured}
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
            for metric in measured
            if metric.words is not None
            and label != against
            and not np.isnan(own[metric.key] - values[against][metric.key]).any()
        }
        means = {key: interval(numbers) for key, numbers in own.items()}
        policies.append(
            PolicySummary(label=label, values=own, means=means, differences=differences)
        )
    return Summary(
        comparison=comparison,
        baseline=against,
        target=aim,
        metrics=measured,
        policies=tuple(policies),
    )


def _accuracy() -> tuple[Metric, ...]:
    return (
        Metric(
            key="final_accuracy_percent",
            title="Final accuracy",
            unit="%",
            of=lambda run: 100 * final(run, "accuracy"),
            about="learning",
            words=("lower", "higher"),
            better="higher",
        ),
    )


def _loss() -> tuple[Metric, ...]:
    return (
        Metric(
            key="final_loss",
            title="Final loss",
            unit="",
            of=lambda run: final(run, "loss"),
            about="learning",
            words=("lower", "higher"),
            better="lower",
        ),
        Metric(
            key="best_loss",
            title="Best loss",
            unit="",
            of=lambda run: float(np.fmin.reduce(run.columns["loss"])),
            about="learning",
        ),
    )


def _time_to(target: Target) -> Metric:
    return Metric(
        key="seconds_to_target",
        title=f"Time to {target.text}",
        unit="s",
        of=target.seconds,
        about="learning",
        words=("faster", "slower"),
        better="lower",
        may_be_missing=True,
    )


def _spending(comparison: Comparison, privacy: Privacy) -> tuple[Metric, ...]:
    """What clients have spent in the end; NaN for a policy without privacy."""
    unit = privacy.mechanism.currency
    about: Literal["privacy"] = "privacy"
    spent = [
        Metric(
            key=f"{column}_at_end",
            title=f"{who} {unit.title} spent",
            unit="",
            of=partial(_at_end, column),
            about=about,
            words=("less", "more"),
            better="lower",
        )
        for column, who in (("spent_max", "Largest"), ("spent_mean", "Mean"))
    ]
    says_it_all = unit.is_epsilon and not unit.per_coordinate
    if not says_it_all and comparison.num_parameters is not None:
        spent.append(_whole_update(privacy, comparison.num_parameters))
    exhausted = Metric(
        key="exhausted_at_end",
        title="Clients exhausted",
        unit="",
        of=lambda run: _at_end("num_exhausted", run) if run.private else math.nan,
        about=about,
        words=("fewer", "more"),
        better="lower",
    )
    return (*spent, exhausted)


def _at_end(column: str, run: Run) -> float:
    return float(run.columns[column][-1])


def _whole_update(privacy: Privacy, num_parameters: int) -> Metric:
    """The ε that the updates of the client that spent most really get, where ε is not counted."""

    def of(run: Run) -> float:
        spent = _at_end("spent_max", run)
        if math.isnan(spent):
            return spent
        return privacy.mechanism.whole_vector_epsilon(spent, num_parameters)

    return Metric(
        key="whole_update_epsilon_at_end",
        title="As ε of whole updates",
        unit="",
        of=of,
        about="privacy",
    )


_ROUNDS = Metric(
    key="rounds",
    title="Rounds",
    unit="",
    of=lambda run: float(run.rounds),
    about="selection",
    words=("fewer", "more"),
    better="higher",
)


def _time(comparison: Comparison) -> tuple[Metric, ...]:
    """Where all runs end by time there is nothing to compare in it.

    And one that ended early has not been faster: then compare how long a round takes.
    """
    tested = not comparison.uneven
    ended_early = comparison.uneven and not comparison.by_time
    return (
        Metric(
            key="wall_clock_seconds" if comparison.real else "simulated_seconds",
            title=comparison.clock.capitalize(),
            unit="s",
            of=lambda run: float(run.columns["seconds"].sum()),
            about="selection",
            words=("faster", "slower") if tested else None,
            better="lower" if tested else None,
        ),
        Metric(
            key="round_seconds",
            title="Mean round",
            unit="s",
            of=lambda run: float(run.columns["seconds"].mean()),
            about="selection",
            words=("faster", "slower") if ended_early else None,
            better="lower" if ended_early else None,
        ),
    )


def _regret(*, a_round: bool) -> Metric:
    """In all, or a round where runs differ in their number of rounds."""
    return Metric(
        key="regret_a_round" if a_round else "regret",
        title="Regret a round" if a_round else "Regret",
        unit="",
        of=lambda run: float(run.columns["regret"].sum()) / (run.rounds if a_round else 1),
        about="selection",
        words=("lower", "higher"),
        better="lower",
    )


_REWARD = Metric(
    key="reward",
    title="Mean reward",
    unit="",
    of=lambda run: float(run.columns["reward"].mean()),
    about="selection",
)


def _participation() -> tuple[Metric, ...]:
    return (
        Metric(
            key="completed_percent",
            title="Completed",
            unit="%",
            of=_completed_percent,
            about="selection",
        ),
        Metric(
            key="evenness",
            title="Evenness",
            unit="",
            of=_evenness,
            about="selection",
        ),
    )


def _evenness(run: Run) -> float:
    counts = run.selection_counts()
    return evenness(counts if run.present is None else counts[run.present])


def _completed_percent(run: Run) -> float:
    asked = run.cohort_sizes.sum()
    return 100.0 * float(run.columns["num_completed"].sum() / asked) if asked else 100.0

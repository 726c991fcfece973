"""The numbers of a comparison: each policy's means over seeds and its distance to the baseline."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal

import numpy as np

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.privacy.budget import Privacy
from fedmuster.report.costs import costs, costs_to_target, end_mean, end_swing
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.statistics import Difference, Interval, interval, paired
from fedmuster.report.target import Target, final, find_target

About = Literal["learning", "costs", "costs_to_target", "privacy", "network", "selection"]
_LEVELS, _SPEEDS = ("lower", "higher"), ("faster", "slower")
_COUNTS, _AMOUNTS = ("fewer", "more"), ("less", "more")


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a run.

    Args:
        key: its name in files.
        title: its name for people.
        about: which table it belongs to.
        of: computes it; NaN where a run has none.
        words: what a policy is that has less or more of it than the baseline; None where the
            difference is not tested.
        better: whether less or more of it is good; None where neither is.
        unit: e.g. "s"; empty for a plain number.
        may_be_missing: whether a run may lack it although it was measured: a target never reached.
        absent: what tables say in place of a number that a run cannot have; empty if it can.
    """

    key: str
    title: str
    about: About
    of: Callable[[Run], float]
    words: tuple[str, str] | None = None
    better: Literal["lower", "higher"] | None = None
    unit: str = ""
    may_be_missing: bool = False
    absent: Callable[[Run], str] = lambda _: ""

    @property
    def heading(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def value(self, run: Run) -> float:
        """The number of a run; NaN where it has none."""
        return math.nan if self.absent(run) else self.of(run)


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySummary:
    """One policy, by metric key.

    Args:
        label: of the policy.
        values: one number a seed.
        means: over the seeds; NaN where a seed has none.
        differences: to the baseline, where there are any.
        absent: what tables say in place of numbers that its runs cannot have.
    """

    label: str
    values: Mapping[str, FloatArray]
    means: Mapping[str, Interval]
    differences: Mapping[str, Difference]
    absent: Mapping[str, str] = field(default_factory=dict)

    def reached(self, key: str) -> int:
        """In how many seeds there is such a number."""
        return int(np.isfinite(self.values[key]).sum())

    def everywhere(self, key: str) -> bool:
        """Whether there is such a number in every seed."""
        return self.reached(key) == len(self.values[key])


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

    @property
    def base(self) -> PolicySummary:
        """The policy that the others are compared with."""
        return next(policy for policy in self.policies if policy.label == self.baseline)


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
    measured = tuple(metrics(comparison, aim))
    values = {
        label: {metric.key: np.array([metric.value(run) for run in runs]) for metric in measured}
        for label, runs in comparison.runs.items()
    }
    base = values[against]
    policies = [
        PolicySummary(
            label=label,
            values=own,
            means={key: interval(numbers) for key, numbers in own.items()},
            differences={
                metric.key: paired(own[metric.key], base[metric.key], comparisons=len(values) - 1)
                for metric in measured
                if metric.words is not None
                and label != against
                and not np.isnan(own[metric.key] - base[metric.key]).any()
            },
            absent={
                metric.key: words
                for metric in measured
                if (words := metric.absent(comparison.runs[label][0]))
            },
        )
        for label, own in values.items()
    ]
    return Summary(
        comparison=comparison,
        baseline=against,
        target=aim,
        metrics=measured,
        policies=tuple(policies),
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


def metrics(comparison: Comparison, target: Target | None) -> Iterator[Metric]:
    """The numbers that the runs of a comparison have, in the order of the tables' columns."""
    yield from _learning(comparison, target)
    if comparison.round_less:
        yield from _costs(comparison, target)
    if comparison.privacy is not None:
        yield from _spending(comparison.privacy, comparison.num_parameters)
    if comparison.network is not None:
        yield from _at_edges(comparison, limited=comparison.network.limited)
    if comparison.round_less:
        yield Metric(
            "answers_a_second",
            "Answers used a second",
            "selection",
            lambda run: _ratio(costs(run).used, costs(run).seconds),
            _COUNTS,
            "higher",
        )
    elif comparison.uneven:
        yield Metric(
            "rounds", "Rounds", "selection", lambda run: float(run.rounds), _COUNTS, "higher"
        )
    yield from _time(comparison)
    if comparison.any_judged:
        yield _total("regret", "selection", "lower", comparison)
        if comparison.network is None:  # with edge servers reward is the utility, told above
            yield Metric(
                "reward",
                "Mean reward",
                "selection",
                lambda run: _mean(run, "reward"),
                absent=_judged_in_rounds,
            )
    yield Metric("completed_percent", "Completed", "selection", _completed_percent, unit="%")
    yield Metric("evenness", "Evenness", "selection", _evenness)


def _learning(comparison: Comparison, target: Target | None) -> Iterator[Metric]:
    if comparison.classifies:
        yield Metric(
            "final_accuracy_percent",
            "Final accuracy",
            "learning",
            lambda run: 100 * final(run, "accuracy"),
            _LEVELS,
            "higher",
            unit="%",
        )
    if comparison.round_less and comparison.evaluated:
        yield from _at_the_end(comparison)
    if comparison.trained:
        yield Metric(
            "final_loss", "Final loss", "learning", lambda run: final(run, "loss"), _LEVELS, "lower"
        )
        yield Metric(
            "best_loss",
            "Best loss",
            "learning",
            lambda run: float(np.fmin.reduce(run.columns["loss"])),
        )
    if target is not None:
        yield Metric(
            "seconds_to_target",
            f"Time to {target.text}",
            "learning",
            target.seconds,
            _SPEEDS,
            "lower",
            unit="s",
            may_be_missing=True,
        )


def _at_the_end(comparison: Comparison) -> Iterator[Metric]:
    """How good the model is in the last tenth of a run, and how much that swings."""
    column = "accuracy" if comparison.classifies else "loss"
    times, unit = (100, "%") if comparison.classifies else (1, "")
    ending = "_percent" * comparison.classifies
    yield Metric(
        f"end_{column}{ending}",
        f"{column.capitalize()} in the last tenth",
        "learning",
        lambda run: times * end_mean(run, column),
        _LEVELS,
        "higher" if comparison.classifies else "lower",
        unit=unit,
    )
    yield Metric(
        f"end_{column}_swing{ending}",
        "Swing",
        "learning",
        lambda run: times * end_swing(run, column),
        _LEVELS,
        "lower",
        unit=unit,
    )


_COST_TITLES: Final = {
    "started": ("Updates started", 1.0, ""),
    "used": ("Used", 1.0, ""),
    "wasted": ("Wasted", 1.0, ""),
    "server_updates": ("Server updates", 1.0, ""),
    "bytes_down": ("Down", 1e-6, "MB"),
    "bytes_up": ("Up", 1e-6, "MB"),
    "client_seconds": ("Client work", 1.0, "s"),
    "lost_client_seconds": ("Work lost", 1.0, "s"),
    "mean_concurrency": ("Mean concurrency", 1.0, ""),
}
"""Of the fields of :class:`Costs`: what they are called, in which unit of how many."""


def _costs(comparison: Comparison, target: Target | None) -> Iterator[Metric]:
    """What runs cost until their end, and until their target."""

    def of(run: Run, name: str, times: float, about: About) -> float:
        spent = costs(run) if about == "costs" else costs_to_target(run, target)
        return math.nan if spent is None else times * float(getattr(spent, name))

    def unknown(run: Run, name: str) -> str:
        return "not known" if name.endswith("client_seconds") and run.jobs is None else ""

    tables: tuple[About, ...] = ("costs",) if target is None else ("costs", "costs_to_target")
    for about in tables:
        for name, (title, times, unit) in _COST_TITLES.items():
            if name.startswith("bytes") and comparison.num_parameters is None:
                continue
            yield Metric(
                f"{about}_{name.replace('bytes', 'megabytes')}",
                title,
                about,
                partial(of, name=name, times=times, about=about),
                unit=unit,
                may_be_missing=about == "costs_to_target",
                absent=partial(unknown, name=name),
            )


def _spending(privacy: Privacy, num_parameters: int | None) -> Iterator[Metric]:
    """What clients have spent in the end; NaN for a policy without privacy."""
    mechanism = privacy.mechanism
    unit = mechanism.currency

    def whole_update(run: Run) -> float:
        """The ε that the updates of the client that spent most really get."""
        spent = _at_end("spent_max", run)
        if math.isnan(spent) or num_parameters is None:
            return math.nan
        return mechanism.whole_vector_epsilon(spent, num_parameters)

    for column, who in (("spent_max", "Largest"), ("spent_mean", "Mean")):
        yield Metric(
            f"{column}_at_end",
            f"{who} {unit.title} spent",
            "privacy",
            partial(_at_end, column),
            _AMOUNTS,
            "lower",
        )
    says_it_all = unit.is_epsilon and not unit.per_coordinate
    if not says_it_all and num_parameters is not None:
        yield Metric(
            "whole_update_epsilon_at_end", "As ε of whole updates", "privacy", whole_update
        )
    yield Metric(
        "exhausted_at_end",
        "Clients exhausted",
        "privacy",
        lambda run: _at_end("num_exhausted", run) if run.private else math.nan,
        _COUNTS,
        "lower",
    )


def _at_edges(comparison: Comparison, *, limited: bool) -> Iterator[Metric]:
    if comparison.in_rounds:
        yield _total("utility", "network", "higher", comparison)
    yield Metric(
        "participants_a_round",
        f"Participants {comparison.a_step}",
        "network",
        lambda run: _mean(run, "participants"),
    )
    yield Metric(
        "in_time_percent", "Chosen in time", "network", _in_time, _LEVELS, "higher", unit="%"
    )
    if limited:
        yield Metric("budget_spent_percent", "Budget spent", "network", _budget_spent, unit="%")
        yield Metric(
            "largest_budget_share_percent", "Largest share", "network", _largest_share, unit="%"
        )


def _time(comparison: Comparison) -> Iterator[Metric]:
    """Where all runs end by time there is nothing to compare in it.

    A run that ended early has not been faster: then compare how long a round takes. Rounds and
    other aggregations take different amounts of work, so their times compare nothing.
    """
    alike = not comparison.round_less
    tested = alike and not comparison.uneven
    ended_early = alike and comparison.uneven and not comparison.by_time
    yield Metric(
        "wall_clock_seconds" if comparison.real else "simulated_seconds",
        comparison.clock.capitalize(),
        "selection",
        lambda run: float(run.columns["seconds"].sum()),
        _SPEEDS if tested else None,
        "lower" if tested else None,
        unit="s",
    )
    yield Metric(
        "round_seconds",
        "Mean round" if alike else "Mean time to an aggregation",
        "selection",
        lambda run: _mean(run, "seconds"),
        _SPEEDS if ended_early else None,
        "lower" if ended_early else None,
        unit="s",
    )


def _total(
    column: str,
    about: Literal["network", "selection"],
    better: Literal["lower", "higher"],
    comparison: Comparison,
) -> Metric:
    """The sum over all rounds, or its mean where runs differ in their number of rounds."""
    a_round = comparison.uneven
    return Metric(
        f"{column}_a_round" if a_round else column,
        column.capitalize() + " a round" * a_round,
        about,
        lambda run: float(run.columns[column].sum()) / (run.rounds if a_round else 1),
        _LEVELS,
        better,
        absent=_judged_in_rounds,
    )


def _judged_in_rounds(run: Run) -> str:
    """Regret, reward and utility judge cohorts."""
    return "" if run.jobs is None else "rounds only"


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan


def _at_end(column: str, run: Run) -> float:
    return float(run.columns[column][-1])


def _mean(run: Run, column: str) -> float:
    return float(run.columns[column].mean())


def _completed_percent(run: Run) -> float:
    asked = run.cohort_sizes.sum()
    return 100.0 * float(run.columns["num_completed"].sum() / asked) if asked else 100.0


def _evenness(run: Run) -> float:
    counts = run.selection_counts()
    return evenness(counts if run.present is None else counts[run.present])


def _in_time(run: Run) -> float:
    """NaN where nobody was ever chosen."""
    in_time = run.at_edges.in_time
    return 100.0 * float(in_time.mean()) if len(in_time) else math.nan


def _budget_spent(run: Run) -> float:
    share = run.columns["budget_share"]
    known = share[~np.isnan(share)]
    return 100.0 * float(known.mean()) if len(known) else math.nan


def _largest_share(run: Run) -> float:
    return 100.0 * float(np.fmax.reduce(run.at_edges.share, axis=None))

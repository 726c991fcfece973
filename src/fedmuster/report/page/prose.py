"""What the comparison says, in a few sentences that claim no more than the numbers do."""

from collections.abc import Iterable

from fedmuster.report.metric import Metric
from fedmuster.report.runs import Comparison
from fedmuster.report.summary import PolicySummary, Summary
from fedmuster.report.tables import count, difference_text, mean_text, who_is_chosen

_FIRST = (
    "seconds_to_target",
    "utility",
    "utility_a_round",
    "rounds",
    "simulated_seconds",
    "wall_clock_seconds",
)
"""What the opening tells: the first of these that was measured."""


def headline(summary: Summary) -> str:
    """The page's title.

    Its subject is what was learned, or else where.
    """
    comparison = summary.comparison
    training = comparison.experiment.training
    labels = comparison.labels
    who = labels[0] if len(labels) == 1 else count(len(labels), "policy", "policies")
    if comparison.real:
        return f"{who} in a Flower federation"
    subject = comparison.experiment.world.name if training is None else training.data.name
    return f"{who} on {subject}"


def opening(summary: Summary) -> str:
    """One paragraph: what was run, and what came out first."""
    return " ".join([_setting(summary.comparison), *_findings(summary)])


def _setting(comparison: Comparison) -> str:
    experiment = comparison.experiment
    if comparison.by_time:
        length = f"{experiment.seconds:,.10g} simulated seconds"
    else:
        length = comparison.length
    labels = comparison.labels
    who = labels[0] if len(labels) == 1 else f"Each of {len(labels)} policies"
    verb = "chose" if comparison.network is None else "placed"
    where = "a Flower federation" if comparison.real else f"the world {experiment.world.name}"
    text = (
        f"{who} {verb} {who_is_chosen(comparison)}, for {length} in {where}, with "
        f"{count(len(comparison.seeds), 'seed')}"
    )
    if (training := experiment.training) is None:
        return f"{text}."
    return (
        f"{text}; the chosen trained {training.model.name} on {training.data.name} "
        f"({training.partition.name})."
    )


def _findings(summary: Summary) -> Iterable[str]:
    if len(summary.policies) == 1:
        return
    by_key = {metric.key: metric for metric in summary.tested}
    metric = next(by_key[key] for key in _FIRST if key in by_key)
    (base,) = (policy for policy in summary.policies if policy.label == summary.baseline)
    ranked = [policy for policy in summary.policies if _everywhere(metric, policy)]
    if not ranked:
        yield f"{metric.title}: no policy got there in every seed."
        return
    sign = -1.0 if metric.better == "higher" else 1.0
    best = min(ranked, key=lambda policy: sign * policy.means[metric.key].mean)
    unit = f" {metric.unit}".rstrip()
    first = "comes first"
    if len(ranked) < len(summary.policies):
        first += " of those that get there in every seed,"
    yield f"{metric.title}: {best.label} {first} with {mean_text(metric, best)}{unit}"
    if best is base:
        yield "(the baseline); see below which of the others differ significantly from it."
    elif base in ranked:
        yield (
            f"against {base.label}'s {mean_text(metric, base)}{unit}: "
            f"{difference_text(metric, best, base)}."
        )
    else:
        yield f"({base.label}, the baseline: {mean_text(metric, base)})."


def _everywhere(metric: Metric, policy: PolicySummary) -> bool:
    return policy.reached(metric.key) == len(policy.values[metric.key])

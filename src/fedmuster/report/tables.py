"""A comparison as tables: for the terminal, as Markdown, as CSV."""

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass

from fedmuster.report.edge_metrics import REGRET_WORDS, budget_check, utility_words
from fedmuster.report.promise import in_words
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import LEVEL, Difference, Interval, Metric
from fedmuster.report.summary import PolicySummary, Summary

_KINDS = ("learning", "privacy", "network", "selection")
_TITLES = {
    "learning": "What the model learned: {}",
    "privacy": "What it cost in privacy: {}",
    "network": "At the edge servers: {}",
    "selection": "{}",
}
_DIFFERENCE_TITLES = {
    "learning": "Learning compared with {}, seed by seed",
    "privacy": "Privacy compared with {}, seed by seed",
    "network": "At the edge servers, compared with {}, seed by seed",
    "selection": "Compared with {}, seed by seed",
}
_ABSENT = "–"
_MOST_DIGITS = 6
"""After the point: a regret of 1e-17 is a rounding error, and is shown as 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """What to print; how is up to whoever prints it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    footnotes: tuple[str, ...]


def tables(summary: Summary) -> tuple[Table, ...]:
    """The means and, with more than one policy, the differences to the baseline.

    What was learned, the privacy it cost and what edge servers did, if any, stand in tables of
    their own: all columns side by side would not fit into a terminal.
    """
    kinds = [kind for kind in _KINDS if any(metric.about == kind for metric in summary.metrics)]
    shown = [_means(summary, kind, last=kind == kinds[-1]) for kind in kinds]
    if len(summary.policies) > 1:
        shown += [_differences(summary, kind, last=kind == kinds[-1]) for kind in kinds]
    return tuple(shown)


def target_table(summary: Summary) -> Table:
    """Time to accuracy and its distance to the baseline, where a model was trained."""
    by_key = {metric.key: metric for metric in summary.metrics}
    time = by_key["seconds_to_target"]
    others = [by_key[key] for key in ("final_accuracy_percent", "final_loss") if key in by_key]
    (base,) = (policy for policy in summary.policies if policy.label == summary.baseline)
    rivals = len(summary.policies) - 1
    return Table(
        title=f"Time to {summary.target.text if summary.target else ''}",
        columns=(
            "Policy",
            time.heading,
            f"Compared with {summary.baseline}",
            *(metric.heading for metric in others),
        ),
        rows=tuple(
            (
                policy.label,
                mean_text(time, policy),
                "baseline" if policy is base else difference_text(time, policy, base),
                *(mean_text(metric, policy) for metric in others),
            )
            for policy in summary.policies
        ),
        footnotes=(
            *_explanations(summary, "learning"),
            *([_method(rivals, len(summary.comparison.seeds))] if rivals else []),
        ),
    )


def to_markdown(items: Iterable[Table]) -> str:
    """Tables as GitHub reads them."""
    return "\n".join(_markdown(table) for table in items)


def to_csv(summary: Summary) -> str:
    """One line a policy, unrounded; empty where there is no number."""
    header = ["policy", "seeds", "rounds"]
    for metric in summary.metrics:
        header += [f"{metric.key}_{part}" for part in ("mean", "half_width")]
        header += [f"{metric.key}_reached"] if metric.may_be_missing else []
    for metric in summary.tested:
        header += [f"{metric.key}_difference_{part}" for part in ("mean", "low", "high")]
        header.append(f"{metric.key}_verdict")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    comparison = summary.comparison
    for policy in summary.policies:
        row: list[object] = [policy.label, len(comparison.seeds), comparison.rounds]
        for metric in summary.metrics:
            around = policy.means[metric.key]
            row += [csv_number(around.mean), csv_number(around.half_width)]
            row += [policy.reached(metric.key)] if metric.may_be_missing else []
        for metric in summary.tested:
            row += _csv_difference(policy.differences.get(metric.key))
        writer.writerow(row)
    return text.getvalue()


def csv_number(value: float) -> str:
    """A number that reads back to the same bits; NaN is an empty cell."""
    return "" if math.isnan(value) else repr(float(value))


def _csv_difference(difference: Difference | None) -> list[str]:
    if difference is None:
        return [""] * 4
    around = difference.interval
    ends = [csv_number(end) for end in (around.mean, around.low, around.high)]
    return [*ends, difference.verdict]


def _means(summary: Summary, kind: str, *, last: bool) -> Table:
    comparison = summary.comparison
    shown = [
        metric
        for metric in summary.metrics
        if metric.about == kind and not _goes_without_saying(metric, summary)
    ]
    return Table(
        title=_TITLES[kind].format(_extent(comparison)),
        columns=("Policy", *(metric.heading for metric in shown)),
        rows=tuple(
            (policy.label, *(mean_text(metric, policy) for metric in shown))
            for policy in summary.policies
        ),
        footnotes=(*_explanations(summary, kind), *(comparison.notes if last else ())),
    )


def _extent(comparison: Comparison) -> str:
    """How much was run."""
    seeds = count(len(comparison.seeds), "seed")
    return f"{comparison.length}, {seeds}, {who_is_chosen(comparison)}"


def who_is_chosen(comparison: Comparison) -> str:
    """How many of how many; with edge servers, where: their budgets decide how many."""
    clients = f"{comparison.num_clients:,} clients"
    if comparison.network is None:
        return f"{comparison.cohort_size:,} of {clients} a round"
    return f"{clients} at {count(comparison.network.num_edges, 'edge server')}"


def _explanations(summary: Summary, kind: str) -> Iterable[str]:
    seeds = summary.comparison.seeds
    if len(seeds) > 1:
        yield f"Mean ± half-width of the {_percent(LEVEL)} Student-t interval over the seeds."
    else:
        yield f"One seed ({seeds[0]}): no intervals."
    if kind == "selection":
        judged = any(metric.key.startswith("regret") for metric in summary.metrics)
        if judged and summary.comparison.network is not None:
            yield REGRET_WORDS
        yield "Evenness: Jain's index of how often each client was chosen; 1 if all alike."
    elif kind == "network":
        yield utility_words(summary.comparison)
        if check := budget_check(summary.comparison):
            yield check
    elif kind == "privacy":
        yield from in_words(summary.comparison.experiment, summary.comparison.num_parameters)
    elif summary.target is not None:
        first = "at least" if summary.target.column == "accuracy" else "at most"
        real = summary.comparison.real
        kind_of_seconds = "seconds on the server's clock" if real else "simulated seconds"
        where = "" if real else " on the test set"
        yield (
            f"Time to {summary.target.text}: {kind_of_seconds} until the first evaluation{where} "
            f"with {first} this {summary.target.column}."
        )


def _goes_without_saying(metric: Metric, summary: Summary) -> bool:
    """Left out of a terminal's 80 columns (but in the CSV), because another column says it."""
    if metric.key == "completed_percent":
        if summary.comparison.network is not None:
            return True  # who was in time says more
        return all(policy.means[metric.key].mean == 100 for policy in summary.policies)
    if metric.key in ("simulated_seconds", "wall_clock_seconds"):
        return summary.comparison.uneven
    if metric.key == "best_loss":
        return summary.comparison.classifies
    return metric.key == "round_seconds" and metric.words is None


def mean_text(metric: Metric, policy: PolicySummary) -> str:
    """A policy's mean of a metric, or in how many seeds there is one."""
    reached, seeds = policy.reached(metric.key), len(policy.values[metric.key])
    if metric.may_be_missing and reached < seeds:
        return f"reached in {reached} of {count(seeds, 'seed')}" if reached else "never reached"
    return _plus_minus(policy.means[metric.key])


def _differences(summary: Summary, kind: str, *, last: bool) -> Table:
    others = [policy for policy in summary.policies if policy.label != summary.baseline]
    (base,) = (policy for policy in summary.policies if policy.label == summary.baseline)
    shown = [metric for metric in summary.tested if metric.about == kind]
    return Table(
        title=_DIFFERENCE_TITLES[kind].format(summary.baseline),
        columns=("Policy", *(metric.title for metric in shown)),
        rows=tuple(
            (policy.label, *(difference_text(metric, policy, base) for metric in shown))
            for policy in others
        ),
        footnotes=(
            (_method(len(others), len(summary.comparison.seeds)), *summary.comparison.notes)
            if last
            else ()
        ),
    )


def _method(comparisons: int, seeds: int) -> str:
    if seeds < 2:
        return "One seed: no interval, so nothing is said about significance."
    if comparisons == 1:
        return f"± half-width of the {_percent(LEVEL)} Student-t interval of the paired difference."
    level = _percent(1 - (1 - LEVEL) / comparisons, 2)
    return (
        f"± half-width of the {level} Student-t interval of the paired difference: Bonferroni over "
        f"the {comparisons} policies compared, chosen over Holm because then verdict and interval "
        f"agree, and all verdicts of a column hold together with {_percent(LEVEL)} confidence."
    )


def difference_text(metric: Metric, policy: PolicySummary, base: PolicySummary) -> str:
    """A policy against the baseline, in words that claim no more than the interval does."""
    difference = policy.differences.get(metric.key)
    if difference is None or metric.words is None:
        return _why_none(metric, (policy, base))
    around = difference.interval
    # A difference of percentages is in points, and their ratio would only confuse.
    unit = " points" if metric.unit == "%" else f" {metric.unit}".rstrip()
    if difference.verdict == "equal":
        return "no significant difference (equal in every seed)"
    if difference.verdict == "one seed":
        return f"{_signed(around)}{unit} (one seed: no interval)"
    if difference.verdict == "no significant difference":
        return f"no significant difference ({_signed(around)}{unit})"
    word = metric.words[0 if difference.verdict == "lower" else 1]
    size = Interval(mean=abs(around.mean), half_width=around.half_width, count=around.count)
    reference = base.means[metric.key].mean
    share = (
        f" ({_percent(abs(around.mean / reference))})" if reference and unit != " points" else ""
    )
    return f"{word} by {_plus_minus(size)}{unit}{share}"


def _why_none(metric: Metric, policies: Iterable[PolicySummary]) -> str:
    missed = [
        policy.label
        for policy in policies
        if policy.reached(metric.key) < len(policy.values[metric.key])
    ]
    if metric.may_be_missing and missed:
        return f"not reached in every seed by {' and '.join(missed)}"
    return _ABSENT


def _plus_minus(around: Interval, sign: str = "") -> str:
    """To two significant digits of the half-width, but no more than five of the mean."""
    if math.isnan(around.mean):
        return _ABSENT
    last = _magnitude(around.mean) - 4
    if around.half_width > 0:  # not for NaN
        last = max(last, _magnitude(around.half_width) - 1)
    digits = min(max(-last, 0), _MOST_DIGITS)
    mean = _rounded(around.mean, digits, sign)
    if math.isnan(around.half_width):
        return mean
    return f"{mean} ± {_rounded(around.half_width, digits)}"


def _rounded(value: float, digits: int, sign: str = "") -> str:
    text = f"{value:{sign},.{digits}f}".replace("-", "−")
    return text if text.strip("+−0.,") else "0"


def _signed(around: Interval) -> str:
    return _plus_minus(around, sign="+")


def _magnitude(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def count(number: int, noun: str, several: str = "") -> str:
    """A number of things.

    Example:
        >>> count(1, "seed"), count(1200, "round"), count(3, "policy", "policies")
        ('1 seed', '1,200 rounds', '3 policies')
    """
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def _markdown(table: Table) -> str:
    lines = [f"### {table.title}", "", _markdown_row(table.columns)]
    lines.append("|---" + "|---:" * (len(table.columns) - 1) + "|")
    lines += [_markdown_row(row) for row in table.rows]
    lines += ["", *(f"- {note}" for note in table.footnotes), ""]
    return "\n".join(lines)


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

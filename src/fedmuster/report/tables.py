"""A comparison as tables: for the terminal, as Markdown, as CSV."""

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass

from fedmuster.core.words import harmless_cell, percent, plus_minus, several
from fedmuster.report.edge_views import budget_check, utility_words
from fedmuster.report.promise import in_words
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import LEVEL
from fedmuster.report.summary import Metric, PolicySummary, Summary

_TITLES = {
    "learning": ("What the model learned: {}", "Learning compared with {}, seed by seed"),
    "costs": ("What it cost until the end: {}", ""),
    "costs_to_target": ("What it cost until {target}: {}", ""),
    "privacy": ("What it cost in privacy: {}", "Privacy compared with {}, seed by seed"),
    "network": ("At the edge servers: {}", "At the edge servers, compared with {}, seed by seed"),
    "selection": ("{}", "Compared with {}, seed by seed"),
}
"""Of the means and of the differences, by what metrics are about; costs are not tested."""
_LAST = ("final_accuracy_percent", "final_loss")
_AT_END = ("end_accuracy_percent", "end_accuracy_swing_percent", "end_loss", "end_loss_swing")
"""Beside the time to the target. A model that swings is not judged by its last evaluation."""
_REGRET_WORDS = (
    "Regret: what the best placement within coverage and budgets has more in expected utility "
    "(COCS Eq. 11)."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Texts in rows and columns, with a title and footnotes."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    footnotes: tuple[str, ...]


def tables(summary: Summary) -> tuple[Table, ...]:
    """The means and, with more than one policy, the differences to the baseline.

    What was learned, the privacy it cost and what edge servers did, if any, stand in tables of
    their own: all columns side by side would not fit into a terminal.
    """
    kinds = [kind for kind in _TITLES if any(metric.about == kind for metric in summary.metrics)]
    shown = [_means(summary, kind, last=kind == kinds[-1]) for kind in kinds]
    if len(summary.policies) > 1:
        tested = [kind for kind in kinds if any(metric.about == kind for metric in summary.tested)]
        shown += [_differences(summary, kind, last=kind == tested[-1]) for kind in tested]
    return tuple(shown)


def target_table(summary: Summary) -> Table:
    """Time to accuracy and its distance to the baseline, where a model was trained."""
    by_key = {metric.key: metric for metric in summary.metrics}
    time = by_key["seconds_to_target"]
    at_end = _AT_END if any(key in by_key for key in _AT_END) else _LAST
    others = [by_key[key] for key in at_end if key in by_key]
    base, rivals = summary.base, len(summary.policies) - 1
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
    comparison, rows = summary.comparison, []
    for policy in summary.policies:
        row: dict[str, object] = {
            "policy": harmless_cell(policy.label),
            "seeds": len(comparison.seeds),
            "rounds": comparison.rounds,
        }
        for metric in summary.metrics:
            around = policy.means[metric.key]
            row[f"{metric.key}_mean"] = csv_cell(around.mean)
            row[f"{metric.key}_half_width"] = csv_cell(around.half_width)
            if metric.may_be_missing:
                row[f"{metric.key}_reached"] = policy.reached(metric.key)
        for metric in summary.tested:
            difference = policy.differences.get(metric.key)
            for part in ("mean", "low", "high"):
                end = math.nan if difference is None else getattr(difference.interval, part)
                row[f"{metric.key}_difference_{part}"] = csv_cell(end)
            row[f"{metric.key}_verdict"] = "" if difference is None else difference.verdict
        rows.append(row)
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def csv_cell(value: float | str) -> str:
    """A number that reads back to the same bits; NaN is an empty cell."""
    if isinstance(value, str):
        return harmless_cell(value)
    return "" if math.isnan(value) else repr(value)


def _means(summary: Summary, kind: str, *, last: bool) -> Table:
    comparison = summary.comparison
    seeds = several(len(comparison.seeds), "seed")
    shown = [
        metric
        for metric in summary.metrics
        if metric.about == kind and not _goes_without_saying(metric, summary)
    ]
    setting = f"{comparison.length}, {seeds}, {comparison.who_is_chosen}"
    target = "" if summary.target is None else summary.target.text
    return Table(
        title=_TITLES[kind][0].format(setting, target=target),
        columns=("Policy", *(metric.heading for metric in shown)),
        rows=tuple(
            (policy.label, *(mean_text(metric, policy) for metric in shown))
            for policy in summary.policies
        ),
        footnotes=(*_explanations(summary, kind), *(comparison.notes if last else ())),
    )


def _explanations(summary: Summary, kind: str) -> Iterable[str]:
    seeds = summary.comparison.seeds
    if len(seeds) > 1:
        yield f"Mean ± half-width of the {percent(LEVEL)} Student-t interval over the seeds."
    else:
        yield f"One seed ({seeds[0]}): no intervals."
    if kind == "selection":
        judged = any(metric.key.startswith("regret") for metric in summary.metrics)
        if judged and summary.comparison.network is not None:
            yield _REGRET_WORDS
        if judged and summary.comparison.round_less:
            yield "Regret and reward judge cohorts: they are defined for rounds only."
        yield "Evenness: Jain's index of how often each client was chosen; 1 if all alike."
    elif kind == "network":
        yield utility_words(summary.comparison)
        if check := budget_check(summary.comparison):
            yield check
        if summary.comparison.round_less:
            yield (
                "Without rounds a budget is for a period of several aggregations, so no share of "
                "it is told, and utility is not defined."
            )
    elif kind == "costs":
        yield from _cost_words(summary.comparison)
    elif kind == "privacy":
        yield from in_words(summary.comparison.experiment, summary.comparison.num_parameters)
    elif kind == "learning" and summary.target is not None:
        first = "at least" if summary.target.column == "accuracy" else "at most"
        real = summary.comparison.real
        kind_of_seconds = "seconds on the server's clock" if real else "simulated seconds"
        where = "" if real else " on the test set"
        yield (
            f"Time to {summary.target.text}: {kind_of_seconds} until the first evaluation{where} "
            f"with {first} this {summary.target.column}."
        )
        if summary.comparison.round_less:
            yield from _end_words(summary.comparison)


def _end_words(comparison: Comparison) -> Iterable[str]:
    yield (
        "The last tenth: the mean of the evaluations in the last tenth of a run by time. Swing: "
        "their standard deviation."
    )
    if not comparison.by_time:
        yield (
            "Runs end after equally many aggregations, at different times: end all of them at one "
            "time (seconds = …) to compare what they come to."
        )


def _cost_words(comparison: Comparison) -> Iterable[str]:
    yield (
        "Updates started: client updates that were asked for. Wasted: those that ended without "
        "being used. The others were used, or were still open."
    )
    if comparison.num_parameters is not None:
        yield "Every client that is asked downloads the model, and every answer uploads one."
    yield (
        "Client work: from the question to the answer, or until the server stopped waiting; all "
        "clients together. Mean concurrency: the clients that are busy, on average over time."
    )
    if comparison.in_rounds:
        yield (
            "In rounds a server update is a round, every client of a cohort counts as busy until "
            "its round ends, and the journal does not say how long each client worked."
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
    """A policy's mean of a metric, or why there is none, or in how many seeds there is one."""
    if metric.key in policy.absent:
        return policy.absent[metric.key]
    reached, seeds = policy.reached(metric.key), len(policy.values[metric.key])
    if metric.may_be_missing and reached < seeds:
        return f"reached in {reached} of {several(seeds, 'seed')}" if reached else "never reached"
    around = policy.means[metric.key]
    return plus_minus(around.mean, around.half_width)


def _differences(summary: Summary, kind: str, *, last: bool) -> Table:
    base = summary.base
    others = [policy for policy in summary.policies if policy is not base]
    shown = [
        metric
        for metric in summary.tested
        if metric.about == kind and metric.key not in base.absent
    ]
    return Table(
        title=_TITLES[kind][1].format(summary.baseline),
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
        return f"± half-width of the {percent(LEVEL)} Student-t interval of the paired difference."
    level = percent(1 - (1 - LEVEL) / comparisons, 2)
    return (
        f"± half-width of the {level} Student-t interval of the paired difference: Bonferroni over "
        f"the {comparisons} policies compared, chosen over Holm because then verdict and interval "
        f"agree, and all verdicts of a column hold together with {percent(LEVEL)} confidence."
    )


def difference_text(metric: Metric, policy: PolicySummary, base: PolicySummary) -> str:
    """A policy against the baseline, in words that claim no more than the interval does."""
    difference = policy.differences.get(metric.key)
    if difference is None or metric.words is None:
        missed = [one.label for one in (policy, base) if not one.everywhere(metric.key)]
        if metric.may_be_missing and missed:
            return f"not reached in every seed by {' and '.join(missed)}"
        return policy.absent.get(metric.key) or base.absent.get(metric.key, "–")
    around = difference.interval
    signed = plus_minus(around.mean, around.half_width, sign="+")
    # A difference of percentages is in points, and their ratio would only confuse.
    unit = " points" if metric.unit == "%" else f" {metric.unit}".rstrip()
    if difference.verdict == "equal":
        return "no significant difference (equal in every seed)"
    if difference.verdict == "one seed":
        return f"{signed}{unit} (one seed: no interval)"
    if difference.verdict == "no significant difference":
        return f"no significant difference ({signed}{unit})"
    word = metric.words[0 if difference.verdict == "lower" else 1]
    size = plus_minus(abs(around.mean), around.half_width)
    reference, share = base.means[metric.key].mean, ""
    if reference and metric.unit != "%":
        share = f" ({percent(abs(around.mean / reference), 0)})"
    return f"{word} by {size}{unit}{share}"


def _markdown(table: Table) -> str:
    lines = [f"### {table.title}", "", _markdown_row(table.columns)]
    lines.append("|---" + "|---:" * (len(table.columns) - 1) + "|")
    lines += [_markdown_row(row) for row in table.rows]
    lines += ["", *(f"- {note}" for note in table.footnotes), ""]
    return "\n".join(lines)


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

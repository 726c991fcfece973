"""A comparison as tables: for the terminal, as Markdown, as CSV."""

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import dataclass

from fedmuster.report.statistics import LEVEL, Difference, Interval
from fedmuster.report.summary import METRICS, TESTED, Metric, PolicySummary, Summary

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
    """The means and, with more than one policy, the differences to the baseline."""
    means = _means(summary)
    return (means, _differences(summary)) if len(summary.policies) > 1 else (means,)


def to_markdown(items: Iterable[Table]) -> str:
    """Tables as GitHub reads them."""
    return "\n".join(_markdown(table) for table in items)


def to_csv(summary: Summary) -> str:
    """One line a policy, unrounded; empty where there is no number."""
    header = ["policy", "seeds", "rounds"]
    for metric in METRICS:
        header += [f"{metric.key}_{part}" for part in ("mean", "half_width")]
    for metric in TESTED:
        header += [f"{metric.key}_difference_{part}" for part in ("mean", "low", "high")]
        header.append(f"{metric.key}_verdict")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    comparison = summary.comparison
    for policy in summary.policies:
        row: list[object] = [policy.label, len(comparison.seeds), comparison.rounds]
        for metric in METRICS:
            around = policy.means[metric.key]
            row += [csv_number(around.mean), csv_number(around.half_width)]
        for metric in TESTED:
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


def _means(summary: Summary) -> Table:
    comparison = summary.comparison
    if len(comparison.seeds) > 1:
        what = f"Mean ± half-width of the {_percent(LEVEL)} Student-t interval over the seeds."
    else:
        what = f"One seed ({comparison.seeds[0]}): no intervals."
    shown = [metric for metric in METRICS if not _goes_without_saying(metric, summary)]
    return Table(
        title=f"{comparison.rounds:,} rounds, {_count(len(comparison.seeds), 'seed')}, "
        f"{comparison.cohort_size:,} of {comparison.num_clients:,} clients a round",
        columns=("Policy", *(_titled(metric) for metric in shown)),
        rows=tuple(
            (policy.label, *(_plus_minus(policy.means[metric.key]) for metric in shown))
            for policy in summary.policies
        ),
        footnotes=(
            what,
            "Evenness: Jain's index of how often each client was chosen; 1 if all alike.",
            *comparison.notes,
        ),
    )


def _goes_without_saying(metric: Metric, summary: Summary) -> bool:
    """Left out of a terminal's 80 columns (but in the CSV): all completed, and time over rounds."""
    if metric.key == "completed_percent":
        return all(policy.means[metric.key].mean == 100 for policy in summary.policies)
    return metric.key == "round_seconds"


def _differences(summary: Summary) -> Table:
    others = [policy for policy in summary.policies if policy.label != summary.baseline]
    (base,) = (policy for policy in summary.policies if policy.label == summary.baseline)
    return Table(
        title=f"Compared with {summary.baseline}, seed by seed",
        columns=("Policy", *(metric.title for metric in TESTED)),
        rows=tuple(
            (policy.label, *(_difference(metric, policy, base) for metric in TESTED))
            for policy in others
        ),
        footnotes=(_method(len(others), len(summary.comparison.seeds)), *summary.comparison.notes),
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


def _difference(metric: Metric, policy: PolicySummary, base: PolicySummary) -> str:
    difference = policy.differences.get(metric.key)
    if difference is None or metric.words is None:
        return _ABSENT
    around, unit = difference.interval, f" {metric.unit}".rstrip()
    if difference.verdict == "equal":
        return "no significant difference (equal in every seed)"
    if difference.verdict == "one seed":
        return f"{_signed(around)}{unit} (one seed: no interval)"
    if difference.verdict == "no significant difference":
        return f"no significant difference ({_signed(around)}{unit})"
    word = metric.words[0 if difference.verdict == "lower" else 1]
    size = Interval(mean=abs(around.mean), half_width=around.half_width, count=around.count)
    reference = base.means[metric.key].mean
    share = f" ({_percent(abs(around.mean / reference))})" if reference else ""
    return f"{word} by {_plus_minus(size)}{unit}{share}"


def _titled(metric: Metric) -> str:
    return f"{metric.title} ({metric.unit})" if metric.unit else metric.title


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


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _markdown(table: Table) -> str:
    lines = [f"### {table.title}", "", _markdown_row(table.columns)]
    lines.append("|---" + "|---:" * (len(table.columns) - 1) + "|")
    lines += [_markdown_row(row) for row in table.rows]
    lines += ["", *(f"- {note}" for note in table.footnotes), ""]
    return "\n".join(lines)


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

"""What the page's scripts draw, as plain lists and numbers."""

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.records import FloatArray
from fedmuster.report import participation
from fedmuster.report.curves import (
    Axis,
    Curve,
    common_grid,
    evaluations,
    last_before,
    moving_means,
    running_totals,
    spans_decades,
    window,
)
from fedmuster.report.network_metrics import regret_title
from fedmuster.report.page.clients import client_tables
from fedmuster.report.page.network import network_data
from fedmuster.report.page.numbers import rounded
from fedmuster.report.page.scores import score_data
from fedmuster.report.promise import cap_in_sight, cap_text, spent_title
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import LEVEL
from fedmuster.report.summary import Summary

_AXES: tuple[Axis, Axis] = ("seconds", "round")
_STEPS_PER_DOUBLING = 32
_EQUAL = 128


def page_data(summary: Summary) -> dict[str, Any]:
    """All of it."""
    comparison = summary.comparison
    return {
        "policies": list(comparison.labels),
        "seeds": len(comparison.seeds),
        "level": round(100 * LEVEL),
        "charts": [
            *_learning(summary),
            *_spending(comparison),
            *(_totals(comparison, "utility") if comparison.network is not None else ()),
            *_totals(comparison, "regret"),
            *_moving(comparison),
            *_totals(comparison, "seconds"),
        ],
        "groups": _groups(comparison),
        "maps": _maps(comparison),
        "network": network_data(comparison),
        "ranking": comparison.ranking,
        "clients": client_tables(comparison),
        "scores": score_data(comparison),
    }


def _learning(summary: Summary) -> list[dict[str, Any]]:
    """Accuracy and loss against time and against rounds."""
    comparison, target = summary.comparison, summary.target
    columns = (["accuracy"] if comparison.classifies else []) + (
        ["loss"] if comparison.trained else []
    )
    mark = None if target is None else _Mark(target.value, f"target {target.text}")
    return [
        _chart(
            f"{column}-{axis}",
            evaluations(comparison, column, axis),
            comparison,
            title=f"{comparison.evaluated_on}{column}".capitalize() + _against(comparison, axis),
            x=axis,
            y=f"{comparison.evaluated_on}{column}",
            percent=column == "accuracy",
            mark=mark if target is not None and target.column == column else None,
        )
        for column in columns
        for axis in _AXES
    ]


def _spending(comparison: Comparison) -> list[dict[str, Any]]:
    """Privacy spent against time and against rounds, and accuracy against it."""
    if (privacy := comparison.privacy) is None:
        return []
    charts = []
    for column, who in (
        ("spent_max", "Largest"),
        ("spent_mean", "Mean"),
    ):
        for axis in _AXES:
            curves = evaluations(comparison, column, axis)
            seen = cap_in_sight(privacy, max(float(curve.mean[-1]) for curve in curves))
            charts.append(
                _chart(
                    f"{column}-{axis}",
                    curves,
                    comparison,
                    title=f"{who} privacy spent" + _against(comparison, axis),
                    x=axis,
                    y=spent_title(privacy, column),
                    mark=_Mark(privacy.cap, cap_text(privacy), within=seen),
                )
            )
    if comparison.classifies:
        charts.append(
            _chart(
                "accuracy-spent_max",
                evaluations(comparison, "accuracy", "spent_max"),
                comparison,
                title=f"{comparison.evaluated_on}accuracy".capitalize() + " against privacy spent",
                x="spent_max",
                x_title=spent_title(privacy, "spent_max"),
                y=f"{comparison.evaluated_on}accuracy",
                percent=True,
            )
        )
    return charts


def _totals(comparison: Comparison, column: str) -> list[dict[str, Any]]:
    """At most one: utility, regret or time over rounds, if it was measured."""
    clock = comparison.clock
    title, y = {
        "utility": ("Cumulative utility", "cumulative utility"),
        "regret": (regret_title(comparison), "cumulative regret"),
        "seconds": (f"{clock.capitalize()} over rounds", f"{clock} (s)"),
    }[column]
    if not (curves := running_totals(comparison, column)):
        return []
    return [_chart(f"{column}-total", curves, comparison, title=title, x="round", y=y)]


def _moving(comparison: Comparison) -> list[dict[str, Any]]:
    """At edge servers: participants, and what was spent for them."""
    if comparison.network is None:
        return []
    width = window(comparison)
    over = f", mean of {width:,} rounds" if width > 1 else ""
    wanted = {"participants": "Participants a round", "budget_share": "Share of the budgets spent"}
    return [
        _chart(
            f"{column}-round",
            curves,
            comparison,
            title=f"{title}{over}",
            x="round",
            y=title.lower(),
            percent=column == "budget_share",
        )
        for column, title in wanted.items()
        if (curves := moving_means(comparison, column))
    ]


def _against(comparison: Comparison, axis: Axis) -> str:
    return f" against {'rounds' if axis == 'round' else comparison.clock}"


class _Mark(NamedTuple):
    """A dotted line across a chart; ``within`` if the axis has to reach it."""

    value: float
    text: str
    within: bool = False


def _chart(
    name: str,
    curves: Sequence[Curve],
    comparison: Comparison,
    *,
    title: str,
    x: Axis,
    y: str,
    x_title: str | None = None,
    percent: bool = False,
    mark: _Mark | None = None,
) -> dict[str, Any]:
    grid = common_grid(curves)
    # What was measured at other times in each seed changes in steps. Rounds they share.
    steps = x != "round"
    if x == "round":
        grid = grid.astype(np.int64)
    return {
        "name": name,
        "title": title,
        "axis": x,
        "xTitle": x_title or ("round" if x == "round" else f"{comparison.clock} (s)"),
        "yTitle": y,
        "percent": percent,
        "steps": steps,
        "logarithmic": name.startswith("loss") and spans_decades(curves),
        "mark": None if mark is None else mark._asdict(),
        "x": grid.tolist() if x == "round" else rounded(grid, 7),
        "curves": [
            {
                "policy": comparison.labels.index(curve.label),
                "mean": rounded(_on_grid(grid, curve, curve.mean, steps=steps)),
                "half": rounded(_on_grid(grid, curve, curve.half_width, steps=steps)),
            }
            for curve in curves
        ],
    }


def _on_grid(grid: NDArray[Any], curve: Curve, values: FloatArray, *, steps: bool) -> FloatArray:
    within = (grid >= curve.x[0]) & (grid <= curve.x[-1])
    at = last_before(grid, curve.x, values) if steps else np.interp(grid, curve.x, values)
    return np.where(within, at, np.nan)


def _groups(comparison: Comparison) -> dict[str, Any] | None:
    if not participation.tells_groups_apart(comparison):
        return None
    latencies = participation.group_latencies(comparison)
    shares = [participation.group_shares(comparison.runs[label]) for label in comparison.labels]
    present = ~np.isnan(latencies)
    return {
        "latencies": rounded(latencies[present]),
        "shares": [rounded(own[present]) for own in shares],
        "equal": participation.equal_share(comparison),
    }


def _maps(comparison: Comparison) -> dict[str, Any]:
    """Heat maps, a byte a cell: 0 for never, else 32 steps to each doubling, 128 is equal."""
    rows, bins = participation.resolution(comparison)
    codes = []
    for label in comparison.labels:
        density = participation.choice_density(comparison.runs[label], rows=rows, bins=bins)
        with np.errstate(divide="ignore"):
            steps = np.rint(np.log2(density) * _STEPS_PER_DOUBLING + _EQUAL)
        codes.append(np.where(density > 0, np.clip(steps, 1, 255), 0).astype(np.uint8))
    return {
        "rows": rows,
        "bins": bins,
        "clients": comparison.num_clients,
        "rounds": [
            participation.common_rounds(comparison.runs[label]) for label in comparison.labels
        ],
        "codes": [base64.b64encode(code.tobytes()).decode("ascii") for code in codes],
    }

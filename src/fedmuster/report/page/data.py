"""What the page's scripts draw, as plain lists and numbers."""

import base64
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.records import FloatArray
from fedmuster.report import participation
from fedmuster.report.curves import (
    Curve,
    common_grid,
    evaluations,
    last_before,
    running_totals,
    spans_decades,
)
from fedmuster.report.page.clients import client_tables
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import LEVEL
from fedmuster.report.summary import Summary

_X_TITLES = {"seconds": "simulated time (s)", "round": "round"}
_STEPS_PER_DOUBLING = 32
_EQUAL = 128


def page_data(summary: Summary) -> dict[str, Any]:
    """All of it."""
    comparison = summary.comparison
    return {
        "policies": list(comparison.labels),
        "seeds": len(comparison.seeds),
        "level": round(100 * LEVEL),
        "charts": [*_learning(summary), *_totals(comparison)],
        "groups": _groups(comparison),
        "maps": _maps(comparison),
        "clients": client_tables(comparison),
    }


def _learning(summary: Summary) -> list[dict[str, Any]]:
    """Accuracy and loss against simulated time and against rounds."""
    comparison, target = summary.comparison, summary.target
    columns = (["accuracy"] if comparison.classifies else []) + (
        ["loss"] if comparison.trained else []
    )
    axes: tuple[Literal["seconds", "round"], ...] = ("seconds", "round")
    return [
        _chart(
            f"{column}-{axis}",
            evaluations(comparison, column, axis),
            comparison,
            title=f"Test {column} against {'simulated time' if axis == 'seconds' else 'rounds'}",
            x=axis,
            y=f"test {column}",
            percent=column == "accuracy",
            steps=axis == "seconds",
            target=target.value if target is not None and target.column == column else None,
        )
        for column in columns
        for axis in axes
    ]


def _totals(comparison: Comparison) -> list[dict[str, Any]]:
    """Regret and simulated time over rounds."""
    wanted = {"regret": "Cumulative regret", "seconds": "Simulated time over rounds"}
    charts = []
    for column, title in wanted.items():
        if curves := running_totals(comparison, column):
            y = "simulated time (s)" if column == "seconds" else "cumulative regret"
            charts.append(
                _chart(f"{column}-total", curves, comparison, title=title, x="round", y=y)
            )
    return charts


def _chart(
    name: str,
    curves: Sequence[Curve],
    comparison: Comparison,
    *,
    title: str,
    x: Literal["seconds", "round"],
    y: str,
    percent: bool = False,
    steps: bool = False,
    target: float | None = None,
) -> dict[str, Any]:
    grid = common_grid(curves)
    if x == "round":
        grid = grid.astype(np.int64)
    return {
        "name": name,
        "title": title,
        "axis": x,
        "xTitle": _X_TITLES[x],
        "yTitle": y,
        "percent": percent,
        "steps": steps,
        "logarithmic": name.startswith("loss") and spans_decades(curves),
        "target": target,
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


def _groups(comparison: Comparison) -> dict[str, Any]:
    latencies = participation.group_latencies(comparison)
    shares = [participation.group_shares(comparison.runs[label]) for label in comparison.labels]
    present = ~np.isnan(latencies)
    return {
        "latencies": rounded(latencies[present]),
        "shares": [rounded(own[present]) for own in shares],
        "equal": comparison.cohort_size / comparison.num_clients,
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


def rounded(values: NDArray[Any], digits: int = 5) -> list[float | None]:
    """To so many significant digits; None for what is not finite, which JSON cannot say.

    Example:
        >>> rounded(np.array([1234567.0, 0.1 + 0.2, np.nan]))
        [1234600.0, 0.3, None]
    """
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in values.tolist()]

"""What the page's scripts draw, as plain lists and numbers."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray
from fedmuster.report.curves import Chart, Curve, all_charts, common_grid, last_before, thinned
from fedmuster.report.edge_views import (
    HIGH,
    LOW,
    Dots,
    budget_check,
    network_maps,
    spread_of_shares,
    usual_success,
)
from fedmuster.report.job_views import (
    FATES,
    SlotChart,
    age_shares,
    job_charts,
    slot_charts,
    work_done,
)
from fedmuster.report.participation import choice_densities, group_shares, tells_groups_apart
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.score_series import (
    CANDIDACY,
    Plane,
    ScoreLine,
    Timeline,
    planes,
    scored,
    timelines,
)
from fedmuster.report.statistics import LEVEL
from fedmuster.report.summary import Summary

MOST_CLIENTS = 10_000
_MOST_NUMBERS = 200_000
"""In the tables of clients, all seeds together: a megabyte would be five times as many."""
_STEPS_PER_DOUBLING = 32
_EQUAL = 128


def page_data(summary: Summary) -> dict[str, Any]:
    """Everything that the scripts read."""
    comparison = summary.comparison
    charts = list(all_charts(comparison, summary.target))
    if comparison.round_less:
        charts += [chart for chart in job_charts(comparison) if chart.curves]
    return {
        "policies": list(comparison.labels),
        "seeds": len(comparison.seeds),
        "level": round(100 * LEVEL),
        "charts": [_chart(chart, comparison) for chart in charts],
        "groups": _groups(comparison),
        "maps": _heat_maps(comparison),
        "network": _network(comparison),
        "ranking": comparison.ranking,
        "clients": client_tables(comparison),
        "scores": score_data(comparison),
        **({"jobs": job_data(comparison)} if comparison.round_less else {}),
    }


def rounded(values: NDArray[Any], digits: int = 5) -> list[Any]:
    """To significant digits, None for what JSON cannot say; integers and texts as they are.

    Example:
        >>> rounded(np.array([1234567.0, 0.1 + 0.2, np.nan]))
        [1234600.0, 0.3, None]
    """
    if values.dtype.kind in "iuU":
        return list(values.tolist())
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in values.tolist()]


def _chart(chart: Chart, comparison: Comparison) -> dict[str, Any]:
    grid: NDArray[Any] = common_grid(chart.curves)
    if chart.axis == "round":
        grid = grid.astype(np.int64)
    return {
        "name": chart.name,
        "title": chart.title,
        "axis": chart.axis,
        "xTitle": chart.x_title,
        "yTitle": chart.y_title,
        "percent": chart.percent,
        "steps": chart.steps,
        "logarithmic": chart.logarithmic,
        "mark": None if chart.mark is None else chart.mark._asdict(),
        **({} if chart.floor is None else {"floor": chart.floor}),
        "x": rounded(grid, 7),
        "curves": [
            {
                "policy": comparison.labels.index(curve.label),
                "mean": rounded(_on_grid(grid, curve, curve.mean, steps=chart.steps)),
                "half": rounded(_on_grid(grid, curve, curve.half_width, steps=chart.steps)),
            }
            for curve in chart.curves
        ],
    }


def _on_grid(grid: NDArray[Any], curve: Curve, values: FloatArray, *, steps: bool) -> FloatArray:
    within = (grid >= curve.x[0]) & (grid <= curve.x[-1])
    at = last_before(grid, curve.x, values) if steps else np.interp(grid, curve.x, values)
    return np.where(within, at, np.nan)


# Which clients are chosen: by speed group, over time, and one by one.


def _groups(comparison: Comparison) -> dict[str, Any] | None:
    if not tells_groups_apart(comparison):
        return None
    groups = group_shares(comparison)
    return {
        "latencies": rounded(groups.latencies),
        "shares": [rounded(own) for own in groups.shares],
        "equal": groups.equal,
    }


def _heat_maps(comparison: Comparison) -> dict[str, Any]:
    """A byte a cell: 0 for never, else 32 steps to each doubling, 128 is an equal share."""
    maps, codes = choice_densities(comparison), []
    for density, _ in maps:
        with np.errstate(divide="ignore"):
            steps = np.rint(np.log2(density) * _STEPS_PER_DOUBLING + _EQUAL)
        codes.append(np.where(density > 0, np.clip(steps, 1, 255), 0).astype(np.uint8))
    rows, bins = codes[0].shape
    return {
        "rows": rows,
        "bins": bins,
        "clients": comparison.num_clients,
        "rounds": [own.rounds for own in maps],
        "codes": [base64.b64encode(code.tobytes()).decode("ascii") for code in codes],
    }


def client_tables(comparison: Comparison) -> dict[str, Any]:
    """Columns for each seed, as many seeds as the page can bear; clients differ between seeds."""
    runs = list(comparison.runs.values())
    shown = min(comparison.num_clients, MOST_CLIENTS)
    fitting = max(_MOST_NUMBERS // (shown * (len(runs) + 4)), 1)
    return {
        "clients": comparison.num_clients,
        "seeds": [
            _seed([own[place] for own in runs]) for place in range(len(comparison.seeds))[:fitting]
        ],
        "allSeeds": len(comparison.seeds),
    }


def _seed(runs: Sequence[Run]) -> dict[str, Any]:
    """``runs`` of all policies; they met the same clients."""
    first = runs[0]
    # Of too many clients an even choice in their order.
    kept = np.sort(thinned(np.argsort(first.ranking, kind="stable"), MOST_CLIENTS))
    latency = first.typical_latency_seconds
    if first.answered is not None:  # of the others nothing was measured
        answered = [run.answered for run in runs if run.answered is not None]
        latency = np.where(np.any(answered, axis=0), latency, np.nan)
    rejections = np.sum([run.rejections for run in runs], axis=0)
    columns: dict[str, NDArray[Any] | None] = {
        "identity": None if first.identities is None else np.array(first.identities),
        "group": first.groups,
        "latency": latency,
        "samples": first.num_samples,
        "quality": first.quality,
        "price": None if first.network is None else first.network.price,
        "rejected": rejections if rejections.any() else None,
    }
    return {
        "seed": first.seed,
        "client": kept.tolist(),
        "columns": {
            name: rounded(values[kept], 4) for name, values in columns.items() if values is not None
        },
        "chosen": [run.selection_counts()[kept].tolist() for run in runs],
    }


# Without rounds: ages of answers, who trains when, what became of the work.


def job_data(comparison: Comparison) -> dict[str, Any]:
    """Where a contestant has no rounds. Slots are of the first seed, ages and work of all."""
    ages, done = age_shares(comparison), work_done(comparison)
    return {
        "step": comparison.step,
        "fates": list(FATES.values()),
        "ages": {
            "names": list(ages.names),
            "shares": [
                rounded(ages.shares[label]) if label in ages.shares else None
                for label in comparison.labels
            ],
        },
        "slots": [
            {"policy": comparison.labels.index(label), **_slots(chart)}
            for label, chart in slot_charts(comparison).items()
        ],
        "seed": comparison.seeds[0],
        "work": {
            "updates": [rounded(own) for own in done.updates],
            "seconds": [None if np.isnan(own).any() else rounded(own) for own in done.seconds],
        },
    }


def _slots(chart: SlotChart) -> dict[str, Any]:
    return {
        "begin": chart.begin_seconds,
        "end": chart.end_seconds,
        "slots": chart.slots,
        "allSlots": chart.all_slots,
        "slot": chart.slot.tolist(),
        "client": chart.client.tolist(),
        "from": rounded(chart.asked_at_seconds, 9),
        "to": rounded(chart.ended_at_seconds, 9),
        "fate": chart.fate.tolist(),
        "aggregated": rounded(chart.aggregated_at_seconds, 9),
    }


# The network: maps of policies, and what edge servers spent of their budgets.


def _network(comparison: Comparison) -> dict[str, Any] | None:
    """None where there are no edge servers. Maps are of the first seed, budgets of all."""
    if comparison.network is None:
        return None
    return {"map": _network_maps(comparison), "budgets": _budgets(comparison)}


def _network_maps(comparison: Comparison) -> dict[str, Any] | None:
    box, maps = network_maps(comparison)
    if not maps:
        return None
    first = next(iter(maps.values()))
    return {
        "seed": comparison.seeds[0],
        "box": rounded(np.array(box)),
        "edges": [rounded(place) for place in first.edge_km],
        "radius": first.radius_km,
        "success": usual_success(maps.values()),
        "policies": [
            {
                "policy": comparison.labels.index(label),
                "clients": None if own.clients is None else _dots(own.clients),
                "choices": None if own.choices is None else _dots(own.choices),
            }
            for label, own in maps.items()
        ],
    }


def _dots(dots: Dots) -> dict[str, Any]:
    return {
        "x": rounded(dots.place_km[:, 0], 4),
        "y": rounded(dots.place_km[:, 1], 4),
        "chosen": dots.chosen.tolist(),
        "inTime": dots.in_time.tolist(),
        "clients": None if dots.clients is None else dots.clients.tolist(),
        "cell": dots.cell_km,
    }


def _budgets(comparison: Comparison) -> dict[str, Any] | None:
    if (check := budget_check(comparison)) is None:
        return None
    uses = [spread_of_shares(runs) for runs in comparison.runs.values()]
    return {
        "check": check,
        "percents": [LOW, HIGH],
        **{name: [rounded(getattr(use, name)) for use in uses] for name in ("mean", "low", "high")},
    }


# What policies think of clients: scores over rounds, and which clients remain candidates.


def score_data(comparison: Comparison) -> dict[str, Any]:
    """Empty lists where no policy has published such scores. Of each policy the first seed."""
    number = comparison.labels.index
    lines = {number(label): own for label, own in timelines(comparison).items()}
    return {
        "seed": comparison.seeds[0],
        "lines": [
            _score_chart(number(label), label, own, comparison.step)
            for label, own in scored(comparison).items()
        ],
        "timelines": [
            *(_timeline_chart(at, comparison.labels[at], own) for at, own in lines.items()),
            *_validity_chart(lines),
        ],
        "planes": [_plane(number(label), own) for label, own in planes(comparison).items()],
    }


def _score_chart(policy: int, label: str, lines: Sequence[ScoreLine], step: str) -> dict[str, Any]:
    grid = thinned(np.unique(np.concatenate([line.rounds for line in lines])))
    curves = []
    for look, line in enumerate(lines):
        found = last_before(grid, line.rounds, line.values)
        mean = np.where(np.isin(grid, line.rounds), found, np.nan)
        name = f"client {line.client:,}"
        curves.append({"policy": policy, "look": look, "name": name, "mean": rounded(mean)})
    return _line_chart(f"score-{policy}", label, "score", grid, curves, step=step)


def _timeline_chart(policy: int, label: str, line: Timeline) -> dict[str, Any]:
    curves = [
        {"policy": policy, "look": look, "name": words, "mean": getattr(line, kind).tolist()}
        for kind, words, look in CANDIDACY
    ]
    y = f"of {line.watched:,} watched clients"
    return _line_chart(f"candidates-{policy}", label, y, line.rounds, curves)


def _validity_chart(lines: Mapping[int, Timeline]) -> list[dict[str, Any]]:
    """At most one: what the candidates of each policy are in truth, where the world tells it."""
    told = {at: (own.rounds, own.validity) for at, own in lines.items() if own.validity is not None}
    if not told:
        return []
    grid = thinned(np.unique(np.concatenate([rounds for rounds, _ in told.values()])))
    curves = []
    for policy, (rounds, validity) in told.items():
        mean = np.where(grid <= rounds[-1], last_before(grid, rounds, validity), np.nan)
        curves.append({"policy": policy, "mean": rounded(mean)})
    title, y = "Mean expected validity of candidates", "mean expected validity"
    return [_line_chart("candidates-validity", title, y, grid, curves)]


def _line_chart(
    name: str,
    title: str,
    y: str,
    grid: FloatArray,
    curves: list[dict[str, Any]],
    *,
    step: str = "round",
) -> dict[str, Any]:
    return {
        "name": name,
        "title": title,
        "axis": "round",
        "xTitle": step,
        "yTitle": y,
        "steps": not name.startswith("score"),
        "x": grid.astype(np.int64).tolist(),
        "curves": curves,
    }


def _plane(policy: int, own: Plane) -> dict[str, Any]:
    places: dict[str, Any]
    if own.bins is None:
        places = {
            "clients": own.clients.tolist(),
            "x": rounded(own.validity),
            "y": rounded(own.utility),
            "lasting": own.candidate_rounds.tolist(),
            "chosen": own.chosen.tolist(),
        }
    else:
        places = {
            "xEdges": rounded(own.bins.validity_edges),
            "yEdges": rounded(own.bins.utility_edges),
            "lasting": rounded(own.shown(own.candidate_rounds).ravel()),
            "chosen": rounded(own.shown(own.chosen).ravel()),
        }
    return {
        "policy": policy,
        "xTitle": own.validity_title,
        "yTitle": own.utility_title,
        "truth": own.true,
        "num": len(own.clients),
        "mostRounds": own.most_rounds,
        "front": [rounded(point) for point in own.front],
        **places,
    }

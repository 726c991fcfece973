"""Numbers as JSON has them."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray, IntArray
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
    thinned,
    window,
)
from fedmuster.report.edge_metrics import HIGH, LOW, budget_check, regret_title, spread_of_shares
from fedmuster.report.maps import Dots, network_maps, usual_success
from fedmuster.report.promise import cap_in_sight, cap_text, spent_title
from fedmuster.report.runs import Comparison, Run
from fedmuster.report.score_series import Plane, ScoreLine, Timeline, planes, scored, timelines
from fedmuster.report.statistics import LEVEL
from fedmuster.report.summary import Summary


def rounded(values: NDArray[Any], digits: int = 5) -> list[float | None]:
    """To so many significant digits; None for what is not finite, which JSON cannot say.

    Example:
        >>> rounded(np.array([1234567.0, 0.1 + 0.2, np.nan]))
        [1234600.0, 0.3, None]
    """
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in values.tolist()]


# The table of clients: who they are and how often each policy chose them, seed by seed.

MOST_CLIENTS = 10_000
_MOST_NUMBERS = 200_000
"""In all seeds together: about a megabyte would be five times as many."""


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


def _seed(runs: list[Run]) -> dict[str, Any]:
    """``runs`` of all policies; they met the same clients."""
    first = runs[0]
    kept = sampled(first)
    latency = first.typical_latency_seconds
    if first.answered is not None:  # of the others nothing was measured
        answered = [run.answered for run in runs if run.answered is not None]
        latency = np.where(np.any(answered, axis=0), latency, np.nan)
    columns: dict[str, NDArray[Any] | None] = {
        "identity": None if first.identities is None else np.array(first.identities),
        "group": first.groups,
        "latency": latency,
        "samples": first.num_samples,
        "quality": first.quality,
        "price": None if first.network is None else first.network.price,
    }
    rejections = np.sum([run.rejections for run in runs], axis=0)
    if rejections.any():
        columns["rejected"] = rejections
    return {
        "seed": first.seed,
        "client": kept.tolist(),
        "columns": {
            name: _short(values[kept]) for name, values in columns.items() if values is not None
        },
        "chosen": [run.selection_counts()[kept].tolist() for run in runs],
    }


def sampled(run: Run) -> IntArray:
    """All clients, or of too many every so manieth in order (:attr:`Run.ranking`)."""
    if run.num_clients <= MOST_CLIENTS:
        return np.arange(run.num_clients)
    in_order = np.argsort(run.ranking, kind="stable")
    places = np.rint(np.linspace(0, run.num_clients - 1, MOST_CLIENTS)).astype(np.int64)
    return np.sort(in_order[places])


def _short(values: NDArray[Any]) -> list[Any]:
    if values.dtype.kind in "iuU":
        return list(values.tolist())
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values.tolist()]


# The network: maps of policies, and what edge servers spent of their budgets.


def network_data(comparison: Comparison) -> dict[str, Any] | None:
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


# What policies think of clients: scores over rounds, and who remains a candidate.

_KINDS = {"candidates": 0, "eliminated": 1, "dominated": 3}
"""With the number of their colour."""
_WORDS = ("still candidates", "eliminated for validity", "dominated")


def score_data(comparison: Comparison) -> dict[str, Any]:
    """Empty lists where no policy has published such scores. Of each policy the first seed."""
    labels, lines = comparison.labels, timelines(comparison)
    return {
        "seed": comparison.seeds[0],
        "lines": [
            _score_chart(labels.index(label), label, own)
            for label, own in scored(comparison).items()
        ],
        "timelines": [
            *(_timeline_chart(labels.index(label), label, own) for label, own in lines.items()),
            *_validity_chart({labels.index(label): own for label, own in lines.items()}),
        ],
        "planes": [_plane(labels.index(label), own) for label, own in planes(comparison).items()],
    }


def _score_chart(policy: int, label: str, lines: Sequence[ScoreLine]) -> dict[str, Any]:
    grid = thinned(np.unique(np.concatenate([line.rounds for line in lines])))
    return _line_chart(
        f"score-{policy}",
        label,
        "score",
        grid,
        [
            {
                "policy": policy,
                "look": look,
                "name": f"client {line.client:,}",
                "mean": rounded(_at(grid, line)),
            }
            for look, line in enumerate(lines)
        ],
    )


def _timeline_chart(policy: int, label: str, line: Timeline) -> dict[str, Any]:
    counts: Mapping[str, IntArray] = line._asdict()
    return _line_chart(
        f"candidates-{policy}",
        label,
        f"of {line.watched:,} watched clients",
        line.rounds,
        [
            {"policy": policy, "look": look, "name": words, "mean": counts[kind].tolist()}
            for (kind, look), words in zip(_KINDS.items(), _WORDS, strict=True)
        ],
    )


def _validity_chart(lines: Mapping[int, Timeline]) -> list[dict[str, Any]]:
    """At most one: what the candidates of each policy are in truth, where the world tells it."""
    told = {policy: line for policy, line in lines.items() if line.validity is not None}
    if not told:
        return []
    grid = thinned(np.unique(np.concatenate([line.rounds for line in told.values()])))
    curves = []
    for policy, line in told.items():
        assert line.validity is not None
        mean = np.where(
            grid <= line.rounds[-1], last_before(grid, line.rounds, line.validity), np.nan
        )
        curves.append({"policy": policy, "mean": rounded(mean)})
    title, y = "Mean expected validity of candidates", "mean expected validity"
    return [_line_chart("candidates-validity", title, y, grid, curves)]


def _line_chart(
    name: str, title: str, y: str, grid: FloatArray, curves: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "name": name,
        "title": title,
        "axis": "round",
        "xTitle": "round",
        "yTitle": y,
        "steps": not name.startswith("score"),
        "x": grid.astype(np.int64).tolist(),
        "curves": curves,
    }


def _at(grid: FloatArray, line: ScoreLine) -> FloatArray:
    """The score in the rounds of the grid in which the client had one."""
    found = last_before(grid, line.rounds, line.values)
    return np.where(np.isin(grid, line.rounds), found, np.nan)


def _plane(policy: int, own: Plane) -> dict[str, Any]:
    common = {
        "policy": policy,
        "xTitle": own.validity_title,
        "yTitle": own.utility_title,
        "truth": own.true_validity and own.true_utility,
        "num": len(own.clients),
        "mostRounds": own.most_rounds,
        "front": [rounded(point) for point in own.front],
    }
    values = {"lasting": own.candidate_rounds, "chosen": own.chosen}
    if (bins := own.bins()) is None:
        return {
            **common,
            "clients": own.clients.tolist(),
            "x": rounded(own.validity),
            "y": rounded(own.utility),
            **{name: one.tolist() for name, one in values.items()},
        }
    return {
        **common,
        "xEdges": rounded(bins.validity_edges),
        "yEdges": rounded(bins.utility_edges),
        **{name: rounded(bins.mean(one).ravel()) for name, one in values.items()},
    }


# What the page's scripts draw, as plain lists and numbers.

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

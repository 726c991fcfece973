"""What policies think of clients: scores over rounds, and who remains a candidate."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.report.convergence import ScoreLine, scored
from fedmuster.report.curves import last_before, thinned
from fedmuster.report.elimination import Plane, Timeline, planes, timelines
from fedmuster.report.page.numbers import rounded
from fedmuster.report.runs import Comparison

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
    return _chart(
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
    return _chart(
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
    return [_chart("candidates-validity", title, y, grid, curves)]


def _chart(
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

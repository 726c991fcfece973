"""The network: maps of policies, and what edge servers spent of their budgets."""

from typing import Any

import numpy as np

from fedmuster.report.budget_use import HIGH, LOW, budget_check, spread_of_shares
from fedmuster.report.network_map import Dots, network_maps, usual_success
from fedmuster.report.page.numbers import rounded
from fedmuster.report.runs import Comparison


def network_data(comparison: Comparison) -> dict[str, Any] | None:
    """None where there are no edge servers. Maps are of the first seed, budgets of all."""
    if comparison.network is None:
        return None
    return {"map": _maps(comparison), "budgets": _budgets(comparison)}


def _maps(comparison: Comparison) -> dict[str, Any] | None:
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

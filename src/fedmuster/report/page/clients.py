"""The table of clients: who they are and how often each policy chose them, seed by seed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.records import IntArray
from fedmuster.report.runs import Comparison, Run

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

"""What edge servers and their clients did, as columns of a file."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.report.budget_use import spread_of_shares
from fedmuster.report.runs import Run


def network_columns(run: Run, *, everyone: bool = True) -> Mapping[str, NDArray[Any]]:
    """One entry a client; only those that were chosen if not ``everyone``."""
    network = run.network
    assert network is not None
    clients, chosen = np.arange(run.num_clients), run.selection_counts()
    start = _places(network.start_km, clients)
    places = _places(network.place_km, run.chosen)
    columns = {
        "client": clients,
        "times_chosen": chosen,
        "times_in_time": np.bincount(run.chosen[network.in_time], minlength=len(clients)),
        "paid": np.bincount(run.chosen, weights=network.cost, minlength=len(clients)),
        "price": _numbers(network.price, len(clients)),
        "start_x_km": start[:, 0],
        "start_y_km": start[:, 1],
        "chosen_mean_x_km": _means(run.chosen, places[:, 0], chosen),
        "chosen_mean_y_km": _means(run.chosen, places[:, 1], chosen),
    }
    if everyone:
        return columns
    return {name: values[chosen > 0] for name, values in columns.items()}


def edge_columns(run: Run) -> Mapping[str, NDArray[Any]]:
    """One entry an edge server; shares are of its budget, in a round."""
    network = run.network
    assert network is not None
    count = network.num_edges
    places = _places(network.edge_km, np.arange(count))
    use = spread_of_shares([run])
    return {
        "edge": np.arange(count),
        "x_km": places[:, 0],
        "y_km": places[:, 1],
        "radius_km": np.full(count, np.nan if network.radius_km is None else network.radius_km),
        "times_chosen": np.bincount(network.edges, minlength=count),
        "times_in_time": np.bincount(network.edges[network.in_time], minlength=count),
        "spent": network.spent.sum(axis=0),
        "budget": network.budget.sum(axis=0),
        **{f"share_{name}": values for name, values in use._asdict().items()},
    }


def _places(km: FloatArray | None, like: IntArray) -> FloatArray:
    return np.full((len(like), 2), np.nan) if km is None else km


def _numbers(values: FloatArray | None, count: int) -> FloatArray:
    return np.full(count, np.nan) if values is None else values


def _means(client: IntArray, values: FloatArray, counts: IntArray) -> FloatArray:
    mean = np.full(len(counts), np.nan)
    sums = np.bincount(client, weights=values, minlength=len(counts))
    np.divide(sums, counts, out=mean, where=counts > 0)
    return mean

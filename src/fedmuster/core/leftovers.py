"""At edge servers no budget stays unspent for clients that rest."""

from dataclasses import replace

import numpy as np

from fedmuster.core.arrays import BoolArray, IntArray
from fedmuster.core.edges import EdgeView
from fedmuster.core.records import RoundView, Selection


def with_leftovers(selection: Selection, view: RoundView, kept_back: IntArray) -> Selection:
    """The placement, and clients that were kept from the policy where budgets are left for them.

    If a client that the policy could choose still fits, the policy left budget on purpose, and
    nothing is added.

    Args:
        selection: the policy's placement.
        view: the round, with all available clients.
        kept_back: clients that the policy did not see, those that shall be asked first in front.
    """
    network, clients, edges = view.network, selection.clients, selection.edge_of_each
    fits = _fitting(network, clients, edges)
    fits[clients] = False
    seen = view.available.copy()
    seen[kept_back] = False
    for client, edge in np.argwhere(fits & seen[:, np.newaxis]).tolist():
        if _payable(network, np.append(clients, client), np.append(edges, edge)):
            return selection
    for client in kept_back[fits[kept_back].any(axis=1)].tolist():
        if len(clients) >= view.cohort_size:
            break
        for edge in np.flatnonzero(fits[client]).tolist():
            more = np.append(clients, client), np.append(edges, edge)
            if _payable(network, *more):
                clients, edges = more
                fits = _fitting(network, clients, edges)
                break
    if len(clients) == len(selection.clients):
        return selection
    placed = Selection.at_edges(view, clients, edges)
    return replace(
        selection,
        clients=placed.clients,
        edges=placed.edges,
        features=placed.features,
        inclusion=None,
    )


def _payable(network: EdgeView, clients: IntArray, edges: IntArray) -> bool:
    return bool(np.all(network.spent(clients, edges) <= network.budget))


def _fitting(network: EdgeView, clients: IntArray, edges: IntArray) -> BoolArray:
    """bool[K, M], the pairs that the budgets left by this placement pay for, but for rounding."""
    left = network.budget - network.spent(clients, edges)
    return np.asarray(network.coverage & (network.cost <= left + 1e-9 * network.budget))

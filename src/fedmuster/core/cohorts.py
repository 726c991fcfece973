"""What is wrong with a cohort, if anything: for the selector, and for the contract."""

from typing import Any

import numpy as np

from fedmuster.core.policy import Policy
from fedmuster.core.records import RoundView, Selection, is_integer


def cohort_fault(policy: Policy[Any], view: RoundView, selection: Selection) -> str | None:
    """What is wrong with a cohort, by the policy's own ``cohort_rule``."""
    clients = selection.clients
    if selection.round != view.round:
        return f"it chose for round {selection.round} in round {view.round}"
    if not isinstance(clients, np.ndarray) or clients.dtype != np.int64 or clients.ndim != 1:
        return f"it chose {clients!r}; a cohort is a one-dimensional int64 array"
    if np.any(clients[1:] <= clients[:-1]):
        return f"it chose {clients.tolist()}; ids must increase, none twice"
    if clients.size and (clients[0] < 0 or clients[-1] >= len(view.available)):
        return f"it chose {clients.tolist()} of {len(view.available)} clients"
    if not view.available[clients].all():
        away = clients[~view.available[clients]].tolist()
        return f"it chose {away}, who are not available"
    # What budgets pay for may be fewer than m, whatever the policy's rule is without them.
    rule = policy.cohort_rule if view.edges is None else "at most"
    wanted = view.num_available if rule == "everyone" else view.num_to_choose
    enough = len(clients) == wanted or (rule == "at most" and len(clients) <= wanted)
    if not enough:
        return (
            f"it chose {len(clients)} clients when {view.num_available} were available and m was "
            f"{view.cohort_size}; its cohort_rule {rule!r} means {wanted}"
        )
    return _edge_fault(view, selection) or _column_fault(view, selection)


def _edge_fault(view: RoundView, selection: Selection) -> str | None:
    """COCS Eq. 10b to 10d: budgets, coverage, one edge for each client."""
    network, clients, edges = view.edges, selection.clients, selection.edges
    if network is None:
        return None if edges is None else "it assigned edges where there are none"
    if not isinstance(edges, np.ndarray) or edges.dtype != np.int64 or edges.shape != clients.shape:
        return f"its edges are {edges!r}; there must be one, as int64, for each of its clients"
    if edges.size and not (edges.min() >= 0 and edges.max() < network.num_edges):
        return f"its edges are {edges.tolist()}; there are {network.num_edges}, counted from 0"
    reached = network.coverage[clients, edges]
    if not reached.all():
        client, edge = clients[~reached][0], edges[~reached][0]
        return f"it put client {client} at edge {edge}, which does not cover it"
    spent = network.spent(clients, edges)
    if np.any(spent > network.budget):
        edge = int(np.argmax(spent > network.budget))
        return (
            f"its clients cost {float(spent[edge])!r} at edge {edge}, whose budget is "
            f"{float(network.budget[edge])!r}"
        )
    return None


def _column_fault(view: RoundView, selection: Selection) -> str | None:
    inclusion, features = selection.inclusion, selection.features
    if inclusion is not None and (
        inclusion.shape != selection.clients.shape or not np.all((inclusion > 0) & (inclusion <= 1))
    ):
        return f"its inclusion is {inclusion!r}; it must hold a probability > 0 for each client"
    if features is not None and (
        view.features is None or not np.array_equal(features, selection.rows_of(view.features))
    ):
        return "the features in its selection are not those that the view has of the cohort"
    return _closing_fault(selection)


def _closing_fault(selection: Selection) -> str | None:
    size, order, quota, preferred = (
        len(selection.clients),
        selection.order,
        selection.quota,
        selection.preferred,
    )
    unknown = [column is not None for column in (order, quota, preferred)]
    if selection.edges is not None and any(unknown):
        return "it has an order or a quota, which edge servers do not know"
    if order is not None and not np.array_equal(np.sort(order), np.arange(size)):
        return f"its order is {order!r}; it must hold each of the positions 0 … {size - 1} once"
    if quota is not None and not is_integer(quota, least=1):
        return f"its quota is {quota!r}; it must be an integer >= 1"
    if preferred is not None and (
        preferred.dtype != np.bool_ or preferred.shape != selection.clients.shape or quota is None
    ):
        return "its preferred must hold a bool for each client, and needs a quota"
    return None

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
    everyone = policy.cohort_rule == "everyone"
    wanted = view.num_available if everyone else view.num_to_choose
    enough = len(clients) == wanted or (policy.cohort_rule == "at most" and len(clients) <= wanted)
    if not enough:
        return (
            f"it chose {len(clients)} clients when {view.num_available} were available and m was "
            f"{view.cohort_size}; its cohort_rule {policy.cohort_rule!r} means {wanted}"
        )
    return _column_fault(view, selection)


def _column_fault(view: RoundView, selection: Selection) -> str | None:
    inclusion, features = selection.inclusion, selection.features
    if inclusion is not None and (
        inclusion.shape != selection.clients.shape or not np.all((inclusion > 0) & (inclusion <= 1))
    ):
        return f"its inclusion is {inclusion!r}; it must hold a probability > 0 for each client"
    if features is not None and (
        view.features is None or not np.array_equal(features, view.features[selection.clients])
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
    if order is not None and not np.array_equal(np.sort(order), np.arange(size)):
        return f"its order is {order!r}; it must hold each of the positions 0 … {size - 1} once"
    if quota is not None and not is_integer(quota, least=1):
        return f"its quota is {quota!r}; it must be an integer >= 1"
    if preferred is not None and (
        preferred.dtype != np.bool_ or preferred.shape != selection.clients.shape or quota is None
    ):
        return "its preferred must hold a bool for each client, and needs a quota"
    return None

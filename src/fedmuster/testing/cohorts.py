"""Points 2 and 11: a cohort is valid, however many clients there are to choose from."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedmuster.core.policy import Policy
from fedmuster.core.records import RoundView, Selection
from fedmuster.testing.federation import Federation, Knowledge, lively, varied_seconds
from fedmuster.testing.playing import play_round

_ROUNDS = 40
_SIZES = ((1, 1), (1, 3), (5, 5), (6, 3))


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
    return None


def validity_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 2: whether cohorts are valid in a lively federation, with m changing by the round."""
    federation = lively(knowledge)
    state = policy.init(federation.problem())
    for t in range(1, _ROUNDS + 1):
        # The cohort size of the view counts, not that of the problem.
        draw = replace(federation.draw(t), cohort_size=federation.cohort_size - 2 + t % 5)
        turn = play_round(policy, state, draw)
        fault = cohort_fault(policy, turn.view, turn.selection)
        if fault is not None:
            return f"in round {t} {fault}"
    return None


def scarcity_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 11: whether it copes with one client, with m = K, with few and with none available."""
    for num_clients, cohort_size in _SIZES:
        federation = Federation(
            mean_seconds=varied_seconds(num_clients), cohort_size=cohort_size, knowledge=knowledge
        )
        state = policy.init(federation.problem())
        scarce = (num_clients, 0, 1, cohort_size - 1, num_clients)
        for t in range(1, 3 * len(scarce) + 1):
            count = min(scarce[t % len(scarce)], num_clients)
            available = np.roll(np.arange(num_clients) < count, t)
            where = f"with K = {num_clients}, m = {cohort_size} and {count} clients available"
            try:
                turn = play_round(policy, state, replace(federation.draw(t), available=available))
            except Exception as error:
                return f"{where} it raised {type(error).__name__}: {error}; it must cope"
            fault = cohort_fault(policy, turn.view, turn.selection)
            if fault is not None:
                return f"{where} {fault}"
    return None

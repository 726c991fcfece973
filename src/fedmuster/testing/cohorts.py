"""Points 2 and 11: a cohort is valid, however many clients there are to choose from."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedmuster.core.cohorts import cohort_fault
from fedmuster.core.policy import Policy
from fedmuster.testing.federation import Federation, Knowledge, lively, varied_seconds
from fedmuster.testing.playing import play_round

_ROUNDS = 40
_SIZES = ((1, 1), (1, 3), (5, 5), (6, 3))


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

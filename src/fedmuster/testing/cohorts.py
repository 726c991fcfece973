"""Points 2 and 11: a cohort is valid, however many clients there are to choose from."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedmuster.core.cohorts import cohort_fault
from fedmuster.core.edges import EdgeView
from fedmuster.core.policy import Policy
from fedmuster.core.streams import POLICY, stream
from fedmuster.testing.draw import Draw
from fedmuster.testing.federation import Federation, Knowledge, lively, varied_seconds

_ROUNDS = 40
_SIZES = ((1, 1), (1, 3), (5, 5), (6, 3))


def validity_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 2: whether cohorts are valid in a lively federation, with m changing by the round."""
    federation = lively(knowledge)
    state = policy.init(federation.problem())
    for t in range(1, _ROUNDS + 1):
        # The cohort size of the view counts, not that of the problem.
        draw = replace(federation.draw(t), cohort_size=federation.cohort_size - 2 + t % 5)
        fault = _cohort_fault(policy, state, draw)
        if fault is not None:
            return f"in round {t} {fault}"
    return None


def _cohort_fault(policy: Policy[Any], state: Any, draw: Draw) -> str | None:
    """What is wrong with the policy's cohort; if nothing is, it learns what came back."""
    view = draw.view(policy)
    selection = policy.select(state, view, stream(0, POLICY, draw.round))
    fault = cohort_fault(policy, view, selection)
    if fault is None:
        policy.observe(state, selection, draw.feedback(selection))
    return fault


def scarcity_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 11: whether it copes with few clients, few available, and nobody who can be paid."""
    for federation in _small_federations(knowledge):
        state = policy.init(federation.problem())
        num_clients, cohort_size = len(federation.mean_seconds), federation.cohort_size
        scarce = (num_clients, 0, 1, cohort_size - 1, num_clients)
        for t in range(1, _ROUNDS + 1):
            count = min(scarce[t % len(scarce)], num_clients)
            draw = federation.draw(t)
            need, edges = _in_need(draw.edges, t)
            available = np.roll(np.arange(num_clients) < count, t)
            if edges is not None:
                available &= edges.covered
            draw = replace(draw, available=available, edges=edges)
            where = f"with K = {num_clients}, m = {cohort_size}, {count} clients available{need}"
            try:
                fault = _cohort_fault(policy, state, draw)
            except Exception as error:
                return f"{where} it raised {type(error).__name__}: {error}; it must cope"
            if fault is not None:
                return f"{where} {fault}"
    return None


def _small_federations(knowledge: Knowledge) -> Iterator[Federation]:
    # One edge server with a budget is no flat federation.
    edge_counts = sorted({min(knowledge.num_edges, 1), knowledge.num_edges})
    for num_clients, cohort_size in _SIZES:
        for num_edges in edge_counts:
            yield Federation(
                mean_seconds=varied_seconds(num_clients),
                cohort_size=cohort_size,
                knowledge=replace(knowledge, num_edges=num_edges),
            )


def _in_need(edges: EdgeView | None, round_: int) -> tuple[str, EdgeView | None]:
    """The edge servers in one of the kinds of need and of plenty, and which it is."""
    if edges is None:
        return "", None
    nobody, nothing = np.zeros_like(edges.coverage), np.zeros_like(edges.budget)
    almost = np.full_like(edges.budget, np.nextafter(edges.cost.min(), 0.0))
    what, changed = (
        ("", edges),
        (" that cover nobody", replace(edges, coverage=nobody)),
        (" that cover everybody", replace(edges, coverage=~nobody)),
        (" without budgets", replace(edges, budget=nothing)),
        (
            " without budgets or costs",
            replace(edges, budget=nothing, cost=np.zeros_like(edges.cost)),
        ),
        (" that can almost pay for one client", replace(edges, budget=almost)),
        (" with infinite budgets", replace(edges, budget=nothing + np.inf)),
    )[round_ % 7]
    return f", {edges.num_edges} edge servers{what}:", changed

"""Points 7 and 12: the state keeps its form, and nothing that comes back can poison it."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from fedmuster.core import state as states
from fedmuster.core.cohorts import cohort_fault
from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback
from fedmuster.core.streams import POLICY, stream
from fedmuster.testing.federation import Knowledge, lively
from fedmuster.testing.playing import play_round, trained

_LONG = 200


def growth_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 7: whether names, types and shapes of the state's arrays stay for 200 rounds."""
    federation = lively(knowledge)
    state = policy.init(federation.problem())
    initial = _form(state)
    for t in range(1, _LONG + 1):
        play_round(policy, state, federation.draw(t))
        form = _form(state)
        for name in initial.keys() | form.keys():
            if initial.get(name) != form.get(name):
                return (
                    f"after round {t} the state's {name} was {form.get(name, 'gone')}, at first "
                    f"{initial.get(name, 'absent')}; with as many clients as before, type and "
                    "shape must stay, or a saved state cannot be restored and memory runs out"
                )
    return None


def _form(state: object) -> dict[str, str]:
    return {name: f"{a.dtype}{list(a.shape)}" for name, a in states.to_arrays(state).items()}


def poison_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 12: whether failures and missing rows put NaN into the state, or stop the policy."""
    federation = lively(knowledge)
    for rounds in (0, 20):
        healthy = trained(policy, federation, rounds)
        wounded = deepcopy(healthy)  # which goes through all of it, one mishap after another
        for t, what in enumerate(_MISHAPS, start=rounds + 1):
            fault = _mishap_fault(policy, deepcopy(healthy), rounds + 1, what, knowledge)
            fault = fault or _mishap_fault(policy, wounded, t, what, knowledge)
            if fault is not None:
                return fault
    return None


def _mishap_fault(
    policy: Policy[Any], state: Any, round_: int, what: str, knowledge: Knowledge
) -> str | None:
    federation = lively(knowledge)
    view = federation.draw(round_).view(policy)
    selection = policy.select(state, view, stream(0, POLICY, round_))
    feedback = _MISHAPS[what](federation.draw(round_).feedback(selection))
    try:
        policy.observe(state, selection, feedback)
    except Exception as error:
        return f"given {what}, observe raised {type(error).__name__}: {error}; it must cope"
    for name, array in states.to_arrays(state).items():
        if np.issubdtype(array.dtype, np.inexact) and np.isnan(array).any():
            return (
                f"given {what}, NaN entered the state's {name}; latency and signals mean nothing "
                "where completed is False"
            )
    turn = play_round(policy, state, federation.draw(round_ + 1))
    fault = cohort_fault(policy, turn.view, turn.selection)
    return None if fault is None else f"after {what} {fault}"


def _nobody_completed(feedback: Feedback, latency: float) -> Feedback:
    size = len(feedback.clients)
    return replace(
        feedback,
        latency_seconds=np.full(size, latency),
        completed=np.zeros(size, dtype=np.bool_),
        signals={name: np.full(size, np.nan) for name in feedback.signals},
    )


def _rows(feedback: Feedback, rows: slice) -> Feedback:
    return replace(
        feedback,
        clients=feedback.clients[rows],
        latency_seconds=feedback.latency_seconds[rows],
        completed=feedback.answered[rows],
        signals={name: values[rows] for name, values in feedback.signals.items()},
        used=None if feedback.used is None else feedback.used[rows],
    )


_MISHAPS = {
    "a cohort that failed, with latencies of NaN": lambda f: _nobody_completed(f, np.nan),
    "a cohort that failed, with infinite latencies": lambda f: _nobody_completed(f, np.inf),
    "feedback without rows": lambda f: _rows(f, slice(0)),
    "feedback of one client alone": lambda f: _rows(f, slice(1, 2)),
    "feedback without its first row": lambda f: _rows(f, slice(1, None)),
}

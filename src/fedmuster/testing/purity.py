"""Points 3, 4, 6 and 10: no side effects, no borrowed memory, no global state, no row order."""

import random
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.random.mtrand import get_bit_generator
from numpy.typing import NDArray

from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, IntArray, RoundView, Selection
from fedmuster.core.streams import POLICY, stream
from fedmuster.testing.federation import Knowledge, lively
from fedmuster.testing.playing import (
    Image,
    differing,
    image,
    play,
    play_round,
    same_selection,
    spelled,
    trained,
)

_ROUNDS = 20
_HISTORIES = (0, _ROUNDS)
_MUST_NOT_CHANGE = "select must change nothing: learn in observe"


def select_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 3: whether ``select`` changes anything, or does not repeat."""
    federation = lively(knowledge)
    for rounds in _HISTORIES:
        state = trained(policy, federation, rounds)
        view = federation.draw(rounds + 1).view(policy)
        before, seen = image(state), _view_arrays(view)
        saved = [array.copy() for array in seen]
        first, *others = [
            policy.select(state, view, stream(0, POLICY, rounds + 1)) for _ in range(3)
        ]
        changed = differing(before, image(state))
        if changed:
            return f"select changed the state's {', '.join(changed)}; {_MUST_NOT_CHANGE}"
        if not all(map(np.array_equal, seen, saved)):
            return f"select wrote into the view's arrays; {_MUST_NOT_CHANGE}"
        if not all(same_selection(first, other) for other in others):
            return (
                "three calls of select with equal state, view and rng chose differently; it may "
                "draw from the rng it is given and from nothing else"
            )
    return None


def _view_arrays(view: RoundView) -> list[NDArray[Any]]:
    arrays: list[NDArray[Any]] = [view.available]
    if view.features is not None:
        arrays.append(view.features)
    if view.edges is not None:
        arrays += [view.edges.coverage, view.edges.cost, view.edges.budget]
    if view.truth is not None:
        truth = view.truth
        told = (truth.mean_latency_seconds, truth.mean_speed, truth.success, truth.succeeds)
        arrays += [array for array in told if array is not None]
    return arrays


def borrowing_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 4: whether the state changes when the arrays that observe was given do."""
    federation = lively(knowledge)
    state = policy.init(federation.problem())
    for t in range(1, _ROUNDS + 1):
        _, selection, feedback = play_round(policy, state, federation.draw(t))
        before = image(state)
        for array in _lent(selection, feedback):
            array[...] = array == 0  # another value, whatever the type
        changed = differing(before, image(state))
        if changed:
            return (
                f"the state's {', '.join(changed)} changed when the caller wrote into the arrays "
                "it had passed to observe; observe must copy what it keeps"
            )
    return None


def _lent(selection: Selection, feedback: Feedback) -> list[NDArray[Any]]:
    """The arrays that observe was given."""
    columns: list[NDArray[Any] | None] = [
        selection.clients,
        selection.edges,
        selection.inclusion,
        selection.features,
        feedback.clients,
        feedback.latency_seconds,
        feedback.completed,
        *feedback.signals.values(),
    ]
    return [column for column in columns if column is not None]


def global_rng_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 6: whether the global generators matter to the policy, or are disturbed by it."""
    numpys = get_bit_generator()
    saved = random.getstate(), numpys.state
    outcomes: list[tuple[list[str], Image]] = []
    try:
        for seed in (1, 2):
            random.seed(seed)
            numpys.state = type(numpys)(seed).state
            federation = lively(knowledge)
            state = policy.init(federation.problem())
            turns = play(policy, state, federation, range(1, _ROUNDS + 1))
            outcomes.append(([spelled(turn.selection) for turn in turns], image(state)))
            if random.random() != random.Random(seed).random():
                return "it disturbed Python's global random generator; use the rng it is given"
            if numpys.random_raw() != type(numpys)(seed).random_raw():
                return "it disturbed numpy's global random generator; use the rng it is given"
    finally:
        random.setstate(saved[0])
        numpys.state = saved[1]
    if outcomes[0] != outcomes[1]:
        return "seeding the global random generators changed what it did; use the rng it is given"
    return None


def row_order_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 10: whether the state depends on the order of the feedback's rows."""
    federation = lively(knowledge)
    state = policy.init(federation.problem())
    for t in range(1, _ROUNDS + 1):
        draw = federation.draw(t)
        selection = policy.select(state, draw.view(policy), stream(0, POLICY, t))
        feedback = draw.feedback(selection)
        size = len(feedback.clients)
        order = np.arange(size)[::-1] if t % 2 else np.roll(np.arange(size), 1)
        twin = deepcopy(state)
        policy.observe(twin, selection, _reordered(feedback, order))
        policy.observe(state, selection, feedback)
        changed = differing(image(state), image(twin))
        if changed:
            return (
                f"the state's {', '.join(changed)} differ when the rows of the feedback come in "
                "another order; match rows by feedback.clients, and sort them before summing"
            )
    return None


def _reordered(feedback: Feedback, order: IntArray) -> Feedback:
    return replace(
        feedback,
        clients=feedback.clients[order],
        latency_seconds=feedback.latency_seconds[order],
        completed=feedback.answered[order],
        signals={name: values[order] for name, values in feedback.signals.items()},
        used=None if feedback.used is None else feedback.used[order],
    )

"""Point 18: late answers may come in any order, are not kept, and bring no NaN into the state."""

from collections import deque
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from fedmuster.core.checking import cohort_fault
from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, Selection
from fedmuster.core.streams import POLICY, WORLD, stream
from fedmuster.testing.playing import differing, feedback_rows, image, nan_fault, silenced
from fedmuster.testing.tiny_federation import Knowledge, lively

_ROUNDS = 40
_ROUNDS_LATE = 2
_MISSES_THE_CLOSE = 0.4


def late_fault(policy: Policy[Any], knowledge: Knowledge) -> str | None:
    """Point 18: what is wrong if many answers come two rounds late, and some of them never.

    A client with a late answer cannot be asked before it is there.
    """
    if not policy.hears_late:
        return None
    federation = lively(knowledge)
    state = policy.init(federation.problem())
    on_their_way: deque[Feedback] = deque()
    for t in range(1, _ROUNDS + 1):
        draw = federation.draw(t)
        available = draw.available.copy()
        for answers in on_their_way:
            available[answers.clients] = False
        view = replace(draw, available=available).view(policy)
        selection = policy.select(state, view, stream(0, POLICY, t))
        fault = cohort_fault(policy, view, selection)
        if fault is not None:
            return f"in round {t} with late answers {fault}"
        answers = draw.feedback(selection, policy)
        misses = stream(18, WORLD, t).random(len(answers.clients)) < _MISSES_THE_CLOSE
        on_their_way.append(feedback_rows(answers, np.flatnonzero(misses)))
        late = feedback_rows(answers, slice(0))
        if len(on_their_way) > _ROUNDS_LATE:
            late = replace(on_their_way.popleft(), round=t)
        heard = replace(silenced(answers, misses), late=late)
        fault = _learning_fault(policy, state, selection, heard)
        if fault is not None:
            return f"in round {t} {fault}"
    return None


def _learning_fault(
    policy: Policy[Any], state: Any, selection: Selection, feedback: Feedback
) -> str | None:
    """Let the policy learn; what is wrong with how it takes the rows of late answers."""
    assert feedback.late is not None
    late, twin = feedback.late, deepcopy(state)
    backwards = feedback_rows(late, np.arange(len(late.clients))[::-1])
    policy.observe(twin, selection, replace(feedback, late=backwards))
    policy.observe(state, selection, feedback)
    learned = image(state)
    changed = differing(learned, image(twin))
    if changed:
        return (
            f"the state's {', '.join(changed)} differ when the rows of late answers come in "
            "another order; match rows by late.clients, and sort them before summing"
        )
    for array in (late.clients, late.latency_seconds, late.answered, *late.signals.values()):
        array[...] = array == 0  # another value, whatever the type
    changed = differing(learned, image(state))
    if changed:
        return (
            f"the state's {', '.join(changed)} changed when the caller wrote into the arrays of "
            "late answers; observe must copy what it keeps"
        )
    return nan_fault(state)

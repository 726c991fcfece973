"""Point 15: golden values. The contract cannot know the paper; its reader can.

Write the paper's equations down once more, as plainly as possible, and let these functions
compare: :func:`replay` brings a policy into a known state, and
:func:`assert_cohort_is_optimal` holds its choice against every set it could have chosen.
"""

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import TypeVar

import numpy as np

from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.streams import POLICY, stream
from fedmuster.testing.errors import ContractError

S = TypeVar("S")

Cohort = tuple[int, ...]


def replay(policy: Policy[S], problem: Problem, history: Iterable[tuple[Selection, Feedback]]) -> S:
    """The state of ``policy`` after rounds that went as ``history`` says.

    Args:
        policy: who observes.
        problem: the clients.
        history: of each round who was asked and what came back, whoever chose them.
    """
    state = policy.init(problem)
    for selection, feedback in history:
        policy.observe(state, selection, feedback)
    return state


def assert_cohort_is_optimal(
    policy: Policy[S],
    state: S,
    view: RoundView,
    value: Callable[[Cohort], float],
    *,
    seed: int = 0,
    tolerance: float = 1e-9,
) -> None:
    """Raise :class:`ContractError` unless no set of available clients is worth more.

    Args:
        policy: who chooses.
        state: what it knows.
        view: the round; its ``num_to_choose`` clients are sought.
        value: what the paper says a cohort (increasing ids) is worth, computed without the
            policy's own code.
        seed: of the policy's random stream.
        tolerance: how much less the policy's cohort may be worth, for rounding.

    Example:
        >>> from fedmuster.policies import FastestInExpectation
        >>> from fedmuster.core.records import Truth
        >>> seconds = np.array([0.5, 0.1, 0.2])
        >>> truth = Truth(mean_latency_seconds=seconds, mean_speed=0.1 / seconds)
        >>> everyone = np.ones(3, dtype=np.bool_)
        >>> view = RoundView(
        ...     round=1, cohort_size=2, available=everyone, truth=truth
        ... )
        >>> policy = FastestInExpectation()
        >>> state = replay(policy, Problem(num_clients=3, cohort_size=2), history=[])
        >>> assert_cohort_is_optimal(policy, state, view, lambda s: -sum(seconds[list(s)]))
    """
    chosen = tuple(policy.select(state, view, stream(seed, POLICY, view.round)).clients.tolist())
    candidates = np.flatnonzero(view.available).tolist()
    best = max(combinations(candidates, view.num_to_choose), key=value)
    if not value(chosen) >= value(best) - tolerance:
        raise ContractError(
            15,
            f"{policy.name} chose {list(chosen)} in round {view.round}, worth {value(chosen):.9g}, "
            f"but {list(best)} is worth {value(best):.9g}; it must choose a best cohort",
        )

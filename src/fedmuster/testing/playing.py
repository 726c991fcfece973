"""Play a policy in a federation, compare its states, and check golden values (point 15)."""

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmuster.core import state as states
from fedmuster.core.arrays import BoolArray, IntArray
from fedmuster.core.errors import PolicyError
from fedmuster.core.policy import Policy
from fedmuster.core.records import PER_CLIENT, Feedback, Problem, RoundView, Selection
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.testing.tiny_federation import Draw, TinyFederation


class ContractError(PolicyError):
    """A policy broke a point of the contract.

    Args:
        point: the number of the point.
        message: what the policy did, and what it must do.
    """

    def __init__(self, point: int, message: str) -> None:
        super().__init__(point, message)
        self.point = point
        self.message = message

    def __str__(self) -> str:
        return f"point {self.point}: {self.message}"


S = TypeVar("S")

Image = dict[str, tuple[str, tuple[int, ...], bytes]]
"""Type, shape and bytes of each array: equal only if the bits are, so that NaN equals NaN."""


class Turn(NamedTuple):
    """One round that was played."""

    view: RoundView
    selection: Selection
    feedback: Feedback


def play_round(policy: Policy[S], state: S, draw: Draw, *, seed: int = 0) -> Turn:
    """Let ``policy`` choose and learn, without a Selector that would mend its mistakes."""
    view = draw.view(policy)
    selection = policy.select(state, view, stream(seed, POLICY, draw.round))
    feedback = draw.feedback(selection, policy)
    policy.observe(state, selection, feedback)
    return Turn(view, selection, feedback)


def feedback_rows(feedback: Feedback, rows: slice | IntArray) -> Feedback:
    """Some rows of what came back, in the order of ``rows``."""
    vectors = {name: values[rows] for name, values in vectors_of(feedback).items()}
    return replace(
        feedback,
        **vectors,
        clients=feedback.clients[rows],
        latency_seconds=feedback.latency_seconds[rows],
        completed=feedback.answered[rows],
        signals={name: values[rows] for name, values in feedback.signals.items()},
        used=None if feedback.used is None else feedback.used[rows],
    )


def silenced(
    feedback: Feedback, rows: BoolArray | slice = slice(None), *, latency: float = np.inf
) -> Feedback:
    """This feedback without the answers of ``rows``: these clients did not complete."""

    def lost(values: NDArray[Any], missing: float) -> NDArray[Any]:
        values = values.copy()
        values[rows] = missing
        return values

    vectors: dict[str, Any] = {
        name: lost(values, np.nan) for name, values in vectors_of(feedback).items()
    }
    return replace(
        feedback,
        **vectors,
        latency_seconds=lost(feedback.latency_seconds, latency),
        completed=lost(feedback.answered, missing=False),
        signals={name: lost(values, np.nan) for name, values in feedback.signals.items()},
    )


def vectors_of(feedback: Feedback) -> dict[str, Any]:
    """The sketches and output biases that came back, by the name of their field."""
    told = {name: getattr(feedback, name) for name in ("sketches", "output_bias")}
    return {name: rows for name, rows in told.items() if rows is not None}


def play(
    policy: Policy[S], state: S, federation: TinyFederation, rounds: Iterable[int], *, seed: int = 0
) -> list[Turn]:
    """Several rounds of :func:`play_round`."""
    return [play_round(policy, state, federation.draw(t), seed=seed) for t in rounds]


def trained(policy: Policy[S], federation: TinyFederation, rounds: int) -> S:
    """The state after these rounds."""
    state = policy.init(federation.problem())
    play(policy, state, federation, range(1, rounds + 1))
    return state


def select_in(selector: Selector[Any], draw: Draw, *, count: int | None = None) -> Selection:
    """Open the round with ``draw``, or ask ``count`` clients while others are out; the cohort."""
    return selector.select(
        count=count,
        available=draw.available,
        features=draw.features,
        edges=draw.edges,
        truth=draw.truth,
        ask_loss=draw.ask_loss,
        forecast=draw.forecast,
    )


def finish(selector: Selector[Any], draw: Draw) -> None:
    """Close the round that :func:`select_in` opened."""
    assert selector.pending is not None
    selector.observe(draw.feedback(selector.pending, selector.policy))


def continue_in(
    selector: Selector[Any], federation: TinyFederation, rounds: int
) -> list[Selection]:
    """Play on with a Selector; the cohorts."""
    cohorts = []
    for _ in range(rounds):
        draw = federation.draw(selector.round)
        cohorts.append(select_in(selector, draw))
        finish(selector, draw)
    return cohorts


def join_rest(selector: Selector[Any], problem: Problem) -> IntArray:
    """Let the clients of ``problem`` that the selector does not know yet join; their indices."""
    first = selector.problem.num_clients
    told = {name: getattr(problem, name) for name in PER_CLIENT}
    joining = {name: of[first:] for name, of in told.items() if of is not None}
    return selector.join(problem.num_clients - first, **joining)


def spelled(selection: Selection) -> str:
    """A cohort in words: who, and where there are edges at which."""
    where = "" if selection.edges is None else f" at edges {selection.edges.tolist()}"
    return f"{selection.clients.tolist()}{where}"


def image(state: object) -> Image:
    """The arrays of a state, bit by bit."""
    return {
        name: (array.dtype.str, array.shape, array.tobytes())
        for name, array in states.to_arrays(state).items()
    }


def nan_fault(state: object) -> str | None:
    """Whether NaN entered the state, and where."""
    for name, array in states.to_arrays(state).items():
        if np.issubdtype(array.dtype, np.inexact) and np.isnan(array).any():
            return (
                f"NaN entered the state's {name}; latency and signals mean nothing where completed "
                "is False"
            )
    return None


def differing(one: Image, other: Image) -> list[str]:
    """Names of the arrays that are not bit for bit the same."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def same_selection(one: Selection, other: Selection) -> bool:
    """Whether two selections agree in everything they say."""
    return all(
        np.array_equal(getattr(one, item.name), getattr(other, item.name))
        for item in fields(Selection)
    )


Cohort = tuple[int, ...]


def replay(policy: Policy[S], problem: Problem, history: Iterable[tuple[Selection, Feedback]]) -> S:
    """The state of ``policy`` after the selections and the feedback of ``history``."""
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
        policy: the policy to check.
        state: its state.
        view: the round; the cohort has ``num_to_choose`` clients.
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
        >>> view = RoundView(round=1, cohort_size=2, available=everyone, truth=truth)
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

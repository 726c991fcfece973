"""Play a policy in a federation, and compare what becomes of its state."""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedmuster.core import state as states
from fedmuster.core.policy import Policy
from fedmuster.core.records import Feedback, RoundView, Selection
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.testing.draw import Draw
from fedmuster.testing.federation import Federation

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
    feedback = draw.feedback(selection)
    policy.observe(state, selection, feedback)
    return Turn(view, selection, feedback)


def play(
    policy: Policy[S], state: S, federation: Federation, rounds: Iterable[int], *, seed: int = 0
) -> list[Turn]:
    """Several rounds of :func:`play_round`."""
    return [play_round(policy, state, federation.draw(t), seed=seed) for t in rounds]


def trained(policy: Policy[S], federation: Federation, rounds: int) -> S:
    """The state after so many rounds."""
    state = policy.init(federation.problem())
    play(policy, state, federation, range(1, rounds + 1))
    return state


def select_in(selector: Selector[Any], draw: Draw) -> Selection:
    """Open the round with ``draw``; the cohort."""
    return selector.select(
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
    selector.observe(draw.feedback(selector.pending))


def continue_in(selector: Selector[Any], federation: Federation, rounds: int) -> list[Selection]:
    """Play on with a Selector; the cohorts."""
    cohorts = []
    for _ in range(rounds):
        draw = federation.draw(selector.round)
        cohorts.append(select_in(selector, draw))
        finish(selector, draw)
    return cohorts


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


def differing(one: Image, other: Image) -> list[str]:
    """Names of the arrays that are not bit for bit the same."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def same_selection(one: Selection, other: Selection) -> bool:
    """Whether two selections agree in everything they say."""

    def same(a: Any, b: Any) -> bool:
        return (a is None and b is None) or np.array_equal(a, b)

    return (
        one.round == other.round
        and same(one.clients, other.clients)
        and same(one.edges, other.edges)
        and same(one.inclusion, other.inclusion)
        and same(one.features, other.features)
        and same(one.order, other.order)
        and one.quota == other.quota
        and same(one.preferred, other.preferred)
    )

"""Which clients answer: the chance of an answer, and what a job costs that fails."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.state import shared

_PRIOR_JOBS: Final = 2.0
"""Jobs that the fleet's rate of answers is worth."""
_KEPT: Final = 0.99
"""The share of the longest time that each call keeps; answers in time and late ones are two calls.
"""


@dataclass(slots=True)
class AnsweringState:
    """What is known of each client's answers.

    Attributes:
        asked: int64[K], how often each client was asked.
        late: int64[K], how many of its answers are late, so that nobody knows yet if they come.
        answered: int64[K], how often it answered.
        fleet: jobs of all clients whose end is known, and how many of these were answered.
        longest_seconds: about the longest time of an answer: how long a failed job holds a slot.
    """

    asked: IntArray
    late: IntArray
    answered: IntArray
    fleet: IntArray = shared()
    longest_seconds: FloatArray = shared()


def init(num_clients: int) -> AnsweringState:
    """Nobody was asked yet."""
    return AnsweringState(
        asked=np.zeros(num_clients, dtype=np.int64),
        late=np.zeros(num_clients, dtype=np.int64),
        answered=np.zeros(num_clients, dtype=np.int64),
        fleet=np.zeros(2, dtype=np.int64),
        longest_seconds=np.array(0.0),
    )


def chance(state: AnsweringState, rows: IntArray | slice) -> FloatArray:
    """[n], the chance that a client answers, shrunk towards the fleet's rate."""
    ended, answered = state.fleet.tolist()
    rate = (answered + 1.0) / (ended + 1.0)  # as if one had answered before
    known = state.asked[rows] - state.late[rows]
    return np.asarray((state.answered[rows] + _PRIOR_JOBS * rate) / (known + _PRIOR_JOBS))


def slot_seconds(state: AnsweringState, chance: FloatArray, seconds: FloatArray) -> FloatArray:
    """[n], the expected slot-seconds of a job: ``seconds`` if it is answered, else the longest."""
    failed = np.maximum(seconds, state.longest_seconds)
    return np.asarray(failed - chance * (failed - seconds))


def learn(
    state: AnsweringState, clients: IntArray, answered: BoolArray, *, may_be_late: bool
) -> None:
    """These clients were asked, and some of them answered; the others failed or may be late."""
    state.asked[clients] += 1
    if may_be_late:
        state.late[clients[~answered]] += 1
        clients, answered = clients[answered], answered[answered]
    _learn_ends(state, clients, answered)


def learn_late(state: AnsweringState, clients: IntArray, answered: BoolArray) -> None:
    """What became of clients that might be late."""
    state.late[clients] -= 1
    _learn_ends(state, clients, answered)


def _learn_ends(state: AnsweringState, clients: IntArray, answered: BoolArray) -> None:
    state.answered[clients[answered]] += 1
    state.fleet += np.array([len(clients), np.count_nonzero(answered)])


def learn_seconds(state: AnsweringState, seconds: FloatArray) -> None:
    """The times of answers."""
    state.longest_seconds[...] = max(
        _KEPT * float(state.longest_seconds), float(seconds.max(initial=0.0))
    )

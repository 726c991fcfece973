"""Which clients answer: the chance of an answer, and what a job costs that fails."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.state import shared

_FORGETTING: Final = 0.99
"""What each message leaves of the longest time before."""


@dataclass(slots=True)
class AnsweringState:
    """What is known of each client's answers.

    Attributes:
        asked: int64[K], how often each client was asked.
        late: int64[K], how many of its answers are late, so that nobody knows yet if they come.
        answered: int64[K], how often it answered.
        longest_seconds: about the longest time of an answer: how long a failed job holds a slot.
    """

    asked: IntArray
    late: IntArray
    answered: IntArray
    longest_seconds: FloatArray = shared()


def init(num_clients: int) -> AnsweringState:
    """Nobody was asked yet."""
    return AnsweringState(
        asked=np.zeros(num_clients, dtype=np.int64),
        late=np.zeros(num_clients, dtype=np.int64),
        answered=np.zeros(num_clients, dtype=np.int64),
        longest_seconds=np.array(0.0),
    )


def chance(state: AnsweringState, rows: IntArray | slice) -> FloatArray:
    """[n], the chance that a client answers, as if it had answered once before."""
    known = state.asked[rows] - state.late[rows]
    return np.asarray((state.answered[rows] + 1.0) / (known + 1.0))


def slot_seconds(state: AnsweringState, chance: FloatArray, seconds: FloatArray) -> FloatArray:
    """[n], how long a job holds its slot: ``seconds`` if it is answered, or else the longest."""
    failed = np.maximum(seconds, state.longest_seconds)
    return np.asarray(failed - chance * (failed - seconds))


def learn(
    state: AnsweringState, clients: IntArray, answered: BoolArray, *, may_be_late: bool
) -> None:
    """These clients were asked, and some of them answered; the others failed or may be late."""
    state.asked[clients] += 1
    state.answered[clients[answered]] += 1
    if may_be_late:
        state.late[clients[~answered]] += 1


def learn_late(state: AnsweringState, clients: IntArray, answered: BoolArray) -> None:
    """What became of clients that might be late."""
    state.late[clients] -= 1
    state.answered[clients[answered]] += 1


def learn_seconds(state: AnsweringState, seconds: FloatArray) -> None:
    """The times of answers."""
    state.longest_seconds[...] = max(
        _FORGETTING * float(state.longest_seconds), float(seconds.max(initial=0.0))
    )

"""Which clients answer: the chance of an answer, and clients that are late.

In a round that closes early, a client without an answer may be late or may have failed. The server
does not tell a policy of late answers, so a client counts as late unless the round has lasted for
:data:`PATIENCE` of its expected times.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.state import shared
from fedmuster.policies.tempo import latencies
from fedmuster.policies.tempo.latencies import LatencyState

PATIENCE: Final = 3.0
"""A late client is awaited for this number of its expected times, or for as long as a slow client
of the fleet takes."""


@dataclass(slots=True)
class AnsweringState:
    """What is known of each client's answers.

    Attributes:
        asked: int64[K], how often each client was asked.
        late: int64[K], how often it was late, so that nobody knows whether it answered.
        answered: int64[K], how often it answered in time.
        awaited_until: [K], the second until which its late answer is awaited; 0 for none.
        elapsed_seconds: of all rounds so far.
    """

    asked: IntArray
    late: IntArray
    answered: IntArray
    awaited_until: FloatArray
    elapsed_seconds: FloatArray = shared()


def init(num_clients: int) -> AnsweringState:
    """Nobody was asked yet."""
    return AnsweringState(
        asked=np.zeros(num_clients, dtype=np.int64),
        late=np.zeros(num_clients, dtype=np.int64),
        answered=np.zeros(num_clients, dtype=np.int64),
        awaited_until=np.zeros(num_clients),
        elapsed_seconds=np.array(0.0),
    )


def chance(state: AnsweringState, rows: IntArray | slice) -> FloatArray:
    """[n], the chance that a client answers, as if it had answered once before."""
    known = state.asked[rows] - state.late[rows]
    return np.asarray((state.answered[rows] + 1.0) / (known + 1.0))


def num_out(state: AnsweringState, available: BoolArray) -> int:
    """How many clients still work for an earlier round."""
    awaited = state.awaited_until > state.elapsed_seconds
    return int(np.count_nonzero(awaited & ~available))


def learn(state: AnsweringState, clients: IntArray, answered: BoolArray) -> None:
    """These clients were asked, and some of them answered."""
    state.asked[clients] += 1
    state.answered[clients[answered]] += 1
    state.awaited_until[clients[answered]] = 0.0


def learn_late(
    state: AnsweringState, latency: LatencyState, missing: IntArray, round_seconds: float
) -> None:
    """A round has closed early without these clients: some are late, the others have failed."""
    expected = latencies.expected_seconds(latency, missing)
    state.late[missing[round_seconds < PATIENCE * expected]] += 1
    latencies.learn_longer(latency, missing, round_seconds)
    wait = PATIENCE * latencies.expected_seconds(latency, missing)
    longest = np.maximum(wait, latencies.slow_seconds(latency))
    state.awaited_until[missing] = state.elapsed_seconds + longest

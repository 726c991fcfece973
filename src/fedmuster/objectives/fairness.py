"""Virtual queues: a client that is owed participation becomes more urgent every round.

``Z <- max(0, Z + rate - chosen)`` for all K clients would touch all of them every round. A queue
that is not served only grows, by ``rate`` a round, so it is enough to keep its length at the
round it was last served.
"""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray, IntArray


@dataclass(slots=True)
class QueueState:
    """Length of each client's queue when it was last served, and that round."""

    length: FloatArray
    served: IntArray


def empty_queues(num_clients: int, first_round: int = 1) -> QueueState:
    """All queues empty before ``first_round``: nobody is owed for rounds before it joined."""
    return QueueState(
        length=np.zeros(num_clients), served=np.full(num_clients, first_round - 1, dtype=np.int64)
    )


def queue_length(state: QueueState, rows: IntArray | slice, round_: int, rate: float) -> FloatArray:
    """Queue lengths at the start of ``round_``, after ``round_ - 1`` arrivals of ``rate``.

    Example:
        >>> queues = empty_queues(2)
        >>> serve(queues, np.array([0]), round_=1, rate=0.25)
        >>> queue_length(queues, slice(None), 3, 0.25)
        array([0.25, 0.5 ])
    """
    return state.length[rows] + rate * (round_ - 1 - state.served[rows])


def serve(state: QueueState, clients: IntArray, *, round_: int, rate: float) -> None:
    """``clients`` were chosen in ``round_``: ``Z <- max(0, Z + rate - 1)``."""
    length = queue_length(state, clients, round_ + 1, rate) - 1.0
    state.length[clients] = np.maximum(length, 0.0)
    state.served[clients] = round_

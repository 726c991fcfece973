"""Clients that fail rest for a while, and longer with each failure in a row."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.arrays import BoolArray, IntArray
from fedmuster.core.records import Feedback

_LONGEST = 10
"""Doublings: no client rests for more than 1,024 rounds."""


@dataclass(slots=True)
class Failures:
    """How often each client has failed since it last answered, and in which round the last time."""

    in_a_row: IntArray
    last_round: IntArray

    @classmethod
    def none(cls, num_clients: int) -> "Failures":
        """No client has failed yet."""
        return cls(
            in_a_row=np.zeros(num_clients, dtype=np.int64),
            last_round=np.zeros(num_clients, dtype=np.int64),
        )

    def observe(self, feedback: Feedback) -> None:
        """Count the clients that did not complete, and forget the failures of those that did."""
        failed = feedback.clients[~feedback.answered]
        self.in_a_row[feedback.clients[feedback.answered]] = 0
        self.in_a_row[failed] += 1
        self.last_round[failed] = feedback.round

    def resting(self, round_: int) -> BoolArray:
        """bool[K]: clients that failed f times in a row and have not rested ``2^f - 1`` rounds.

        Example:
            >>> failures = Failures(in_a_row=np.array([0, 1, 2]), last_round=np.array([0, 5, 5]))
            >>> failures.resting(6), failures.resting(7)
            (array([False,  True,  True]), array([False, False,  True]))
        """
        rest = np.left_shift(1, np.minimum(self.in_a_row, _LONGEST))
        return np.asarray((self.in_a_row > 0) & (round_ < self.last_round + rest))

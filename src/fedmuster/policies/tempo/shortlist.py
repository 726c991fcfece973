"""Of very many clients, the few that the next free slots may go to."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.state import derived
from fedmuster.core.streams import POLICY, stream
from fedmuster.solvers.top_k import top_k

MANY: Final = 1 << 16
"""With more clients than this, free slots are filled from a shortlist."""
LENGTH: Final = 2048
"""Clients on each half of the shortlist."""
REMADE_EVERY: Final = 256
"""Answers after which the shortlist is made anew."""


@dataclass(slots=True)
class Shortlist:
    """The best clients by score and the best by coverage; empty unless there are very many.

    Until the next list the ages of all clients grow by the same number, so the list stays nearly
    right; clients that answer or fail in the meantime are the exception.

    Attributes:
        clients: int64, increasing.
        made_at: how many answers had come when it was made; -1 if it is not made.
    """

    clients: IntArray = derived()
    made_at: IntArray = derived()


def init(num_clients: int) -> Shortlist:
    """No list yet."""
    length = 2 * LENGTH if num_clients > MANY else 0
    return Shortlist(clients=np.zeros(length, dtype=np.int64), made_at=np.array(-1))


def outdated(shortlist: Shortlist, answers: int) -> bool:
    """Whether there are very many clients, and no list or an old one."""
    old = shortlist.made_at < 0 or answers >= shortlist.made_at + REMADE_EVERY
    return len(shortlist.clients) > 0 and bool(old)


def make(shortlist: Shortlist, score: FloatArray, coverage: FloatArray, answers: int) -> None:
    """The best clients now. ``coverage`` is overwritten."""
    rng = stream(0, POLICY, answers)  # for ties; a state does not know the seed of its selector
    best = top_k(score, LENGTH, rng)
    coverage[best] = -np.inf
    shortlist.clients[:] = np.sort(np.concatenate([best, top_k(coverage, LENGTH, rng)]))
    shortlist.made_at[...] = answers


def candidates(shortlist: Shortlist, available: BoolArray, count: int) -> IntArray | None:
    """The clients of the list that are available; None where too many of its clients are away."""
    if shortlist.made_at < 0:
        return None
    there = shortlist.clients[available[shortlist.clients]]
    enough = len(there) >= LENGTH // 2 + count  # with less than a quarter of it, look at all
    return there if enough else None

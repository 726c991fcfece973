"""Outliers of loss: clients whose losses nobody else reports lose credits (Pisces)."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.state import shared

_NOBODY = -1


@dataclass(slots=True)
class RecentLosses:
    """The last answers: a ring of clients and of the losses that they reported.

    An entry of a client that has answered again since then is empty (client -1).
    """

    clients: IntArray = shared()
    losses: FloatArray = shared()
    next: IntArray = shared()

    @classmethod
    def of_last(cls, size: int) -> "RecentLosses":
        """The last ``size`` answers, of which there are none yet."""
        return cls(
            clients=np.full(size, _NOBODY), losses=np.zeros(size), next=np.array(0, dtype=np.int64)
        )

    def add(self, clients: IntArray, losses: FloatArray) -> None:
        """Enter answers, one for each of these clients."""
        size = len(self.clients)
        clients, losses = clients[:size], losses[:size]
        self.clients[np.isin(self.clients, clients)] = _NOBODY
        places = (int(self.next) + np.arange(len(clients))) % size
        self.clients[places], self.losses[places] = clients, losses
        self.next[...] = (int(self.next) + len(clients)) % size

    def outliers(self, *, radius: float, neighbours: int, enough: int) -> IntArray:
        """The clients whose losses are outliers, increasing.

        Nobody is one while fewer than ``enough`` clients are known, or while losses are so far
        apart that no cluster can be seen.
        """
        known = np.flatnonzero(self.clients != _NOBODY)
        alone = noise(self.losses[known], radius=radius, neighbours=neighbours)
        if len(known) < enough or alone.all():
            return np.empty(0, dtype=np.int64)
        return np.sort(self.clients[known[alone]])


def noise(values: FloatArray, *, radius: float, neighbours: int) -> BoolArray:
    """bool[n]: the points that DBSCAN puts into no cluster, in one dimension.

    A core point has at least ``neighbours`` points within ``radius``, itself included. A point
    that is not within ``radius`` of any core point is noise.

    Example:
        >>> noise(np.array([1.0, 5.0, 1.2, 1.4, 1.7]), radius=0.5, neighbours=3)
        array([False,  True, False, False, False])
    """
    order = np.argsort(values)
    line = values[order]
    first = np.searchsorted(line, line - radius, side="left")
    last = np.searchsorted(line, line + radius, side="right")
    core = last - first >= neighbours
    before = np.concatenate([[0], np.cumsum(core)])
    found = np.empty(len(values), dtype=np.bool_)
    found[order] = before[last] == before[first]
    return found

"""What is on its way to the server, or waits there to be used."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.records import BoolArray, FloatArray, IntArray, Late
from fedmuster.core.state import Array


class Pending:
    """Late vectors of parameters, at most one of each client.

    Args:
        num_parameters: the length of each.
    """

    def __init__(self, num_parameters: int) -> None:
        self.clients: IntArray = np.empty(0, dtype=np.int64)
        self.rounds: IntArray = np.empty(0, dtype=np.int64)
        """In which each was asked for."""
        self.arrives_at_seconds: FloatArray = np.empty(0)
        self.vectors: NDArray[np.float32] = np.empty((0, num_parameters), dtype=np.float32)
        self.now_seconds = 0.0

    @property
    def arrived(self) -> BoolArray:
        """bool[n], which of them are there by now."""
        return self.arrives_at_seconds <= self.now_seconds

    @property
    def on_their_way(self) -> Late:
        """The others."""
        away = ~self.arrived
        return Late(clients=self.clients[away], arrives_at_seconds=self.arrives_at_seconds[away])

    def add(
        self,
        clients: IntArray,
        round_number: int,
        arrives_at_seconds: FloatArray,
        vectors: NDArray[np.float32],
    ) -> None:
        """Wait for these too; what waits of the same clients is out of date."""
        if len(clients) == 0:
            return
        self.drop(np.isin(self.clients, clients))
        rounds = np.full(len(clients), round_number, dtype=np.int64)
        self.clients = np.concatenate([self.clients, clients])
        self.rounds = np.concatenate([self.rounds, rounds])
        self.arrives_at_seconds = np.concatenate([self.arrives_at_seconds, arrives_at_seconds])
        self.vectors = np.concatenate([self.vectors, vectors])

    def drop(self, rows: BoolArray) -> None:
        """Wait for these no longer."""
        if rows.any():
            self.clients = self.clients[~rows]
            self.rounds = self.rounds[~rows]
            self.arrives_at_seconds = self.arrives_at_seconds[~rows]
            self.vectors = self.vectors[~rows]

    def arrays(self) -> dict[str, Array]:
        """All of it."""
        return {
            "clients": self.clients,
            "rounds": self.rounds,
            "arrives_at_seconds": self.arrives_at_seconds,
            "vectors": self.vectors,
            "now_seconds": np.array(self.now_seconds),
        }

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from :meth:`arrays`."""
        self.clients = arrays["clients"]
        self.rounds = arrays["rounds"]
        self.arrives_at_seconds = arrays["arrives_at_seconds"]
        self.vectors = arrays["vectors"]
        self.now_seconds = float(arrays["now_seconds"])

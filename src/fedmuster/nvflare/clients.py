"""Which clients a job has, which of them can be asked, and how long each usually takes."""

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray


class Clients:
    """The clients of a run by name, in the order in which the server met them.

    FLARE knows a client by the name in its certificate, so a name is an identity. FLARE's clients
    ask for work as soon as they are free. So a client that has not asked since the server started
    is not there yet, and one that missed its round may still work on it: both are not available
    before they ask (:meth:`asks_for_work`).
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names: list[str] = list(names)
        self._index = {name: client for client, name in enumerate(self.names)}
        self._free: set[str] = set()
        self._lock = Lock()  # FLARE tells of clients in threads of their own
        self._answers = np.zeros(len(self.names), dtype=np.int64)
        self._seconds = np.zeros(len(self.names))

    def __len__(self) -> int:
        return len(self.names)

    def meet(self, names: Sequence[str]) -> int:
        """Note new clients; returns how many there are."""
        new = [name for name in dict.fromkeys(names) if name not in self._index]
        for name in new:
            self._index[name] = len(self.names)
            self.names.append(name)
        self._answers = np.pad(self._answers, (0, len(new)))
        self._seconds = np.pad(self._seconds, (0, len(new)))
        return len(new)

    def index(self, names: Iterable[str]) -> IntArray:
        """int64[n], the numbers of these clients."""
        return np.array([self._index[name] for name in names], dtype=np.int64)

    def available(self, present: Sequence[str]) -> BoolArray:
        """bool[K], the clients among ``present`` that have asked for work and owe no answer."""
        free = np.zeros(len(self.names), dtype=np.bool_)
        with self._lock:
            free[self.index(name for name in present if name in self._free)] = True
        return free

    def missing(self, names: Iterable[str]) -> None:
        """These clients have not answered in time."""
        with self._lock:
            self._free.difference_update(names)

    def asks_for_work(self, name: str) -> bool:
        """A client is free; whether that is news."""
        with self._lock:
            is_news = name not in self._free
            self._free.add(name)
        return is_news

    def took(self, clients: IntArray, seconds: FloatArray) -> None:
        """These clients, each once, have answered after so long."""
        self._answers[clients] += 1
        self._seconds[clients] += seconds

    @property
    def mean_seconds(self) -> FloatArray:
        """[K], NaN for clients that have never answered."""
        answered = self._answers > 0
        return np.where(answered, self._seconds / np.maximum(self._answers, 1), np.nan)

    def to_plain(self) -> dict[str, Any]:
        """To be saved, as plain values; not who is free, for clients ask a new server again."""
        return {"names": self.names, "answers": self._answers, "seconds": self._seconds}

    @classmethod
    def of_plain(cls, saved: Mapping[str, Any]) -> "Clients":
        """The inverse of :meth:`to_plain`."""
        clients = cls(saved["names"])
        clients._answers, clients._seconds = saved["answers"], saved["seconds"]
        return clients

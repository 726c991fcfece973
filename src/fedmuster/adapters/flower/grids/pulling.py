"""Fetching replies from a SuperLink, without hanging on one that is not whole yet.

A SuperLink lists a reply before all of it has arrived, and Flower's grid then waits for the rest:
usually a second or two, but three minutes if the node dies while it uploads, and all other replies
of the same call wait with it. So each reply is fetched by itself, in threads for which nobody waits
longer than a round may last.
"""

import threading
from collections.abc import Collection, Iterable
from queue import SimpleQueue
from typing import Protocol

from flwr.app import Message
from flwr.serverapp import Grid

_THREADS = 16
"""At most, and only while so many are waited for: each may hang with a reply."""
_LOCAL_GRIDS = ("InMemoryGrid", "InProcessGrid")
"""Whose replies are here, and whole: those of Flower's simulation engine, and our own."""


class Pulling(Protocol):
    """How replies are fetched."""

    def pull(self, message_ids: Collection[str], *, wait_seconds: float) -> Iterable[Message]:
        """Those that have come, after ``wait_seconds`` at the latest."""
        ...

    def close(self) -> None:
        """Nobody will pull any more."""
        ...


def pulling_from(grid: Grid) -> Pulling:
    """What suits the grid."""
    if type(grid).__name__ in _LOCAL_GRIDS:
        return AllAtOnce(grid)
    return OneByOne(grid)


class AllAtOnce:
    """For grids that never wait."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def pull(self, message_ids: Collection[str], *, wait_seconds: float) -> Iterable[Message]:
        """What the grid has."""
        return self._grid.pull_messages(message_ids)

    def close(self) -> None:
        """Nothing is held."""


class OneByOne:
    """For grids that may wait. What a thread fetches after all is told of the next time."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._wanted: SimpleQueue[str | None] = SimpleQueue()
        self._news = threading.Condition()
        self._asking: set[str] = set()
        self._fetched: dict[str, list[Message]] = {}
        self._failed: list[Exception] = []
        self._threads = 0

    def pull(self, message_ids: Collection[str], *, wait_seconds: float) -> Iterable[Message]:
        """Ask for each of them, and return what has come in time."""
        with self._news:
            for message_id in message_ids:
                if message_id not in self._asking and message_id not in self._fetched:
                    self._asking.add(message_id)
                    self._wanted.put(message_id)
            self._hire(len(self._asking))
            self._news.wait_for(lambda: self._asking.isdisjoint(message_ids), wait_seconds)
            if self._failed:
                raise self._failed.pop()
            return [reply for each in message_ids for reply in self._fetched.pop(each, ())]

    def close(self) -> None:
        """Let the threads end, each after what it is at."""
        for _ in range(self._threads):
            self._wanted.put(None)

    def _hire(self, wanted: int) -> None:
        for _ in range(self._threads, min(wanted, _THREADS)):
            # A daemon, so that a reply that hangs does not keep a finished ServerApp from ending.
            threading.Thread(target=self._work, name="fedmuster-pull", daemon=True).start()
            self._threads += 1

    def _work(self) -> None:
        while (message_id := self._wanted.get()) is not None:
            found: list[Message] = []
            failed: list[Exception] = []
            try:
                found += self._grid.pull_messages([message_id])
            except Exception as error:  # whatever it is, it belongs to the thread that asked
                failed.append(error)
            with self._news:
                self._asking.discard(message_id)
                self._failed += failed
                if found:
                    self._fetched[message_id] = found
                self._news.notify_all()

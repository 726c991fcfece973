"""Whoever is measured plays in a process of its own, some rounds at a time, when it is its turn.

So all are measured in one run, in turns, and the noise of the machine falls on all of them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, Generic, TypeVar

from benchmarks.training.processor_time import processor_seconds

Turns = Iterator[int]
"""The numbers of the rounds to play, 1, 2, …: who asks for the next has finished the last."""

T = TypeVar("T")

_CONTEXT = get_context("spawn")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Process(Generic[T]):
    """Somebody at work.

    Args:
        entry: plays the rounds of its first argument; importable, since it runs elsewhere.
        args: its other arguments.
        threads: that the process may use.
        environment: further variables of the process.
    """

    def __init__(
        self,
        entry: Callable[..., T],
        args: tuple[Any, ...],
        *,
        threads: int = 1,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._pipe, theirs = _CONTEXT.Pipe()
        # pfl refuses to work in a process of any other name.
        self._process = _CONTEXT.Process(
            name="MainProcess", target=_serve, args=(theirs, entry, args)
        )
        # Libraries read their environment when they are imported, so it has to be inherited.
        before = dict(os.environ)
        os.environ.update(dict.fromkeys(_THREADS, str(threads)), **(environment or {}))
        self._process.start()
        os.environ.clear()
        os.environ.update(before)
        theirs.close()

    def play(self, rounds: int) -> float:
        """Seconds that the next rounds take; EOFError or OSError says that the process failed."""
        self._pipe.send(rounds)
        return float(self._pipe.recv())

    def processor_seconds(self) -> float:
        """What the process and all that it started have used so far."""
        return processor_seconds(self._process.pid or 0)

    def finish(self) -> T:
        """No more rounds: what ``entry`` returns."""
        self._pipe.send(0)
        result: T = self._pipe.recv()
        self._process.join()
        return result


def _serve(pipe: Connection, entry: Callable[..., object], args: tuple[Any, ...]) -> None:
    pipe.send(entry(_turns(pipe), *args))


def _turns(pipe: Connection) -> Turns:
    number = 0
    while rounds := pipe.recv():
        start = perf_counter()
        for _ in range(rounds):
            number += 1
            yield number
        pipe.send(perf_counter() - start)

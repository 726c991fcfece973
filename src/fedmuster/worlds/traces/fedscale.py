"""Read FedScale's own trace files, which are pickles, without unpickling them.

``client_device_capacity``: ``{client: {"computation": ms/sample, "communication": kbit/s}}``.
``client_behave_trace``: ``{client: {"active": [s, …], "inactive": [s, …], "finish_time": s, …}}``.
Clients are integers, and are taken in increasing order.
"""

from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedmuster.core.errors import DataError
from fedmuster.core.records import (
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    BoolArray,
    FloatArray,
    IntArray,
)
from fedmuster.worlds.intervals import Intervals
from fedmuster.worlds.traces.plain_pickle import read_plain_pickle

_BEGINNINGS = (b"\x80", b"(", b"}", b"ccollections\n")
"""Of pickled dicts, in protocols 2 … 5, 0, 1, and of an OrderedDict in the first two."""


def read_capacities(path: Path) -> tuple[FloatArray, FloatArray]:
    """Compute time (ms/sample) and bandwidth (kbit/s) of each client."""
    clients = _Clients(path)
    compute = clients.numbers("computation", low=1e-9, high=1e9)
    bandwidth = clients.numbers("communication", low=1e-9, high=1e15)
    return compute, bandwidth


def read_behaviour(path: Path) -> Intervals:
    """When each client is there: from ``active[i]`` to ``inactive[i]``, modulo ``finish_time``."""
    clients = _Clients(path)
    period = clients.numbers("finish_time", low=SHORTEST_SECONDS, high=LONGEST_SECONDS)
    active, inactive = clients.lists("active"), clients.lists("inactive")
    counts = np.array([len(times) for times in active])
    same = counts == [len(times) for times in inactive]
    clients.refuse_where(~same, "active and inactive differ in length")
    client = np.repeat(np.arange(len(counts)), counts)
    start = clients.joined("active", active, client)
    end = clients.joined("inactive", inactive, client)
    backwards = np.bincount(client[end < start], minlength=len(counts)) > 0
    clients.refuse_where(backwards, "inactive comes before active")
    return Intervals.of(client=client, start_seconds=start, end_seconds=end, period_seconds=period)


class _Clients:
    """A file that says several things of each client."""

    def __init__(self, path: Path) -> None:
        self._path = path
        data = path.read_bytes()
        if not data.startswith(_BEGINNINGS):
            raise DataError(
                f"{path} is no FedScale trace, CSV or Parquet file; get FedScale's from where it "
                "was published, or let the name of a table end in .csv or .parquet"
            )
        content = read_plain_pickle(data, source=str(path))
        if not isinstance(content, dict) or not content:
            raise DataError(f"{path} holds a {type(content).__name__}, expected clients in a dict")
        for name in content:
            if type(name) is not int:
                raise DataError(f"{path}: client {name!r} is not an integer")
        self._names = sorted(content)
        self._entries = [content[name] for name in self._names]
        for number, entry in enumerate(self._entries):
            if not isinstance(entry, dict):
                self._refuse(number, f"is a {type(entry).__name__}, expected a dict")

    def numbers(self, key: str, *, low: float, high: float) -> FloatArray:
        """[K], a number between ``low`` and ``high`` of each."""
        values = self._values(key)
        numbers = self._floats(key, values, np.arange(len(values)))
        wrong = ~((numbers >= low) & (numbers <= high))
        self.refuse_where(wrong, f"{key} must be a number in [{low:g}, {high:g}]")
        return numbers

    def lists(self, key: str) -> list[list[Any]]:
        """[K], a list of each."""
        values = self._values(key)
        for number, value in enumerate(values):
            if not isinstance(value, list):
                self._refuse(number, f"{key} is a {type(value).__name__}, expected a list")
        return values

    def joined(self, key: str, lists: list[list[Any]], client: IntArray) -> FloatArray:
        """The times in these lists one after the other; ``client`` says whose each is."""
        times = self._floats(key, list(chain.from_iterable(lists)), client)
        wrong = ~((times >= 0) & (times <= LONGEST_SECONDS))
        if wrong.any():
            number = int(client[int(np.argmax(wrong))])
            self._refuse(number, f"{key} must hold times in [0, {LONGEST_SECONDS:g}]")
        return times

    def refuse_where(self, wrong: BoolArray, complaint: str) -> None:
        """Complain about the first client for which ``wrong`` is true, if any."""
        if wrong.any():
            self._refuse(int(np.argmax(wrong)), complaint)

    def _values(self, key: str) -> list[Any]:
        values = []
        for number, entry in enumerate(self._entries):
            if key not in entry:
                self._refuse(number, f"has no {key!r}")
            values.append(entry[key])
        return values

    def _floats(self, key: str, values: list[Any], client: IntArray) -> FloatArray:
        for place, value in enumerate(values):
            if type(value) not in (int, float):
                self._refuse(int(client[place]), f"{key} holds a {type(value).__name__}")
        try:
            return np.fromiter(values, dtype=np.float64, count=len(values))
        except OverflowError:
            raise DataError(f"{self._path}: {key} holds a number that is too large") from None

    def _refuse(self, number: int, complaint: str) -> NoReturn:
        raise DataError(
            f"{self._path}, client {self._names[number]}: {complaint}; get the file from where it "
            "was published, or write a .csv"
        )

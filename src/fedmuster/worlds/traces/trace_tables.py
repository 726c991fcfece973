"""Read measured latencies from CSV or Parquet, and refuse what cannot be right."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.records import LONGEST_SECONDS, SHORTEST_SECONDS
from fedmuster.worlds.intervals import Intervals
from fedmuster.worlds.traces.fedscale import read_behaviour, read_capacities
from fedmuster.worlds.traces.trace_files import (
    FEDSCALE_ENDINGS,
    Columns,
    Table,
    read_columns,
    trace_reader,
)

_LATENCIES = Table(
    required=("client", "round", "latency_seconds"),
    whole=("round",),
    also_known_as={"latency": "latency_seconds"},
    one_row_for="client and round",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """Measurements, ordered by client and then by round; no (client, round) occurs twice.

    Args:
        client: int[n], 0 … K-1: the file's ids in sorted order (as numbers if all of them are).
        round: int[n], >= 1.
        latency_seconds: float[n], > 0.
    """

    client: IntArray
    round: IntArray
    latency_seconds: FloatArray


@trace_reader("trace", key=("path",))
def read_trace(path: Path) -> Trace:
    """The trace in a file with the columns ``client``, ``round`` and ``latency_seconds``."""
    return _checked_latencies(read_columns(path, _LATENCIES))


def _checked_latencies(columns: Columns) -> Trace:
    client = columns.clients()
    rounds = columns.whole_numbers("round", "a whole number >= 1")
    columns.refuse_where(rounds < 1, "round", "a whole number >= 1")
    latency = columns.numbers(
        "latency_seconds", "a number > 0", low=SHORTEST_SECONDS, high=LONGEST_SECONDS
    )
    order = np.lexsort((rounds, client))
    client, rounds, latency = client[order], rounds[order], latency[order]
    again = np.flatnonzero((client[1:] == client[:-1]) & (rounds[1:] == rounds[:-1]))
    if len(again):
        first, second = order[again[0]], order[again[0] + 1]
        columns.refuse(
            int(second),
            f"client {columns.values['client'][first]} and round {columns.values['round'][first]} "
            f"were there before, in {columns.unit} {columns.places[first]}",
        )
    for array in (client, rounds, latency):
        array.setflags(write=False)  # shared by all who read the same file
    return Trace(client=client, round=rounds, latency_seconds=latency)


# Read what devices and their links can do, from CSV, Parquet or FedScale's own file.

OPTIONAL_COLUMNS = ("compute_gflops", "cores", "memory_gb", "accelerator")
_DEVICES = Table(
    required=("client", "compute_ms_per_sample", "bandwidth_kbit_per_second"),
    optional=OPTIONAL_COLUMNS,
    one_row_for="client",
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Devices:
    """What K devices can do.

    Args:
        compute_ms_per_sample: [K], > 0: how long a forward pass takes.
        bandwidth_kbit_per_second: [K], > 0.
        known: [K] by name, what else is known: any of :data:`OPTIONAL_COLUMNS`.
    """

    compute_ms_per_sample: FloatArray
    bandwidth_kbit_per_second: FloatArray
    known: Mapping[str, FloatArray] = field(default_factory=dict)

    def of_clients(self, clients: IntArray) -> Self:
        """The same for these clients, which may be repeated, in this order."""
        return type(self)(
            compute_ms_per_sample=self.compute_ms_per_sample[clients],
            bandwidth_kbit_per_second=self.bandwidth_kbit_per_second[clients],
            known={name: values[clients] for name, values in self.known.items()},
        )


@trace_reader("device trace", key=("devices", "path"), fedscale=True)
def read_devices(path: Path) -> Devices:
    """The devices in a file; a table has one row for each client."""
    if path.suffix.lower() in FEDSCALE_ENDINGS:
        compute, bandwidth = read_capacities(path)
        return Devices(compute_ms_per_sample=compute, bandwidth_kbit_per_second=bandwidth)
    return _checked_devices(read_columns(path, _DEVICES))


def _checked_devices(columns: Columns) -> Devices:
    client = columns.clients()
    order = np.argsort(client, kind="stable")
    again = np.zeros(len(client), dtype=np.bool_)
    again[order[1:]] = client[order[1:]] == client[order[:-1]]
    columns.refuse_where(again, "client", "each client once")
    compute, bandwidth = (
        columns.numbers(name, "a number > 0", low=1e-9, high=1e15)[order]
        for name in ("compute_ms_per_sample", "bandwidth_kbit_per_second")
    )
    known = {
        name: columns.numbers(name, "a number >= 0", low=0.0, high=1e15)[order]
        for name in OPTIONAL_COLUMNS
        if name in columns.values
    }
    return Devices(compute_ms_per_sample=compute, bandwidth_kbit_per_second=bandwidth, known=known)


# Read when clients were there, from CSV, Parquet or FedScale's own file.

_ACTIVITY = Table(
    required=("client", "start_seconds", "end_seconds"),
    optional=("period_seconds",),
    one_row_for="interval",
)


@trace_reader("activity trace", key=("availability", "path"), fedscale=True)
def read_activity(path: Path) -> Intervals:
    """The intervals in a file.

    A table has a row for each: ``client``, ``start_seconds``, ``end_seconds``. With a column
    ``period_seconds`` each client begins anew after its own; else all do after the last end.
    """
    if path.suffix.lower() in FEDSCALE_ENDINGS:
        return read_behaviour(path)
    return _checked_activity(read_columns(path, _ACTIVITY))


def _checked_activity(columns: Columns) -> Intervals:
    client = columns.clients()
    start = columns.numbers("start_seconds", "a number >= 0", low=0.0, high=LONGEST_SECONDS)
    end = columns.numbers("end_seconds", "a number > 0", low=SHORTEST_SECONDS, high=LONGEST_SECONDS)
    columns.refuse_where(end < start, "end_seconds", "at least start_seconds")
    period = np.full(int(client.max()) + 1, end.max())
    if "period_seconds" in columns.values:
        of_row = columns.numbers(
            "period_seconds", "a number > 0", low=SHORTEST_SECONDS, high=LONGEST_SECONDS
        )
        period[client] = of_row
        columns.refuse_where(of_row != period[client], "period_seconds", "the same in all its rows")
        columns.refuse_where(end > of_row, "end_seconds", "at most period_seconds")
    return Intervals.of(client=client, start_seconds=start, end_seconds=end, period_seconds=period)

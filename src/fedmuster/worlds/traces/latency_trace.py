"""Read measured latencies from CSV or Parquet, and refuse what cannot be right."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmuster.core.records import LONGEST_SECONDS, SHORTEST_SECONDS, FloatArray, IntArray
from fedmuster.worlds.traces.columns import Columns, Table, read_columns
from fedmuster.worlds.traces.reader import trace_reader

_TABLE = Table(
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
    return _checked(read_columns(path, _TABLE))


def _checked(columns: Columns) -> Trace:
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

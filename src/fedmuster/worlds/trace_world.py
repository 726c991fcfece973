"""A world that replays measured latencies."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.records import LONGEST_SECONDS, SHORTEST_SECONDS
from fedmuster.worlds.laws.latency import EmpiricalLatency
from fedmuster.worlds.layout import speed_groups
from fedmuster.worlds.setting import Setting
from fedmuster.worlds.trace_files import TraceTable, accept_path, read_columns, trace_reader
from fedmuster.worlds.world import WORLDS, Clients, RoundDraw, WorldRun

_LATENCIES = TraceTable(
    required=("client", "round", "latency_seconds"),
    whole=("round",),
    also_known_as={"latency": "latency_seconds"},
    one_row_for="client and round",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """Measurements, ordered by client and then by round; no (client, round) occurs twice.

    ``client`` [n] counts the file's ids in sorted order (as numbers if all of them are), 0 … K-1.
    """

    client: IntArray
    round: IntArray
    latency_seconds: FloatArray


@trace_reader("trace", key=("path",))
def read_trace(path: Path) -> Trace:
    """The trace in a file with the columns ``client``, ``round`` and ``latency_seconds``."""
    columns = read_columns(path, _LATENCIES)
    client = columns.clients()
    rounds = columns.numbers("round", low=1, high=1e15, whole=True)
    latency = columns.numbers("latency_seconds", low=SHORTEST_SECONDS, high=LONGEST_SECONDS)
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
        array.setflags(write=False)  # shared by all readers of the file
    return Trace(client=client, round=rounds, latency_seconds=latency)


@WORLDS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class TraceWorld(Setting):
    """Measured latencies from a CSV or Parquet file, replayed or drawn at random.

    The file has the columns ``client`` (any id), ``round`` (1, 2, …) and ``latency_seconds``. The
    clients are numbered 0 … K-1 in the sorted order of their ids. tau_min is the shortest latency
    in the file; the truth is each client's average over all its rows, in both modes.

    Args:
        path: relative to the working directory, or absolute.
        mode: "replay": round t is round ``((t-1) mod T) + 1`` of the file, T being its last, and
            a client without a row there is not available. "bootstrap": each client draws from
            its own rows.
    """

    name: ClassVar[str] = "trace"

    path: str
    mode: Literal["replay", "bootstrap"] = "replay"
    cohort_size: int = 10

    def __post_init__(self) -> None:
        accept_path(self)
        Setting.__post_init__(self)

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        trace = read_trace(self.path)
        law = EmpiricalLatency(seconds=trace.latency_seconds, counts=np.bincount(trace.client))
        tau_min = float(trace.latency_seconds.min())
        clients = law if self.mode == "bootstrap" else self._replay(trace, law, tau_min)
        groups = speed_groups(law.mean_seconds())
        return self.begin(seed, clients, tau_min_seconds=tau_min, groups=groups)

    def _replay(self, trace: Trace, law: EmpiricalLatency, tau_min: float) -> Clients:
        order = np.argsort(trace.round, kind="stable")
        rounds, client = trace.round[order], trace.client[order]
        seconds = trace.latency_seconds[order]
        num_clients, last = len(law.counts), int(rounds[-1])
        expectation = cache(lambda: self.truth(law, tau_min))

        def clients(round_number: int, _rng: Generator) -> RoundDraw:
            here = (round_number - 1) % last + 1
            rows = slice(*np.searchsorted(rounds, [here, here + 1]))
            latency = np.full(num_clients, np.inf)
            latency[client[rows]] = seconds[rows]
            return RoundDraw(
                latency_seconds=latency, expectation=expectation, present=np.isfinite(latency)
            )

        return clients

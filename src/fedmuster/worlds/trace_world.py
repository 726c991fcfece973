"""A world made of measurements."""

from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import require
from fedmuster.worlds.laws.latency import EmpiricalLatency
from fedmuster.worlds.layout import speed_groups
from fedmuster.worlds.setting import Setting
from fedmuster.worlds.traces.trace_tables import Trace, read_trace
from fedmuster.worlds.world import Clients, Draw, WorldRun


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceWorld(Setting):
    """Measured latencies from a CSV or Parquet file, replayed or drawn at random.

    The file has the columns ``client`` (any id), ``round`` (1, 2, …) and ``latency_seconds``. The
    clients are numbered 0 … K-1 in the sorted order of their ids. tau_min is the shortest latency
    in the file; the truth is each client's average over all its rows, in both modes.

    Args:
        path: relative to the working directory, or absolute.
        mode: "replay": round t is round ``((t-1) mod T) + 1`` of the file, T being its last, and
            who has no row there is not available. "bootstrap": everyone draws from its own rows.
    """

    name: ClassVar[str] = "trace"

    path: str
    mode: Literal["replay", "bootstrap"] = "replay"
    cohort_size: int = 10

    def __post_init__(self) -> None:
        Setting.__post_init__(self)
        require(self.mode in ("replay", "bootstrap"), self, "mode", "'replay' or 'bootstrap'")

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        trace = read_trace(self.path)
        law = EmpiricalLatency(seconds=trace.latency_seconds, counts=np.bincount(trace.client))
        tau_min = float(trace.latency_seconds.min())
        if self.mode == "bootstrap":
            clients = self.stationary(law, tau_min)
        else:
            clients = self._replay(trace, law, tau_min)
        groups = speed_groups(law.mean_seconds())
        return self.begin(seed, clients, tau_min_seconds=tau_min, groups=groups)

    def _replay(self, trace: Trace, law: EmpiricalLatency, tau_min: float) -> Clients:
        order = np.argsort(trace.round, kind="stable")
        rounds, client = trace.round[order], trace.client[order]
        seconds = trace.latency_seconds[order]
        num_clients, last = len(law.counts), int(rounds[-1])
        expectation = cache(lambda: self.truth(law, tau_min))

        def clients(round_number: int, _rng: Generator) -> Draw:
            here = (round_number - 1) % last + 1
            rows = slice(*np.searchsorted(rounds, [here, here + 1]))
            latency = np.full(num_clients, np.inf)
            latency[client[rows]] = seconds[rows]
            return Draw(
                latency_seconds=latency, expectation=expectation, present=np.isfinite(latency)
            )

        return clients

"""When a round ends, and which answers it waits for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedmuster.bandits.rewards import repeats
from fedmuster.core.records import BoolArray, FloatArray, IntArray, Selection
from fedmuster.core.staleness import fill_quota
from fedmuster.solvers.schedule import finish_seconds


class Closing(NamedTuple):
    """The end of a round: which clients had answered, which answers are used, and when."""

    completed: BoolArray
    used: BoolArray | None
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundTime:
    """A round lasts as long as its slowest client (BSFL Eq. 2), with these exceptions.

    Args:
        deadline_seconds: the round ends by then, also with answers missing.
        keep_first: the round ends with this number of answers, and later ones do not count. A
            :attr:`Selection.quota` replaces it.
        clusters: [K], the cluster of each client, where clients of a cluster delay the round.
        cluster_delay_seconds: added to the round for each client beyond the first of its cluster
            (PAUSE V.A, R2); no client's own latency changes.
        sequential: whether clients compute in parallel but upload one after the other (MAB-CS
            Eq. 1), in the order of the selection, or else in the order in which they are ready.
        at_least: with fewer answers by the deadline, an edge server waits for this number of
            answers: Z of COCS Eq. 6.
        patience_seconds: the edge server does not wait for Z beyond this.
        edge_seconds: what an edge server takes to aggregate (COCS Sec. III-C, stage EC).
    """

    deadline_seconds: float = np.inf
    keep_first: int | None = None
    clusters: IntArray | None = None
    cluster_delay_seconds: float = 0.0
    sequential: bool = False
    at_least: int = 0
    patience_seconds: float = np.inf
    edge_seconds: float = 0.0

    def latency(
        self, selection: Selection, alone: FloatArray, signals: Mapping[str, FloatArray]
    ) -> FloatArray:
        """[m], when each client of the cohort answers, if it took ``alone`` seconds alone."""
        if not self.sequential or len(alone) == 0:
            return alone
        update, upload = signals["compute_seconds"], signals["upload_seconds"]
        alive = np.isfinite(alone)  # a client that drops out delays no other
        order = np.argsort(update, kind="stable") if selection.order is None else selection.order
        order = order[alive[order]]
        latency = np.full(len(alone), np.inf)
        latency[order] = finish_seconds(update[order], upload[order])  # MAB-CS Eq. 1, 2
        return latency

    def close(self, selection: Selection, latency: FloatArray) -> Closing:
        """When the round of a cohort with these latencies ends; after 0 s for an empty cohort.

        Every edge server closes its own round; the round ends with the last of them.
        """
        if len(latency) == 0:
            return Closing(np.zeros(0, dtype=np.bool_), None, 0.0)
        if selection.edges is None:
            return self._closed(selection, latency)
        completed, seconds = np.zeros(len(latency), dtype=np.bool_), 0.0
        for edge in np.unique(selection.edges):
            here = selection.edges == edge
            members = selection.part(np.flatnonzero(here))
            closing = self._closed(members, latency[here])
            completed[here] = closing.completed
            seconds = max(seconds, closing.seconds)
        return Closing(completed, None, seconds)

    def _closed(self, selection: Selection, latency: FloatArray) -> Closing:
        """The end at one server with a cohort that is not empty."""
        size = len(latency)
        quota = self.keep_first if selection.quota is None else selection.quota
        quota = size if quota is None else quota
        deadline = self.deadline_seconds
        if selection.deadline_seconds is not None:
            deadline = min(deadline, selection.deadline_seconds)
        last = self._last_moment(latency, deadline)
        arrivals = np.argsort(latency, kind="stable")
        arrivals = arrivals[: np.searchsorted(latency[arrivals], last, "right")]
        preferred = np.ones(size, dtype=np.bool_)
        if selection.preferred is not None:
            preferred = selection.preferred
        first = np.flatnonzero(preferred[arrivals])[:quota]
        if len(first) == quota:  # which ends the round
            arrivals = arrivals[: first[-1] + 1]
        completed = np.zeros(size, dtype=np.bool_)
        completed[arrivals] = True
        ended = len(first) == quota or len(arrivals) == size
        seconds = float(latency[arrivals[-1]]) if ended else max(last, deadline)
        if self.clusters is not None:
            # PAUSE V.A, R2
            seconds += self.cluster_delay_seconds * repeats(self.clusters[selection.clients])
        used = None
        if selection.preferred is not None:
            used = fill_quota(arrivals, preferred, quota)
        return Closing(completed, used, seconds + self.edge_seconds)

    def _last_moment(self, latency: FloatArray, deadline_seconds: float) -> float:
        """When the server stops waiting: at the deadline, or with the Z-th answer (COCS Eq. 6).

        The server does not wait for clients that never answer.
        """
        last = min(deadline_seconds, float(np.finfo(np.float64).max))
        ever = np.sort(latency[np.isfinite(latency)])
        if self.at_least > 0 and len(ever) > 0:
            enough = float(ever[min(self.at_least, len(ever)) - 1])
            last = max(last, min(enough, self.patience_seconds))
        return last

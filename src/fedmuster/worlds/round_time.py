"""How long a round lasts, and whose answers it waits for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedmuster.bandits.rewards import repeats
from fedmuster.core.policy import fill_quota
from fedmuster.core.records import BoolArray, FloatArray, IntArray, Selection
from fedmuster.solvers.schedule import finish_seconds


class Closing(NamedTuple):
    """The end of a round: who had answered by then, whose answers are used, and when it was."""

    completed: BoolArray
    used: BoolArray | None
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundTime:
    """As long as the slowest client of the cohort (BSFL Eq. 2), or one of many exceptions.

    Args:
        deadline_seconds: the round ends by then, whoever has not answered.
        keep_first: it ends with so many answers, and later ones do not count. A
            :attr:`Selection.quota` comes before this.
        clusters: [K], where clients of a cluster delay each other;
        cluster_delay_seconds: each beyond the first of its cluster by so much (PAUSE V.A, R2). It
            delays the round but no client's own latency.
        at_least: with fewer answers than this by the deadline, an edge server waits for more: Z of
            COCS Eq. 6;
        patience_seconds: but not beyond this.
        edge_seconds: what an edge server takes to aggregate (COCS Sec. III-C, stage EC).
        sequential: whether clients compute side by side but upload one after the other (MAB-CS
            Eq. 1), in the order that the selection says, or else whoever is ready first.
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
        """[m], when each of the cohort answers, if each took so long ``alone``."""
        if not self.sequential or len(alone) == 0:
            return alone
        update, upload = signals["compute_seconds"], signals["upload_seconds"]
        alive = np.isfinite(alone)  # whoever drops out holds up nobody
        order = np.argsort(update, kind="stable") if selection.order is None else selection.order
        order = order[alive[order]]
        latency = np.full(len(alone), np.inf)
        latency[order] = finish_seconds(update[order], upload[order])  # MAB-CS Eq. 1, 2
        return latency

    def close(self, selection: Selection, latency: FloatArray) -> Closing:
        """When the round of a cohort with these latencies ends; after 0 s for nobody.

        Every edge server closes its own; the round ends with the last of them.
        """
        if len(latency) == 0:
            return Closing(np.zeros(0, dtype=np.bool_), None, 0.0)
        if selection.edges is None:
            return self._closed(selection, latency)
        completed, seconds = np.zeros(len(latency), dtype=np.bool_), 0.0
        for edge in np.unique(selection.edges):
            here = selection.edges == edge
            closing = self._closed(_members(selection, here), latency[here])
            completed[here] = closing.completed
            seconds = max(seconds, closing.seconds)
        return Closing(completed, None, seconds)

    def _closed(self, selection: Selection, latency: FloatArray) -> Closing:
        """The same at one server, which has asked somebody."""
        size = len(latency)
        quota = self.keep_first if selection.quota is None else selection.quota
        quota = size if quota is None else quota
        last = self._last_moment(latency)
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
        seconds = float(latency[arrivals[-1]]) if ended else max(last, self.deadline_seconds)
        if self.clusters is not None:
            # PAUSE V.A, R2
            seconds += self.cluster_delay_seconds * repeats(self.clusters[selection.clients])
        used = None
        if selection.preferred is not None:
            used = fill_quota(arrivals, preferred, quota)
        return Closing(completed, used, seconds + self.edge_seconds)

    def _last_moment(self, latency: FloatArray) -> float:
        """When the server stops waiting: at the deadline, or with the Z-th answer (COCS Eq. 6).

        Who never answers is not waited for.
        """
        last = min(self.deadline_seconds, float(np.finfo(np.float64).max))
        ever = np.sort(latency[np.isfinite(latency)])
        if self.at_least > 0 and len(ever) > 0:
            enough = float(ever[min(self.at_least, len(ever)) - 1])
            last = max(last, min(enough, self.patience_seconds))
        return last


def _members(selection: Selection, here: BoolArray) -> Selection:
    """Those of a cohort who are at one edge."""
    return Selection(round=selection.round, clients=selection.clients[here])

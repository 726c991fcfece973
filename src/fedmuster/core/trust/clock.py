"""How long each client took, when clients may lie and the server's clock sees mostly overhead.

In a deployment every answer waits seconds for polling and for processes to start, so the server's
clock hardly tells a fast client from a slow one. The client's own report does, but can be made up.
A report counts while it agrees with the server's clock:

- The *gap* of an answer is what the server saw less what the client reports. The usual overhead is
  the median over clients of each client's median gap: one vote each, so no minority moves it.
- A report is believed unless the gap, now or usually for this client, exceeds the usual overhead by
  more than chance explains: the more answers there are, the smaller the lies that show. A client
  that is not believed, or reports nothing, took what the server saw less the usual overhead, which
  is right also for an honest client whose link is slow.
- What the server cannot check yet counts, but no client counts as more than twice as fast as the
  typical one on its word alone.
- In a simulation many clients share a few workers, and the server's clock measures the queue. There
  the time that the reported work of the others kept all workers busy is subtracted first
  (:func:`queue_seconds`). What the queue does not explain is judged as above. A client that waits
  while workers start, and says so together with half of all clients, is believed the first time.
- A report too long for the gap costs only the client that sends it, and is believed, but never
  beyond what the server saw.

If the slowest 30 of 100 clients (0.5 … 4 s) report a tenth of their time: where reports are trusted
they gain more than 10 % of all slots; here at most 0.4 % with 0.2 s of overhead, and with a
deployment's 5 … 10 s up to 2 % of the first 100 rounds and 1 % of 200. Lies smaller than the noise
of the overhead remain unseen: of clients that need 0.1 … 1 s under such overhead, BSFL gives liars
up to 12 % more, in rounds that are a quarter of a second longer for it. It takes some answers to
see through a lie: of five clients one that needs 3 s and says none, under 3 … 6.5 s of overhead, is
believed in two of three first answers, a quarter of the second, one in 30 from the fifth on.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedmuster.core import state as states
from fedmuster.core.errors import DataError, StateError
from fedmuster.core.records import SHORTEST_SECONDS, BoolArray, FloatArray, IntArray
from fedmuster.core.trust.medians import median, medians

_WINDOW = 15
"""Latest answers of a client that count: a change shows after half of them."""
_ONCE, _USUALLY = 4.0, 1.5
"""Standard deviations beyond which one gap, and a client's median gap, is no chance. The second is
strict, as an error about an honest client costs it only the noise of the overhead."""
_FROM_MAD = 1.4826
"""Standard deviation over median absolute deviation, of a normal distribution."""
_OF_MEDIAN = 1.2533
"""The standard error of a median of n over ``sigma / sqrt(n)``: ``sqrt(pi / 2)``."""
_LEAST_SHARE, _UNCHECKED_SHARE = 0.05, 0.5
"""No client counts as faster than this share of the typical time, in the end and while it cannot be
checked: policies divide by it, and one client that claims a nanosecond would make all others look
alike."""
_TOLD_SECONDS = 0.1
"""Smaller differences are not logged."""
_OF_BUSY_TIME, _PAUSE = 0.2, 0.25
"""See :func:`queue_seconds`; pauses are shares of the usual work."""
_SILENT, _WARM, _COLD = -1, 0, 1


@dataclass(slots=True)
class _Observed:
    """Of each client the last answers and what follows from them; NaN where there is nothing."""

    answers: IntArray
    elapsed: FloatArray
    gap: FloatArray
    latency: FloatArray
    usual_elapsed: FloatArray
    usual_gap: FloatArray
    spread: FloatArray
    usual_latency: FloatArray
    warmth: IntArray
    excused_at: IntArray
    disbelieved: IntArray


def _nothing(size: int) -> _Observed:
    zero = np.zeros(size, dtype=np.int64)
    window, usual = np.full((size, _WINDOW), np.nan), np.full(size, np.nan)
    return _Observed(
        answers=zero,
        elapsed=window,
        gap=window.copy(),
        latency=window.copy(),
        usual_elapsed=usual,
        usual_gap=usual.copy(),
        spread=usual.copy(),
        usual_latency=usual.copy(),
        warmth=zero + _SILENT,
        excused_at=zero - _WINDOW,
        disbelieved=zero.copy(),
    )


class Clock:
    """Latencies from what the server saw and what clients report."""

    def __init__(self) -> None:
        self._of = _nothing(0)
        self._workers = 0

    def latency_seconds(
        self,
        clients: IntArray,
        elapsed: FloatArray,
        reported: FloatArray,
        cold: BoolArray | None = None,
        *,
        shared_workers: bool = False,
    ) -> FloatArray:
        """The latency of each answer, > 0 and never more than what the server saw.

        Args:
            clients: int64[n], the clients that answered, each once.
            elapsed: [n] seconds from asking to answer on the server's monotonic clock.
            reported: [n] seconds that the clients say they took; NaN for no report.
            cold: bool[n], clients that say it was the first work of their process. Where processes
                usually live on, such a client counts as no slower than the typical one, once in a
                while: lazy imports must not condemn a fast client, nor clients that wait for the
                same process, of which a simulation has only a few.
            shared_workers: whether the clients work on a few workers of one machine, as in a
                simulation, and so wait for each other.
        """
        clients = np.asarray(clients, dtype=np.int64)
        elapsed = _seconds("elapsed", elapsed, clients)
        claimed = _seconds("reported", reported, clients)
        if len(np.unique(clients)) != len(clients) or clients.min(initial=0) < 0:
            raise DataError(f"Clock: clients is {clients!r}, expected distinct indices >= 0")
        if not (np.isfinite(elapsed) & (elapsed >= 0)).all():
            raise DataError(f"Clock: elapsed is {elapsed!r}, expected finite seconds >= 0")
        elapsed = np.maximum(elapsed, SHORTEST_SECONDS)
        claimed = np.where(np.isfinite(claimed) & (claimed >= 0), claimed, np.nan)
        claimed = np.minimum(claimed, elapsed)
        self._make_room(clients)
        if shared_workers:
            waited, self._workers = queue_seconds(elapsed, claimed, workers=self._workers)
            elapsed = np.maximum(elapsed - waited, SHORTEST_SECONDS)
        starts = np.zeros(len(clients), np.bool_) if cold is None else np.asarray(cold, np.bool_)
        lead = self._lead_of_warm(clients, starts, ~np.isnan(claimed)) if cold is not None else -1
        # Of a tie in the first round, as where two clients share a process, those who wait decide.
        queued = (lead >= 0) & self._queued(clients, elapsed - claimed, claimed, starts)
        elapsed = np.where(queued, np.fmin(claimed + self.usual_overhead_seconds, elapsed), elapsed)
        # What they waited for others says nothing of the usual overhead.
        self._note(clients, elapsed, np.where(queued, np.nan, claimed))

        of, usual = self._of, self.usual_overhead_seconds
        # A lucky moment gains nothing: who is not believed is as slow as the server usually saw it.
        latency = np.maximum(elapsed, of.usual_elapsed[clients]) - usual
        latency = np.fmax(np.minimum(latency, elapsed), claimed)
        once, usually = self._chance(clients)
        believed = elapsed - claimed <= usual + once  # NaN, no report, is not
        believed &= of.usual_gap[clients] <= usual + usually
        believed |= queued
        latency[believed] = claimed[believed]
        worth_telling = np.maximum(2 * claimed, claimed + _TOLD_SECONDS)
        of.disbelieved[clients] += ~believed & (latency > worth_telling)

        self._remember(clients, latency)
        if lead > 0 or queued.any():
            excused = self._excused(clients, starts & ~np.isnan(claimed))
            typical_warm = median(of.usual_latency[of.warmth == _WARM])
            latency[excused] = np.fmin(latency[excused], typical_warm)
            self._remember(clients, latency)
        of.answers[clients] += 1
        typical = median(of.usual_latency)
        least = np.clip(usually / 2, _LEAST_SHARE * typical, _UNCHECKED_SHARE * typical)
        least[queued] = _UNCHECKED_SHARE * typical
        return np.asarray(np.minimum(np.maximum(latency, least), elapsed))

    @property
    def usual_overhead_seconds(self) -> float:
        """What the server sees beyond what clients report; 0 while nobody reports."""
        return float(np.nan_to_num(median(self._of.usual_gap)))

    @property
    def usual_seconds(self) -> FloatArray:
        """[K], the median of each client's last latencies; NaN where it never answered."""
        return self._of.usual_latency.copy()

    @property
    def disbelieved(self) -> IntArray:
        """[K], how many reports of each client were far from what was taken instead: less than
        half of it, and by more than a tenth of a second."""
        return self._of.disbelieved.copy()

    def _make_room(self, clients: IntArray) -> None:
        size = int(clients.max(initial=-1)) + 1
        if size > len(self._of.answers):
            self._of = states.grow(self._of, _nothing(size))

    def _note(self, clients: IntArray, elapsed: FloatArray, claimed: FloatArray) -> None:
        of = self._of
        slot = of.answers[clients] % _WINDOW
        of.elapsed[clients, slot] = elapsed
        of.gap[clients, slot] = elapsed - claimed
        of.usual_elapsed[clients] = medians(of.elapsed[clients])
        of.usual_gap[clients] = medians(of.gap[clients])
        # Below the usual only: those who report too little widen the other side.
        deviation = self.usual_overhead_seconds - of.gap[clients]
        deviation[deviation < 0] = np.nan
        of.spread[clients] = _FROM_MAD * medians(deviation)

    def _chance(self, clients: IntArray) -> tuple[float, FloatArray]:
        """By how much a gap, and the median gap of each of ``clients``, may exceed the usual."""
        of = self._of
        spread = float(np.nan_to_num(median(of.spread)))
        known = np.maximum(np.count_nonzero(~np.isnan(of.gap[clients]), axis=1), 1)
        return _ONCE * spread, _USUALLY * _OF_MEDIAN * spread / np.sqrt(known)

    def _remember(self, clients: IntArray, latency: FloatArray) -> None:
        of = self._of
        of.latency[clients, of.answers[clients] % _WINDOW] = latency
        of.usual_latency[clients] = medians(of.latency[clients])

    def _lead_of_warm(self, clients: IntArray, cold: BoolArray, reports: BoolArray) -> int:
        """How many more clients are warm than cold. Processes live on where that is > 0: one vote
        each, for a few that say so may be lying."""
        warmth = self._of.warmth
        warmth[clients[reports]] = np.where(cold[reports], _COLD, _WARM)
        return int(np.count_nonzero(warmth == _WARM) - np.count_nonzero(warmth == _COLD))

    def _queued(
        self, clients: IntArray, gap: FloatArray, claimed: FloatArray, cold: BoolArray
    ) -> BoolArray:
        """Clients that answer for the first time, in a process that is not cold, and waited so
        long as others took in cold ones: their processes are the same few."""
        others = np.fmin.reduce(claimed[cold], initial=np.inf)
        return np.asarray((self._of.answers[clients] == 0) & ~cold & (gap >= others))

    def _excused(self, clients: IntArray, cold: BoolArray) -> BoolArray:
        """Cold calls of clients that were not excused just now."""
        of = self._of
        excused = cold & (of.answers[clients] - of.excused_at[clients] >= _WINDOW)
        of.excused_at[clients[excused]] = of.answers[clients[excused]]
        return excused

    def to_bytes(self) -> bytes:
        """An image without pickle: one table of all floats and one of all integers."""
        of = self._of
        arrays = [
            array.reshape(len(array), int(np.prod(array.shape[1:])))  # also of nobody
            for array in states.to_arrays(of).values()
        ]
        tables = {
            kind: np.hstack([array for array in arrays if array.dtype.kind == kind])
            for kind in ("f", "i")
        }
        return states.to_bytes(tables, {"workers": self._workers})

    @classmethod
    def from_bytes(cls, image: bytes) -> "Clock":
        """The clock whose image :meth:`to_bytes` made."""
        source = "the clock's state"
        tables, meta = states.from_bytes(image, source=source)
        clock = cls()
        clock._workers = int(meta.get("workers", 0))
        clock._of = _nothing(len(tables.get("i", ())))
        for array in states.to_arrays(clock._of).values():
            kind = array.dtype.kind
            columns = array.size // max(len(array), 1)
            if kind not in tables or tables[kind].ndim != 2 or tables[kind].shape[1] < columns:
                raise StateError(f"{source} was saved by another version: start anew")
            array[...] = tables[kind][:, :columns].reshape(array.shape)
            tables[kind] = tables[kind][:, columns:]
        return clock


def queue_seconds(
    elapsed: FloatArray, reported: FloatArray, *, workers: int = 0
) -> tuple[FloatArray, int]:
    """How long each answer waited for workers that the reported work of the others kept busy.

    Each answer's work took the reported seconds before it arrived. The number of workers is the
    largest number of works in progress that lasts for a fifth of the busy time, now or in an
    earlier round (``workers``): shorter overlaps come from inexact arrival times. An answer waited
    for as long as all workers were busy before its own work began, short pauses between two works
    included. While a worker is free nobody waits, so a lie is explained only until the first of the
    others is done. Returns the seconds of each answer, and the number of workers.

    Example:
        >>> queue_seconds(np.array([1.0, 1.0, 2.0, 2.0]), np.ones(4))  # two workers
        (array([0., 0., 1., 1.]), 2)
        >>> queue_seconds(np.array([1.0, 1.5, 4.0]), np.array([1.0, 1.5, 0.5]))  # a lie
        (array([0., 0., 1.]), 2)
    """
    work = np.nan_to_num(reported)
    begin = elapsed - work
    edges = np.unique(np.concatenate([begin, elapsed]))
    lengths, middles = np.diff(edges), (edges[:-1] + edges[1:]) / 2
    level = ((begin[:, None] < middles) & (middles < elapsed[:, None])).sum(axis=0)
    busy = lengths[level > 0].sum()
    for count in range(int(level.max(initial=0)), workers, -1):
        if lengths[level >= count].sum() >= _OF_BUSY_TIME * busy:
            workers = count
            break
    full = (level >= workers) | (lengths < _PAUSE * median(work))
    waited = ((middles < begin[:, None]) * (lengths * full)).sum(axis=1)
    return np.asarray(np.minimum(waited, begin)), workers


def _seconds(name: str, values: ArrayLike, clients: IntArray) -> FloatArray:
    seconds = np.asarray(values, dtype=np.float64)
    if seconds.shape != clients.shape:
        raise DataError(
            f"Clock: {name} has shape {seconds.shape}, expected one number for each of the "
            f"{len(clients)} clients"
        )
    return seconds

"""When each client is there: intervals on a clock that starts anew with each period."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedmuster.core.records import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Intervals:
    """The activity of K clients, in flat arrays; made by :meth:`of`.

    Client k is there at the time t if one of its intervals has ``start <= t_k <= end``, where
    ``t_k = (t + phase) mod period`` is the client's own clock (FedScale's rule, with phase 0). So
    an interval that ends with the period ends just before the next, unless one starts at 0.

    The intervals of client k are ``offsets[k] … offsets[k + 1] - 1``, in the order of their starts.
    An end lies beyond the period where the interval goes on into the next one, and is infinite for
    a client that is always there.
    """

    start_seconds: FloatArray
    end_seconds: FloatArray
    offsets: IntArray
    period_seconds: FloatArray
    phase_seconds: FloatArray

    @classmethod
    def of(
        cls,
        *,
        client: IntArray,
        start_seconds: FloatArray,
        end_seconds: FloatArray,
        period_seconds: FloatArray,
        phase_seconds: FloatArray | None = None,
    ) -> Self:
        """Intervals in any order, which may touch and overlap; ``client`` [n] owns them.

        The part of an interval after the end of the period does not count. No phase means 0.
        """
        num_clients = len(period_seconds)
        seen = start_seconds < period_seconds[client]
        client, start = client[seen], start_seconds[seen]
        end = np.minimum(end_seconds[seen], period_seconds[client])
        client, start, end = _union(*_sorted(client, start, end))
        offsets = np.searchsorted(client, np.arange(num_clients + 1))
        first, last = offsets[:-1], offsets[1:] - 1
        owners = np.flatnonzero(last >= first)
        first, last, period = first[owners], last[owners], period_seconds[owners]
        at_end = end[last] == period
        goes_on = at_end & (start[first] == 0)
        beyond = np.where(first == last, np.inf, period + end[first])
        cut = np.where(at_end, np.nextafter(period, 0), end[last])
        end[last] = np.where(goes_on, beyond, cut)
        return cls(
            start_seconds=start,
            end_seconds=end,
            offsets=offsets,
            period_seconds=period_seconds,
            phase_seconds=np.zeros(num_clients) if phase_seconds is None else phase_seconds,
        )

    def of_clients(self, clients: IntArray) -> Self:
        """The activity of these clients, which may be repeated, in this order."""
        counts = np.diff(self.offsets)[clients]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[clients] - offsets[:-1], counts)
        return type(self)(
            start_seconds=self.start_seconds[rows],
            end_seconds=self.end_seconds[rows],
            offsets=offsets,
            period_seconds=self.period_seconds[clients],
            phase_seconds=self.phase_seconds[clients],
        )

    def at(self, now_seconds: float) -> BoolArray:
        """bool[K], the clients that are there."""
        return self.throughout(now_seconds, now_seconds)

    def throughout(self, start_seconds: float, end_seconds: float) -> BoolArray:
        """bool[K], the clients that are there from the start to the end."""
        clock = self._clock(start_seconds)
        last = self._last_started(clock)
        there = last >= self.offsets[:-1]
        there[there] = self.end_seconds[last[there]] >= (
            clock[there] + (end_seconds - start_seconds)
        )
        return there

    def next_start(self, now_seconds: float) -> float:
        """The first time, from now on, when a client is there; infinite if none ever is."""
        time = now_seconds
        latest = now_seconds + 2.0 * np.max(self.period_seconds, initial=0.0)
        while time <= latest:
            if self.at(time).any():
                return time
            # Where the sum falls short by rounding, go on by the smallest step there is.
            time = max(time + self._until_next(time), float(np.nextafter(time, np.inf)))
        return np.inf

    def _clock(self, now_seconds: float) -> FloatArray:
        return np.asarray(np.mod(now_seconds + self.phase_seconds, self.period_seconds))

    def _last_started(self, clock: FloatArray) -> IntArray:
        """[K], the last interval of each that starts at or before its clock; else the one before
        its first. By bisection, for all clients at once."""
        first, stop = self.offsets[:-1], self.offsets[1:]
        last = first - 1
        step = 1 << int(np.max(stop - first, initial=0)).bit_length()
        while step > 1:
            step //= 2
            tried = np.minimum(last + step, stop - 1)
            started = tried > last
            started[started] = self.start_seconds[tried[started]] <= clock[started]
            last = np.where(started, tried, last)
        return last

    def _until_next(self, now_seconds: float) -> float:
        """Seconds until the next interval of any client starts."""
        clock = self._clock(now_seconds)
        following = self._last_started(clock) + 1
        owners = np.flatnonzero(np.diff(self.offsets))
        if len(owners) == 0:
            return np.inf
        anew = following == self.offsets[1:]
        following = np.where(anew, self.offsets[:-1], following)[owners]
        start = self.start_seconds[following] + (anew * self.period_seconds)[owners]
        return float(np.min(start - clock[owners]))


def _sorted(
    client: IntArray, start: FloatArray, end: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    same = client[1:] == client[:-1]
    if np.all((client[1:] > client[:-1]) | (same & (start[1:] >= start[:-1]))):
        return client, start, end
    order = np.lexsort((start, client))
    return client[order], start[order], end[order]


def _union(
    client: IntArray, start: FloatArray, end: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Sorted intervals, with those of a client that touch or overlap made one."""
    same = client[1:] == client[:-1]
    if not np.any(same & (start[1:] <= end[:-1])):
        return client, start, end
    # The latest end so far of each client: a running maximum over (client, rank of the end), in
    # integers, because client · period + end would lose digits.
    by_end = np.argsort(end, kind="stable")
    rank = np.empty_like(by_end)
    rank[by_end] = np.arange(len(end))
    reached = end[by_end[np.maximum.accumulate(client * len(end) + rank) % len(end)]]
    new = np.concatenate([[True], ~same | (start[1:] > reached[:-1])])
    last = np.concatenate([new[1:], [True]])
    return client[new], start[new], reached[last]

"""Availability on a clock: clients come and go while rounds pass."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import check_types, require
from fedmuster.core.records import BoolArray, FloatArray
from fedmuster.core.streams import AVAILABILITY, stream
from fedmuster.worlds.intervals import Intervals
from fedmuster.worlds.layout import beta_law
from fedmuster.worlds.traces.activity_trace import read_activity
from fedmuster.worlds.traces.reader import TraceError, rows_for


class ActivityRun:
    """Who is there, by intervals; an :class:`~fedmuster.worlds.availability.AvailabilityRun`."""

    def __init__(self, intervals: Intervals) -> None:
        self.intervals = intervals

    def at(self, round_number: int, now_seconds: float) -> BoolArray:
        """bool[K], read-only; the round does not matter."""
        del round_number
        there = self.intervals.at(now_seconds)
        there.setflags(write=False)
        return there

    def forecast(
        self, round_number: int, now_seconds: float, window_seconds: float
    ) -> tuple[BoolArray, BoolArray]:
        """Who will be there in all of (now, now + window], and in all of the window after it."""
        del round_number
        middle = now_seconds + window_seconds
        return (
            self.intervals.throughout(now_seconds, middle),
            self.intervals.throughout(middle, middle + window_seconds),
        )

    def wait_seconds(self, now_seconds: float) -> float:
        """How long until somebody is there."""
        time = self.intervals.next_start(now_seconds)
        wait = time - now_seconds
        # now + wait may fall short of the time by rounding, and nobody would be there yet.
        return wait if now_seconds + wait >= time else float(np.nextafter(wait, np.inf))


@dataclass(frozen=True, kw_only=True, slots=True)
class OnOff:
    """Clients are on and off in turn, each for an exponential time, as FedScale's are on average.

    FedScale's availability trace (107,749 clients) publishes means: a client is active for 20.26 %
    of the time, in 20.81 intervals, and its trace lasts 393,232 s (4.5 days) before it repeats. An
    interval then lasts 3,829 s on average. All else is this package's choice: shares follow a
    Beta law with the given mean and standard deviation; a client has 1 + Poisson intervals in a
    period; its on-times are exponential given that they add up to its share of the period, and
    its off-times given that they add up to the rest; its clock starts at a random moment.

    Args:
        share: of the time that a client is on, averaged over clients.
        share_sd: standard deviation of that over clients; 0 if all are alike.
        intervals_per_period: how often a client comes in a period, on average, >= 1.
        period_seconds: after which everything repeats.

    References:
        F. Lai, Y. Dai, S. Singapuram, J. Liu, X. Zhu, H. Madhyastha, M. Chowdhury, FedScale:
        Benchmarking Model and System Performance of Federated Learning at Scale, ICML 2022.

    Example:
        >>> OnOff().start(1000, seed=1).at(1, now_seconds=3600.0).shape
        (1000,)
    """

    name: ClassVar[str] = "on-off"

    share: float = 0.2026
    share_sd: float = 0.16
    intervals_per_period: float = 20.81
    period_seconds: float = 393_232.0

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.share < 1, self, "share", "a number in (0, 1)")
        fits = self.share_sd >= 0 and self.share_sd**2 < self.share * (1 - self.share)
        require(fits, self, "share_sd", "a number in [0, sqrt(share (1 - share)))")
        fits = 1 <= self.intervals_per_period <= 1e6
        require(fits, self, "intervals_per_period", "a number in [1, 1e6]")
        require(0 < self.period_seconds <= 1e12, self, "period_seconds", "a number in (0, 1e12]")

    def start(self, num_clients: int, seed: int) -> ActivityRun:
        """Draw who comes when."""
        rng, period = stream(seed, AVAILABILITY), self.period_seconds
        share = self._shares(num_clients, rng)
        counts = 1 + rng.poisson(self.intervals_per_period - 1.0, num_clients)
        client = np.repeat(np.arange(num_clients), counts)
        first = np.cumsum(counts) - counts
        on, off = rng.standard_exponential((2, len(client)))
        # Exponentials divided by their sum are exponentials given their sum.
        on *= np.repeat(period * share / np.add.reduceat(on, first), counts)
        off *= np.repeat(period * (1.0 - share) / np.add.reduceat(off, first), counts)
        cycle = on + off
        begin = np.cumsum(cycle) - cycle
        begin -= np.repeat(begin[first], counts)
        np.maximum(begin, 0.0, out=begin)  # after rounding
        return ActivityRun(
            Intervals.of(
                client=client,
                start_seconds=begin,
                end_seconds=begin + on,
                period_seconds=np.full(num_clients, period),
                phase_seconds=rng.uniform(0.0, period, num_clients),
            )
        )

    def _shares(self, num_clients: int, rng: Generator) -> FloatArray:
        if self.share_sd == 0:
            return np.full(num_clients, self.share)
        return beta_law(self.share, self.share_sd, num_clients, rng)


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivityTrace:
    """Measured activity from a file: FedScale's ``client_behave_trace``, CSV or Parquet.

    A table has the columns ``client``, ``start_seconds``, ``end_seconds`` and perhaps
    ``period_seconds``; FedScale's own file has no ending, .pkl or .pickle. A trace begins anew
    after its period (FedScale's ``finish_time``). Where the world has as many clients as the file,
    client k is the k-th of the file; where it has fewer, they are drawn from the file; where it has
    more, each of the file occurs equally often, but for one.

    Args:
        path: relative to the working directory, or absolute.
    """

    name: ClassVar[str] = "activity-trace"

    path: str

    def __post_init__(self) -> None:
        check_types(self)

    def start(self, num_clients: int, seed: int) -> ActivityRun:
        """Draw who of the file takes part."""
        intervals = read_activity(self.path)
        rows = rows_for(num_clients, len(intervals.period_seconds), stream(seed, AVAILABILITY))
        chosen = intervals.of_clients(rows)
        if len(chosen.start_seconds) == 0:
            raise TraceError(
                f"{self.path}: none of the clients is ever there; take more clients, or another "
                "file",
                key=("availability", "path"),
            )
        return ActivityRun(chosen)

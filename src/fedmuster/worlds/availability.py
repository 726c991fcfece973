"""Availability: which clients can be asked, and when.

An availability is a config; ``start(num_clients, seed)`` draws it. Some depend on the round, others
on the clock. Moments can be asked for in any order: the answer depends on the seed and the moment
alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Protocol

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray
from fedmuster.core.config import check_types, require
from fedmuster.core.records import LONGEST_SECONDS, SHORTEST_SECONDS
from fedmuster.core.registry import Registry
from fedmuster.core.streams import AVAILABILITY, stream
from fedmuster.worlds.fedscale_files import read_behaviour
from fedmuster.worlds.intervals import Intervals
from fedmuster.worlds.layout import beta_law
from fedmuster.worlds.trace_files import (
    FEDSCALE_ENDINGS,
    TraceError,
    TraceFile,
    TraceTable,
    read_columns,
    rows_for,
    trace_reader,
)


class AvailabilityRun(Protocol):
    """Which clients can be asked. A moment is a round, and the seconds since the run began."""

    def at(self, round_number: int, now_seconds: float) -> BoolArray:
        """bool[K], read-only."""

    def forecast(
        self, round_number: int, now_seconds: float, window_seconds: float
    ) -> tuple[BoolArray, BoolArray]:
        """The clients that stay for the window from now on, and those that stay for the next one.

        Where the round decides, the windows are this round and the next.
        """

    def wait_seconds(self, now_seconds: float) -> float:
        """How long until a client comes, when none is there; 0 where the round decides."""


class Availability(Protocol):
    """A frozen, keyword-only dataclass with a ``name``; its ``start`` draws a run."""

    name: ClassVar[str]

    def start(self, num_clients: int, seed: int, /) -> AvailabilityRun:
        """Draw which of these clients are there when, from ``stream(seed, AVAILABILITY, …)``."""


AVAILABILITIES: Final = Registry[Availability](
    "availability",
    Availability,
    modules=("fedmuster.worlds.availability",),
    methods=("start",),
    group="fedmuster.availabilities",
)


class RoundByRound:
    """An :class:`AvailabilityRun` in which the round decides: ``mask(t)`` is bool[K]."""

    def __init__(self, mask: Callable[[int], BoolArray]) -> None:
        self._mask = mask

    def at(self, round_number: int, now_seconds: float = 0.0) -> BoolArray:
        """See :class:`AvailabilityRun`."""
        return self._mask(round_number)

    def forecast(
        self, round_number: int, now_seconds: float, window_seconds: float
    ) -> tuple[BoolArray, BoolArray]:
        """See :class:`AvailabilityRun`."""
        return self._mask(round_number), self._mask(round_number + 1)

    def wait_seconds(self, now_seconds: float) -> float:
        """See :class:`AvailabilityRun`."""
        return 0.0


@AVAILABILITIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Always:
    """Every client can be asked in every round."""

    name: ClassVar[str] = "always"

    def start(self, num_clients: int, _seed: int) -> AvailabilityRun:
        """One mask, shared by all rounds."""
        everyone = _read_only(np.ones(num_clients, dtype=np.bool_))
        return RoundByRound(lambda _round: everyone)


@AVAILABILITIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Bernoulli:
    """Each client can be asked with the same probability, independently in every round."""

    name: ClassVar[str] = "bernoulli"

    probability: float = 0.5

    def __post_init__(self) -> None:
        require(0 <= self.probability <= 1, self, "probability", "a number in [0, 1]")

    def start(self, num_clients: int, seed: int) -> AvailabilityRun:
        """A fresh mask for every round."""

        def mask(round_number: int) -> BoolArray:
            luck = stream(seed, AVAILABILITY, round_number)
            return _read_only(luck.random(num_clients) < self.probability)

        return RoundByRound(mask)


@AVAILABILITIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Markov:
    """Each client is an on-off Markov chain in its stationary law.

    The share of clients that are on is ``up / (up + down)``; a client stays on for ``1 / down``
    and off for ``1 / up`` rounds on average.

    Args:
        up: probability that a client which is off is on in the next round.
        down: probability that a client which is on is off in the next round.
    """

    name: ClassVar[str] = "markov"

    up: float = 0.1
    down: float = 0.1

    def __post_init__(self) -> None:
        require(0 < self.up <= 1, self, "up", "a number in (0, 1]")
        require(0 < self.down <= 1, self, "down", "a number in (0, 1]")

    def start(self, num_clients: int, seed: int) -> AvailabilityRun:
        """The chains, which keep the last two rounds."""
        return RoundByRound(_Chains(self, num_clients, seed).mask)


class _Chains:
    """Go on from the last known round, or again from round 1 when asked for an earlier one.

    They keep two rounds, because a forecast looks one round ahead.
    """

    def __init__(self, law: Markov, num_clients: int, seed: int) -> None:
        self._law, self._num_clients, self._seed = law, num_clients, seed
        self._round = 0
        self._on = self._before = np.empty(0, dtype=np.bool_)

    def mask(self, round_number: int) -> BoolArray:
        if round_number == self._round - 1:
            return self._before
        if round_number < self._round:
            self._round = 0
        while self._round < round_number:
            self._step()
        return self._on

    def _step(self) -> None:
        self._round += 1
        law, luck = self._law, stream(self._seed, AVAILABILITY, self._round)
        if self._round == 1:
            chance = np.asarray(law.up / (law.up + law.down))
        else:
            chance = np.where(self._on, 1.0 - law.down, law.up)
        self._before = self._on
        self._on = _read_only(luck.random(self._num_clients) < chance)


class ActivityRun:
    """An :class:`AvailabilityRun` by intervals of the clock."""

    def __init__(self, intervals: Intervals) -> None:
        self.intervals = intervals

    def at(self, round_number: int, now_seconds: float) -> BoolArray:
        """See :class:`AvailabilityRun`; the round does not matter."""
        return _read_only(self.intervals.at(now_seconds))

    def forecast(
        self, round_number: int, now_seconds: float, window_seconds: float
    ) -> tuple[BoolArray, BoolArray]:
        """The clients that are there in all of (now, now + window], and in the window after it."""
        middle = now_seconds + window_seconds
        return (
            self.intervals.throughout(now_seconds, middle),
            self.intervals.throughout(middle, middle + window_seconds),
        )

    def wait_seconds(self, now_seconds: float) -> float:
        """How long until a client is there."""
        time = self.intervals.next_start(now_seconds)
        wait = time - now_seconds
        # now + wait may fall short of the time by rounding, and no client would be there yet.
        return wait if now_seconds + wait >= time else float(np.nextafter(wait, np.inf))


@AVAILABILITIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class OnOff:
    """Each client is on and off in turn, for exponential times, with the means of FedScale's trace.

    Published means of FedScale's availability trace (107,749 clients): a client is active for
    20.26 % of the time, in 20.81 intervals of 3,829 s, and its trace lasts 393,232 s (4.5 days)
    before it repeats. All else is this package's choice: shares follow a Beta law with the given
    mean and standard deviation; a client has 1 + Poisson intervals in a period; its on-times are
    exponential given that they add up to its share of the period, and its off-times given that
    they add up to the rest; its clock starts at a random moment.

    Args:
        share: the share of the time that a client is on, averaged over clients.
        share_sd: standard deviation of the share over clients; 0 for the same share of all.
        intervals_per_period: intervals of a client in a period, on average, >= 1.
        period_seconds: after this time everything repeats.

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
        """Draw the intervals of each client."""
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


@AVAILABILITIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class ActivityTrace(TraceFile):
    """Measured activity from a file: FedScale's ``client_behave_trace``, CSV or Parquet.

    A table has the columns ``client``, ``start_seconds``, ``end_seconds`` and perhaps
    ``period_seconds``; FedScale's own file has no ending, .pkl or .pickle. A trace begins anew
    after its period (FedScale's ``finish_time``). Where the world has as many clients as the file,
    client k is the k-th of the file; where it has fewer, they are drawn from the file; where it has
    more, each of the file occurs equally often, up to one.

    Args:
        path: relative to the working directory, or absolute.
    """

    name: ClassVar[str] = "activity-trace"

    def start(self, num_clients: int, seed: int) -> ActivityRun:
        """Draw which clients of the file take part."""
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


_ACTIVITY = TraceTable(
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
    columns = read_columns(path, _ACTIVITY)
    client = columns.clients()
    start = columns.numbers("start_seconds", low=0.0, high=LONGEST_SECONDS)
    end = columns.numbers("end_seconds", low=SHORTEST_SECONDS, high=LONGEST_SECONDS)
    columns.refuse_where(end < start, "end_seconds", "at least start_seconds")
    period = np.full(int(client.max()) + 1, end.max())
    if "period_seconds" in columns.values:
        of_row = columns.numbers("period_seconds", low=SHORTEST_SECONDS, high=LONGEST_SECONDS)
        period[client] = of_row
        columns.refuse_where(of_row != period[client], "period_seconds", "the same in all its rows")
        columns.refuse_where(end > of_row, "end_seconds", "at most period_seconds")
    return Intervals.of(client=client, start_seconds=start, end_seconds=end, period_seconds=period)


def _read_only(mask: BoolArray) -> BoolArray:
    mask.setflags(write=False)
    return mask

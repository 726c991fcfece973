"""Intervals on a clock, against brute force and against FedScale's rule."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedmuster.worlds.intervals import Intervals

Rows = list[tuple[int, int]]


@dataclass(frozen=True)
class Client:
    """One client in whole seconds; its intervals may touch and overlap."""

    period: int
    phase: int
    rows: Rows

    def is_there(self, time: float) -> bool:
        clock = (time + self.phase) % self.period
        return any(start <= clock <= end for start, end in self.rows)

    def is_there_throughout(self, first: float, last: float) -> bool:
        """Between whole seconds nothing changes: whole and half seconds, and the ends, say all."""
        between = np.arange(np.ceil(2 * first), np.floor(2 * last) + 1) / 2
        return all(self.is_there(time) for time in (first, *between, last))


@st.composite
def clients(draw: st.DrawFn) -> Client:
    period = draw(st.integers(1, 12))
    rows = [sorted(pair) for pair in draw(st.lists(st.tuples(*[st.integers(0, period)] * 2)))]
    return Client(period, draw(st.integers(0, period)), [(start, end) for start, end in rows])


def intervals_of(fleet: list[Client]) -> Intervals:
    rows = [(number, *row) for number, client in enumerate(fleet) for row in client.rows]
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Intervals.of(
        client=table[:, 0],
        start_seconds=table[:, 1].astype(np.float64),
        end_seconds=table[:, 2].astype(np.float64),
        period_seconds=np.array([client.period for client in fleet], dtype=np.float64),
        phase_seconds=np.array([client.phase for client in fleet], dtype=np.float64),
    )


fleets = st.lists(clients(), min_size=1, max_size=5)
halves = st.integers(0, 100).map(lambda number: number / 2)

ALWAYS = Client(5, 0, [(0, 5)])
ALWAYS_IN_PIECES = Client(5, 2, [(3, 5), (0, 1), (1, 3)])
NEVER = Client(7, 0, [])
OVER_THE_WRAP = Client(10, 0, [(0, 2), (7, 10)])
UP_TO_THE_WRAP = Client(10, 0, [(7, 10)])


@given(fleet=fleets, first=halves, length=halves)
@example(fleet=[ALWAYS, ALWAYS_IN_PIECES, NEVER], first=3.5, length=40.0)
@example(fleet=[OVER_THE_WRAP, UP_TO_THE_WRAP], first=8.0, length=4.0)
@example(fleet=[OVER_THE_WRAP, UP_TO_THE_WRAP], first=8.0, length=2.0)
@example(fleet=[Client(10, 0, [(0, 0), (4, 10)])], first=5.0, length=5.0)
def test_at_and_throughout_agree_with_brute_force(
    fleet: list[Client], first: float, length: float
) -> None:
    intervals, last = intervals_of(fleet), first + length
    np.testing.assert_array_equal(intervals.at(first), [c.is_there(first) for c in fleet])
    np.testing.assert_array_equal(
        intervals.throughout(first, last), [c.is_there_throughout(first, last) for c in fleet]
    )


@given(fleet=fleets, now=halves)
@example(fleet=[NEVER, NEVER], now=0.0)
@example(fleet=[NEVER, Client(12, 0, [(3, 3)])], now=4.5)
def test_the_next_start_is_the_first_moment_when_somebody_is_there(
    fleet: list[Client], now: float
) -> None:
    found = intervals_of(fleet).next_start(now)
    # Somebody comes within the longest period or not at all, and on a half second.
    moments = now + np.arange(0, 26) / 2
    expected = next((t for t in moments if any(c.is_there(t) for c in fleet)), np.inf)
    assert found == expected


@given(fleet=fleets, order=st.lists(st.integers(0, 4), max_size=8), now=halves)
def test_of_clients_takes_them_in_any_order_and_again(
    fleet: list[Client], order: list[int], now: float
) -> None:
    chosen = [number for number in order if number < len(fleet)]
    part = intervals_of(fleet).of_clients(np.array(chosen, dtype=np.int64))
    np.testing.assert_array_equal(part.at(now), [fleet[number].is_there(now) for number in chosen])


@pytest.mark.parametrize("now", [0.1, 12345.678, 3.3e7])
def test_rounding_never_leaves_us_just_before_the_start(now: float) -> None:
    """Starts that are no dyadic numbers: at the next start somebody really is there."""
    rng = np.random.default_rng(1)
    for _ in range(200):
        period, start = rng.uniform(50, 100), rng.uniform(20, 40)
        intervals = Intervals.of(
            client=np.array([0]),
            start_seconds=np.array([start]),
            end_seconds=np.array([start + 5]),
            period_seconds=np.array([period]),
        )
        time = intervals.next_start(now)
        assert intervals.at(time).all()
        assert now <= time <= now + period
        if time > now:
            assert not intervals.at(time - 1e-6).any()


class FedScaleClient:
    """FedScale's rule as its code has it: an index that each question moves by one at most."""

    def __init__(self, active: list[int], inactive: list[int], finish_time: int) -> None:
        self.active, self.inactive, self.finish_time = active, inactive, finish_time
        self.index = 0

    def is_active(self, now: float) -> bool:
        clock = now % self.finish_time
        if clock > self.inactive[self.index]:
            self.index = (self.index + 1) % len(self.active)
        return self.active[self.index] <= clock <= self.inactive[self.index]


@pytest.mark.parametrize(
    ("active", "inactive", "finish_time"),
    [
        ([3, 10, 17], [5, 14, 18], 20),
        ([0, 6], [4, 9], 12),
        ([0, 4, 9], [4, 8, 10], 15),  # two that touch
        ([5], [6], 9),
    ],
)
def test_asked_often_enough_fedscales_rule_says_the_same(
    active: list[int], inactive: list[int], finish_time: int
) -> None:
    theirs = FedScaleClient(active, inactive, finish_time)
    rows = list(zip(active, inactive, strict=True))
    ours = intervals_of([Client(finish_time, 0, rows)])
    for now in np.arange(0.0, 4 * finish_time, 0.25):
        assert bool(ours.at(now)[0]) == theirs.is_active(now), now


def test_fedscales_index_misses_a_period_when_the_trace_ends_active() -> None:
    """A fault of its code that is not repeated: the index stays where it was at the wrap."""
    theirs = FedScaleClient([2, 8], [4, 10], 10)
    ours = intervals_of([Client(10, 0, [(2, 4), (8, 10)])])
    times = np.arange(0.0, 20.0, 0.5)
    differ = [t for t in times if theirs.is_active(t) != bool(ours.at(t)[0])]
    assert differ == [12.0, 12.5, 13.0, 13.5, 14.0]

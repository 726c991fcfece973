"""A world without rounds: each client has its own sequence of jobs.

What round n draws for a client is its n-th job, so the n-th job of a client takes equally long
whichever policy asked for it, and whenever. Rounds without the client are passed over: those that a
trace has no row for, and those in which no edge server reaches and can pay it. Availability follows
the clock.
"""

from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import BoolArray, FloatArray, IntArray, Selection, Truth
from fedmuster.worlds.world import RoundDraw, WorldRound, WorldRun

_CACHE_BYTES = 2**27
_MOST_PASSED = 1_000_000
_MOST_PASSED_AT_EDGES = 300
"""A client that is in none of this number of rounds in a row is gone for good."""
_GONE = 0


class JobDraws:
    """The next job of each client of a world."""

    def __init__(self, world: WorldRun) -> None:
        if world.needs_rounds is not None:
            raise ConfigError(
                f"this world needs rounds: {world.needs_rounds}, or leave out [federation]",
                key=("federation",),
            )
        self._world = world
        num_clients = world.problem.num_clients
        self.next: IntArray = np.ones(num_clients, dtype=np.int64)
        """int64[K], the round of the world that holds the next job of each client; 0 for none."""
        self._some_are_gone = False
        self._cache: OrderedDict[int, RoundDraw] = OrderedDict()
        self._cache_size = 1  # until the size of a draw is known
        first = self._draw(1)
        self._first = first
        self._cache_size = max(4, _CACHE_BYTES // max(_bytes_of(first), 1))
        self._table = {name: values.copy() for name, values in _per_client(first).items()}
        self._refresh(np.arange(num_clients))
        deadline = world.time.deadline_seconds
        usual = world.typical_latency_seconds()
        self._tick = deadline if np.isfinite(deadline) else float(np.median(usual))

    def at(self, now_seconds: float) -> WorldRound:
        """What the server sees at this time, and the next job of each client."""
        world, table, tick = self._world, self._table, self._tick_at(now_seconds)
        available = self._there(now_seconds)
        edges = None
        if self._first.edges is not None:
            budget = self._first.edges.budget
            edges = EdgeView(coverage=table["coverage"], cost=table["cost"], budget=budget)
            available = available & edges.covered
        latency, expectation = table["latency"], self._truth
        liars = world.adversaries
        if world.drift is not None:
            pace = world.drift(now_seconds)
            latency, expectation = latency * pace.slowdown, pace.expectation
        return WorldRound(
            latency_seconds=latency,
            expectation=expectation,
            features=table.get("features"),
            signals={name: table[f"signal {name}"] for name in self._first.signals},
            edges=edges,
            position_km=table.get("position"),
            round=tick + 1,
            available=available,
            time=world.time,
            forecast=partial(world.forecast, tick + 1, now_seconds),
            now_seconds=now_seconds,
            adversaries=None if liars is None else liars.at_work(self.next),
        )

    def wait_seconds(self, now_seconds: float, idle: BoolArray) -> float:
        """Seconds until a client that is offline now may be available; infinite if none ever is.

        Args:
            now_seconds: the time.
            idle: bool[K], the clients that can be asked when they are there.
        """
        there = self._there(now_seconds)
        if there[idle & (self.next != _GONE)].all():
            return np.inf
        # An availability says when the first client comes, but not when a further one does.
        wait = 0.0 if there.any() else self._world.availability.wait_seconds(now_seconds)
        return wait if wait > 0 else self._until_tick(self._tick_at(now_seconds) + 1, now_seconds)

    def _there(self, now_seconds: float) -> BoolArray:
        there = self._world.availability.at(self._tick_at(now_seconds) + 1, now_seconds)
        return there & (self.next != _GONE) if self._some_are_gone else there

    def _tick_at(self, now_seconds: float) -> int:
        """The number of whole ticks that have passed.

        Availability laws that draw by round draw anew each tick: a deadline, or the median latency.
        """
        return int(now_seconds / self._tick)

    def _until_tick(self, tick: int, now_seconds: float) -> float:
        """Seconds until the clock, with its rounding, shows this tick."""
        wait = tick * self._tick - now_seconds
        while self._tick_at(now_seconds + wait) < tick:
            wait += float(np.spacing(now_seconds + wait))
        return wait

    @property
    def edges(self) -> EdgeView | None:
        """The edge servers, as they were for each client's first job; None without any."""
        return self._first.edges

    def take(self, selection: Selection) -> None:
        """These clients have been asked: the table goes on to their next jobs."""
        self.next[selection.clients] += 1
        self._refresh(selection.clients)

    def load(self, jobs: IntArray) -> None:
        """Continue with these values of :attr:`next`."""
        self.next, self._some_are_gone = jobs.copy(), bool((jobs == _GONE).any())
        for number in np.unique(jobs[jobs != _GONE]).tolist():
            self._fill(np.flatnonzero(jobs == number), self._draw(number))

    def _refresh(self, clients: IntArray) -> None:
        """Look up the next jobs of these clients, without rounds in which they are absent."""
        for _ in range(_MOST_PASSED if self._first.edges is None else _MOST_PASSED_AT_EDGES):
            if len(clients) == 0:
                return
            missing = []
            numbers = self.next[clients]
            for number in np.unique(numbers).tolist():
                here, draw = clients[numbers == number], self._draw(number)
                self._fill(here, draw)
                missing.append(_absent(draw, here))
            clients = np.concatenate(missing)
            self.next[clients] += 1
        self.next[clients], self._some_are_gone = _GONE, True

    def _fill(self, clients: IntArray, draw: RoundDraw) -> None:
        for name, values in _per_client(draw).items():
            self._table[name][clients] = values[clients]

    def _draw(self, number: int) -> RoundDraw:
        draw = self._cache.pop(number, None)
        if draw is None:
            draw = self._world.draw(number)
        self._cache[number] = draw  # the newest stands last
        if len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)
        return draw

    def _truth(self) -> Truth:
        """The expectations of each client's next job."""
        whole = self._first.expectation()
        numbers = np.unique(self.next[self.next != _GONE]).tolist()
        if all(self._draw(n).expectation is self._first.expectation for n in numbers[-2:]):
            return whole  # the same in all rounds
        columns = {
            name: getattr(whole, name).copy() for name in ("mean_latency_seconds", "mean_speed")
        }
        success = None if whole.success is None else whole.success.copy()
        for number in numbers:
            here, truth = self.next == number, self._draw(number).expectation()
            for name, values in columns.items():
                values[here] = getattr(truth, name)[here]
            if success is not None and truth.success is not None:
                success[here] = truth.success[here]
        return replace(whole, **columns, success=success)


def _per_client(draw: RoundDraw) -> dict[str, NDArray[Any]]:
    """The columns of a draw with a row for each client, by name."""
    columns: dict[str, FloatArray | None] = {
        "latency": draw.latency_seconds,
        "features": draw.features,
        "position": draw.position_km,
    }
    columns |= {f"signal {name}": values for name, values in draw.signals.items()}
    found: dict[str, NDArray[Any]] = {n: v for n, v in columns.items() if v is not None}
    if draw.edges is not None:
        found |= {"coverage": draw.edges.coverage, "cost": draw.edges.cost}
    return found


def _bytes_of(draw: RoundDraw) -> int:
    return sum(values.nbytes for values in _per_client(draw).values())


def _absent(draw: RoundDraw, clients: IntArray) -> IntArray:
    """Those of these clients that are not there in this round."""
    there = np.ones(len(clients), dtype=np.bool_)
    if draw.present is not None:
        there &= draw.present[clients]
    if (edges := draw.edges) is not None:
        there &= (edges.coverage[clients] & (edges.cost[clients] <= edges.budget)).any(axis=1)
    return clients[~there]

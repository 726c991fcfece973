"""A world simulates the clients: which are available, and when each would answer.

The round of every client is drawn before the choice, from streams that depend on the seed and the
round alone. So all policies face the same luck, and rounds can be drawn in any order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import ClassVar, Final, NamedTuple, Protocol

import numpy as np
from numpy.random import Generator

from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import DataError
from fedmuster.core.records import (
    BoolArray,
    Feedback,
    FloatArray,
    Forecast,
    IntArray,
    Problem,
    Selection,
    Truth,
)
from fedmuster.core.registry import Registry
from fedmuster.core.streams import FORECAST, WORLD, stream
from fedmuster.worlds.adversaries import AdversaryRun, AtWork
from fedmuster.worlds.availability import AvailabilityRun
from fedmuster.worlds.round_time import RoundTime


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of a cohort: feedback, the length of the round, and when clients are done.

    The feedback has one row for each selected client. The latency of a client that did not complete
    is infinite there, because the server does not wait to learn when a late client is ready;
    ``latency_seconds`` [m] says when.
    """

    feedback: Feedback
    round_seconds: float
    latency_seconds: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundDraw:
    """What K clients would do in one round if they were available and did not drop out.

    Args:
        latency_seconds: [K], when each client would answer if it were alone; [K, M] at each edge.
        expectation: computes the truth of this round, dropout included; called only when needed.
        features: [K, d], what the server sees of each client; [K, M, d] at each edge; or None.
        present: bool[K], the clients that exist in this round; None for all.
        signals: [K] by name ([K, M] at each edge), what else an answer would say.
        edges: the edge servers; None in flat federated learning. A client that no edge covers is
            not available.
        position_km: [K, 2], where the clients are, in worlds with places.
    """

    latency_seconds: FloatArray
    expectation: Callable[[], Truth]
    features: FloatArray | None = None
    present: BoolArray | None = None
    signals: Mapping[str, FloatArray] = field(default_factory=dict)
    edges: EdgeView | None = None
    position_km: FloatArray | None = None


Clients = Callable[[int, Generator], RoundDraw]
"""(round, the round's random stream) -> what the clients would do."""


class Pace(NamedTuple):
    """How fast clients are at a time, in worlds where that changes.

    Args:
        slowdown: [K], a job that begins now takes this many times as long as it was drawn.
        expectation: computes the truth of a job that begins now.
    """

    slowdown: FloatArray
    expectation: Callable[[], Truth]

    def of(self, draw: RoundDraw) -> RoundDraw:
        """What was drawn, for jobs that begin now."""
        latency = draw.latency_seconds * self.slowdown
        return replace(draw, latency_seconds=latency, expectation=self.expectation)


Drift = Callable[[float], Pace]
"""Seconds since the first round -> how fast clients are then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldRound(RoundDraw):
    """One round of all K clients, as a policy meets it. Latencies of dropouts are ``+inf``.

    Args:
        round: t = 1, 2, …
        available: bool[K], the clients that can be asked.
        time: when the round ends.
        forecast: asks clients when they expect to be available.
        now_seconds: when the round begins.
        wait_seconds: how long until a client comes, if none is available.
        adversaries: the clients that keep silent or share a machine; None if there are none.
    """

    round: int
    available: BoolArray
    time: RoundTime
    forecast: Forecast | None = None
    now_seconds: float = 0.0
    wait_seconds: float = 0.0
    adversaries: AtWork | None = None

    @property
    def truth(self) -> Truth:
        """The true expectations of a client that is asked in this round.

        ``mean_latency_seconds`` is of the latency itself, unless the world says otherwise.
        ``mean_speed`` is ``E[tau_min/tau · completed]``: a round without an answer in time has
        speed 0, as a policy observes it. With edges, ``succeeds`` says which clients will be in
        time, dropout included.
        """
        truth = self.expectation()
        if self.adversaries is not None:
            truth = self.adversaries.truth(truth)
        if self.edges is None:
            return truth
        return replace(truth, succeeds=self.latency_seconds <= self.time.deadline_seconds)

    def play(self, selection: Selection) -> Outcome:
        """What happens if these clients are asked. Changes nothing."""
        clients = selection.clients
        if selection.round != self.round:
            raise DataError(f"play: a cohort for round {selection.round} in round {self.round}")
        if not self.available[clients].all():
            absent = clients[~self.available[clients]]
            raise DataError(f"play: client {absent[0]} is not available in round {self.round}")
        alone, signals = self.job_of(selection)
        latency = self.time.latency(selection, alone, signals)
        completed, used, seconds = self.time.close(selection, latency)
        deadline = self.time.deadline_seconds
        if self.edges is not None or self.time.at_least > 0:
            # A client for which the edge waits beyond the deadline completes, but is not in time.
            signals["in_time"] = (latency <= deadline).astype(np.float64)
        if len(clients) == 0:  # edge servers keep their rhythm
            rhythm = 0.0 if self.edges is None or np.isinf(deadline) else deadline
            seconds = max(self.wait_seconds, rhythm)
        return Outcome(
            feedback=Feedback(
                round=self.round,
                clients=clients,
                latency_seconds=np.where(completed, latency, np.inf),
                completed=completed,
                signals={name: np.where(completed, rows, np.nan) for name, rows in signals.items()},
                used=used,
                round_seconds=seconds,
            ),
            round_seconds=seconds,
            latency_seconds=latency,
        )

    def job_of(
        self, selection: Selection, *, busy: BoolArray | None = None
    ) -> tuple[FloatArray, dict[str, FloatArray]]:
        """[m], how long these clients take if each has its server alone, and their signals.

        ``busy`` are the clients that are at work already, where clients are asked one by one.
        """
        seconds, signals = self.of(selection, self.latency_seconds), self.signals_of(selection)
        if self.adversaries is not None:
            factor = self.adversaries.slowdown(selection, busy)
            seconds = seconds * factor
            for name in signals.keys() & {"compute_seconds", "upload_seconds"}:
                signals[name] = signals[name] * factor
        return seconds, signals

    def signals_of(self, selection: Selection) -> dict[str, FloatArray]:
        """[m] by name, what else the answers of these clients say."""
        return {name: self.of(selection, values) for name, values in self.signals.items()}

    def of(self, selection: Selection, values: FloatArray) -> FloatArray:
        """[m], each selected client's value at its edge; [K] values are the same at all edges."""
        if self.edges is not None and values.ndim == 1:
            values = np.broadcast_to(values[:, np.newaxis], self.edges.coverage.shape)
        return selection.rows_of(values)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WorldRun:
    """A world whose layout has been drawn. :meth:`Setting.begin` makes one.

    Args:
        seed: of every draw.
        problem: what the server knows of the clients.
        tau_min_seconds: the shortest latency there can be.
        groups: [K], speed group of each client for reports; 0 is the fastest.
        clients: draws what the clients do in a round.
        availability: which clients can be asked.
        num_to_ask: how many clients a round may ask: the cohort size, or more (over-selection).
        time: when a round ends.
        dropout: probability that a client which was asked never answers.
        usual_latency_seconds: [K], where expectations change from round to round.
        forecast_accuracy: how often a client's forecast of its own availability is right.
        columns: by name, what else is true of clients ([K]) and edges, for reports.
        rounds_only: why the clients cannot be asked one by one; None where they can.
        drift: how fast clients are at each time; None where that does not change.
        adversaries: the clients that attack; None where all are honest.
    """

    seed: int
    problem: Problem
    tau_min_seconds: float
    groups: IntArray
    clients: Clients
    availability: AvailabilityRun
    num_to_ask: int
    time: RoundTime
    dropout: float = 0.0
    usual_latency_seconds: FloatArray | None = None
    forecast_accuracy: float = 1.0
    columns: Mapping[str, FloatArray] = field(default_factory=dict)
    rounds_only: str | None = None
    drift: Drift | None = None
    adversaries: AdversaryRun | None = None

    def __post_init__(self) -> None:
        self.groups.setflags(write=False)

    @property
    def needs_rounds(self) -> str | None:
        """Why the clients cannot be asked one by one; None where they can."""
        time = self.time
        if self.rounds_only is not None:
            return self.rounds_only
        if time.keep_first is not None:
            return "over_selection > 1 keeps the first answers of a round; write over_selection = 1"
        if time.clusters is not None and time.cluster_delay_seconds > 0:
            return "clusters delay a round; write cluster_delay_seconds = 0"
        if time.at_least > 1:
            return "edge servers wait for at_least answers of a round; write at_least = 1"
        return None

    @property
    def waits_for_all(self) -> bool:
        """Whether a round is as long as its slowest client alone, as regret supposes."""
        return self.time.keep_first is None and not self.time.sequential

    def typical_latency_seconds(self) -> FloatArray:
        """[K], the expected latency of each client in the long run, for reports."""
        if self.usual_latency_seconds is not None:
            return self.usual_latency_seconds
        return self.realise(1).truth.mean_latency_seconds

    def realise(self, round_number: int, *, now_seconds: float = 0.0) -> WorldRound:
        """Draw round t = 1, 2, …, which begins ``now_seconds`` after the first.

        The same round at the same time gives the same draw, in any order.
        """
        if round_number < 1:
            raise DataError(f"realise: round is {round_number}, expected 1, 2, …")
        draw = self.draw(round_number)
        if self.drift is not None:
            draw = self.drift(now_seconds).of(draw)
        available = self.availability.at(round_number, now_seconds)
        if draw.present is not None:
            available = available & draw.present
        if draw.edges is not None:
            available = available & draw.edges.covered
        return WorldRound(
            **{item.name: getattr(draw, item.name) for item in fields(RoundDraw)},
            round=round_number,
            available=available,
            time=self.time,
            forecast=partial(self.forecast, round_number, now_seconds),
            now_seconds=now_seconds,
            wait_seconds=0.0 if available.any() else self.availability.wait_seconds(now_seconds),
            adversaries=self._at_work(round_number),
        )

    def draw(self, round_number: int) -> RoundDraw:
        """What the clients would do in this round; a client that drops out takes for ever."""
        rng = stream(self.seed, WORLD, round_number)
        draw = self.clients(round_number, rng)
        if self.dropout > 0:
            latency = draw.latency_seconds.copy()
            lost = rng.random(len(latency)) < self.dropout  # drawn last: latencies are as they were
            latency[lost] = np.inf
            draw = replace(draw, latency_seconds=latency)
        if (at_work := self._at_work(round_number)) is not None:
            signals = {name: at_work.per_client(of) for name, of in draw.signals.items()}
            latency = at_work.latency(draw.latency_seconds)
            draw = replace(draw, latency_seconds=latency, signals=signals)
        return draw

    def _at_work(self, round_number: int) -> AtWork | None:
        return None if self.adversaries is None else self.adversaries.at_work(round_number)

    def forecast(
        self, round_number: int, now_seconds: float, window_seconds: float
    ) -> tuple[BoolArray, BoolArray]:
        """What clients expect: the truth, except for those that are wrong."""
        truth = self.availability.forecast(round_number, now_seconds, window_seconds)
        luck = stream(self.seed, FORECAST, round_number)
        this, following = (
            there ^ (luck.random(len(there)) >= self.forecast_accuracy) for there in truth
        )
        return this, following


class World(Protocol):
    """How clients behave: a frozen, keyword-only dataclass with a ``name``.

    A world of your own subclasses :class:`~fedmuster.worlds.setting.Setting`, which has the fields
    of all worlds (cohort size, deadline, dropout, availability, data), and defines three things:

    - ``name: ClassVar[str]``, and fields of its own with defaults, for example ``num_clients``;
    - ``start(seed)``, which draws whatever stays the same in all rounds from
      ``stream(seed, LAYOUT)`` and returns ``self.begin(seed, clients, tau_min_seconds=…,
      groups=…)``;
    - ``clients(round, rng)``, handed to ``begin``, which draws one round from ``rng`` as a
      :class:`RoundDraw`. Where latencies follow the same law in all rounds, ``begin`` takes that
      law instead, for example a :class:`~fedmuster.worlds.laws.latency.NormalLatency`.

    A world without ``Setting`` needs ``name``, ``hierarchical`` and ``start``.
    """

    name: ClassVar[str]

    @property
    def hierarchical(self) -> bool:
        """Whether there are edge servers between the clients and the cloud."""

    def start(self, seed: int) -> WorldRun:
        """Draw the layout: which clients are fast, their clusters, how much data each has."""


WORLDS: Final = Registry[World](
    "world", World, modules=("fedmuster.worlds",), methods=("start",), group="fedmuster.worlds"
)

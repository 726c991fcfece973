"""A world: who answers, when.

Every client's round is drawn before the choice, from streams that know the seed and the round
and nothing else. So all policies face the same luck, and any round can be drawn at any time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Protocol

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
    Late,
    Problem,
    Selection,
    Truth,
)
from fedmuster.core.streams import FORECAST, WORLD, stream
from fedmuster.worlds.availability import AvailabilityRun
from fedmuster.worlds.round_time import RoundTime


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of a cohort.

    Args:
        feedback: one row for each selected client; an infinite latency where not completed, for
            the server never learns when a late client would have been ready.
        round_seconds: how long the round lasted.
        late: who would answer afterwards, and when.
    """

    feedback: Feedback
    round_seconds: float
    late: Late


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldRound:
    """One round of all K clients, drawn before the choice.

    Args:
        round: t = 1, 2, …
        available: bool[K], who can be asked.
        features: [K, d] what the server sees of each client ([K, M, d] at each edge), or None.
        latency_seconds: [K], when each would answer if it were alone ([K, M] at each edge);
            ``+inf`` if it would drop out.
        expectation: computes ``truth``; costs nothing until somebody looks.
        time: how long a round lasts.
        signals: [K] by name ([K, M] at each edge), what else an answer would say.
        forecast: asks clients when they expect to be available.
        now_seconds: when the round begins.
        wait_seconds: how long until somebody comes, if nobody is available.
        edges: the edge servers; None in flat federated learning.
        position_km: [K, 2], where the clients are, if they are anywhere.
    """

    round: int
    available: BoolArray
    features: FloatArray | None
    latency_seconds: FloatArray
    expectation: Callable[[], Truth]
    time: RoundTime
    signals: Mapping[str, FloatArray] = field(default_factory=dict)
    forecast: Forecast | None = None
    now_seconds: float = 0.0
    wait_seconds: float = 0.0
    edges: EdgeView | None = None
    position_km: FloatArray | None = None

    @property
    def truth(self) -> Truth:
        """The true expectations of a client that is asked in this round.

        ``mean_latency_seconds`` is of the latency itself, unless the world says otherwise.
        ``mean_speed`` is
        ``E[tau_min/tau · completed]``: a round without an answer in time has speed 0, as that
        is what a policy observes. With edges it also knows who will be in time, dropping out
        included.
        """
        truth = self.expectation()
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
        signals = {name: self._of(selection, values) for name, values in self.signals.items()}
        alone = self._of(selection, self.latency_seconds)
        latency = self.time.latency(selection, alone, signals)
        completed, used, seconds = self.time.close(selection, latency)
        if self.edges is not None or self.time.at_least > 0:
            # Who is waited for completes, but was not in time.
            signals["in_time"] = (latency <= self.time.deadline_seconds).astype(np.float64)
        late = ~completed & np.isfinite(latency)
        if len(clients) == 0:
            seconds = max(self.wait_seconds, self._idle_seconds)
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
            late=Late(clients=clients[late], arrives_at_seconds=self.now_seconds + latency[late]),
        )

    @property
    def _idle_seconds(self) -> float:
        """How long a round without clients takes: edge servers keep their rhythm."""
        deadline = self.time.deadline_seconds
        return 0.0 if self.edges is None or np.isinf(deadline) else deadline

    def _of(self, selection: Selection, values: FloatArray) -> FloatArray:
        """[m], of each of the cohort at its edge; [K] values are the same at all edges."""
        if self.edges is not None and values.ndim == 1:
            values = np.broadcast_to(values[:, np.newaxis], self.edges.coverage.shape)
        return selection.rows_of(values)


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """What K clients would do in one round, if available and but for dropping out.

    Args:
        latency_seconds: [K], or [K, M] at each edge.
        expectation: computes the truth of this round, dropping out included.
        features: [K, d], or [K, M, d] at each edge, or None.
        present: bool[K], who exists in this round; None for everyone.
        signals: [K] by name, or [K, M] at each edge, what else an answer would say.
        edges: the edge servers, if there are any; whom none covers is not available.
        position_km: [K, 2], where the clients are, if they are anywhere.
    """

    latency_seconds: FloatArray
    expectation: Callable[[], Truth]
    features: FloatArray | None = None
    present: BoolArray | None = None
    signals: Mapping[str, FloatArray] = field(default_factory=dict)
    edges: EdgeView | None = None
    position_km: FloatArray | None = None


Clients = Callable[[int, Generator], Draw]
"""(round, the round's random stream) -> what the clients would do."""


class WorldRun:
    """A world whose layout has been drawn.

    Args:
        seed: of every draw.
        problem: what the server knows of the clients.
        tau_min_seconds: the shortest latency there can be.
        groups: [K], speed group of each client for reports; 0 is the fastest.
        clients: how they behave.
        availability: who can be asked.
        dropout: probability that a client which was asked never answers.
        time: how long a round lasts.
        num_to_ask: how many clients a round may ask, if more than the cohort size.
        usual_latency_seconds: [K], where expectations change from round to round.
        forecast_accuracy: how often clients are right when they say whether they will be there.
        columns: by name, what else is true of clients ([K]) and edges, for reports.
    """

    def __init__(
        self,
        *,
        seed: int,
        problem: Problem,
        tau_min_seconds: float,
        groups: IntArray,
        clients: Clients,
        availability: AvailabilityRun,
        dropout: float,
        time: RoundTime,
        num_to_ask: int | None = None,
        usual_latency_seconds: FloatArray | None = None,
        forecast_accuracy: float = 1.0,
        columns: Mapping[str, FloatArray] | None = None,
    ) -> None:
        groups.setflags(write=False)
        self.seed = seed
        self.problem = problem
        self.tau_min_seconds = tau_min_seconds
        self.groups = groups
        self.num_to_ask = problem.cohort_size if num_to_ask is None else num_to_ask
        self._clients = clients
        self._availability = availability
        self._dropout = dropout
        self._time = time
        self._usual_latency_seconds = usual_latency_seconds
        self._forecast_accuracy = forecast_accuracy
        self.columns = {} if columns is None else columns

    @property
    def waits_for_all(self) -> bool:
        """Whether a round is as long as its slowest client alone, as regret supposes."""
        return self._time.keep_first is None and not self._time.sequential

    def typical_latency_seconds(self) -> FloatArray:
        """[K], what to expect of each client in the long run, for reports."""
        if self._usual_latency_seconds is not None:
            return self._usual_latency_seconds
        return self.realise(1).truth.mean_latency_seconds

    def realise(self, round_number: int, *, now_seconds: float = 0.0) -> WorldRound:
        """Draw round t = 1, 2, … that begins so many seconds after the first.

        The same round at the same time gives the same draw, in any order.
        """
        if round_number < 1:
            raise DataError(f"realise: round is {round_number}, expected 1, 2, …")
        rng = stream(self.seed, WORLD, round_number)
        draw = self._clients(round_number, rng)
        latency = draw.latency_seconds
        if self._dropout > 0:  # drawn last, so that it leaves the latencies as they were
            lost = rng.random(len(latency)) < self._dropout
            latency = latency.copy()
            latency[lost] = np.inf
        available = self._availability.at(round_number, now_seconds)
        if draw.present is not None:
            available = available & draw.present
        if draw.edges is not None:
            available = available & draw.edges.covered
        return WorldRound(
            round=round_number,
            available=available,
            features=draw.features,
            latency_seconds=latency,
            expectation=draw.expectation,
            time=self._time,
            signals=draw.signals,
            forecast=partial(self._forecast, round_number, now_seconds),
            now_seconds=now_seconds,
            wait_seconds=0.0 if available.any() else self._availability.wait_seconds(now_seconds),
            edges=draw.edges,
            position_km=draw.position_km,
        )

    def _forecast(
        self, round_number: int, now_seconds: float, window_seconds: float
    ) -> tuple[BoolArray, BoolArray]:
        """What clients expect: the truth, but for some who are wrong."""
        truth = self._availability.forecast(round_number, now_seconds, window_seconds)
        luck = stream(self.seed, FORECAST, round_number)
        this, following = (
            there ^ (luck.random(len(there)) >= self._forecast_accuracy) for there in truth
        )
        return this, following


class World(Protocol):
    """A frozen, keyword-only dataclass that says how clients behave."""

    name: ClassVar[str]

    @property
    def hierarchical(self) -> bool:
        """Whether there are edge servers between the clients and the cloud."""
        ...

    def start(self, seed: int) -> WorldRun:
        """Draw the layout: who is fast, who sits in which cluster, who has how much data."""
        ...

"""A world: who answers, when.

Every client's round is drawn before the choice, from streams that know the seed and the round
and nothing else. So all policies face the same luck, and any round can be drawn at any time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.random import Generator

from fedmuster.core.errors import DataError
from fedmuster.core.records import (
    BoolArray,
    Feedback,
    FloatArray,
    IntArray,
    Problem,
    Selection,
    Truth,
)
from fedmuster.core.streams import WORLD, stream
from fedmuster.objectives.diversity import repeats
from fedmuster.worlds.availability import AvailabilityRun


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of a cohort.

    Args:
        feedback: one row for each selected client; an infinite latency where not completed, for
            the server never learns when a late client would have been ready.
        round_seconds: how long the round lasted.
    """

    feedback: Feedback
    round_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundTime:
    """How long a round lasts.

    As long as its slowest client (BSFL Eq. 2), or the deadline if a client did not answer by
    then; and longer by ``cluster_delay_seconds`` for each client beyond the first of its cluster
    (PAUSE V.A, R2), which delays the round but no client's own latency. With ``keep_first`` it
    ends with that many answers, and later ones do not count.
    """

    deadline_seconds: float = np.inf
    keep_first: int | None = None
    clusters: IntArray | None = None
    cluster_delay_seconds: float = 0.0

    def in_time(self, latency: FloatArray) -> BoolArray:
        """Whose answers count."""
        arrived = (latency <= self.deadline_seconds) & np.isfinite(latency)
        if self.keep_first is not None:
            arrived[np.argsort(latency, kind="stable")[self.keep_first :]] = False
        return arrived

    def seconds(self, clients: IntArray, latency: FloatArray, completed: BoolArray) -> float:
        """The round of ``clients``; 0 for nobody."""
        if len(clients) == 0:
            return 0.0
        wanted = len(clients)
        if self.keep_first is not None:
            wanted = min(wanted, self.keep_first)
        enough = np.count_nonzero(completed) >= wanted
        seconds = float(latency[completed].max()) if enough else self.deadline_seconds
        if self.clusters is not None:
            # PAUSE V.A, R2
            seconds += self.cluster_delay_seconds * repeats(self.clusters[clients])
        return seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldRound:
    """One round of all K clients, drawn before the choice.

    Args:
        round: t = 1, 2, …
        available: bool[K], who can be asked.
        features: [K, d] what the server sees of each client, or None.
        latency_seconds: [K], when each would answer; ``+inf`` if it would drop out.
        expectation: computes ``truth``; costs nothing until somebody looks.
        time: how long a round lasts.
    """

    round: int
    available: BoolArray
    features: FloatArray | None
    latency_seconds: FloatArray
    expectation: Callable[[], Truth]
    time: RoundTime

    @property
    def truth(self) -> Truth:
        """The true expectations of a client that is asked in this round.

        ``mean_latency_seconds`` is of the latency itself. ``mean_speed`` is
        ``E[tau_min/tau · completed]``: a round without an answer in time has speed 0, as that
        is what a policy observes.
        """
        return self.expectation()

    def play(self, selection: Selection) -> Outcome:
        """What happens if these clients are asked. Changes nothing."""
        clients = selection.clients
        if selection.round != self.round:
            raise DataError(f"play: a cohort for round {selection.round} in round {self.round}")
        if not self.available[clients].all():
            absent = clients[~self.available[clients]]
            raise DataError(f"play: client {absent[0]} is not available in round {self.round}")
        latency = self.latency_seconds[clients]
        completed = self.time.in_time(latency)
        latency[~completed] = np.inf
        return Outcome(
            feedback=Feedback(
                round=self.round, clients=clients, latency_seconds=latency, completed=completed
            ),
            round_seconds=self.time.seconds(clients, latency, completed),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """What K clients would do in one round, if available and but for dropping out.

    Args:
        latency_seconds: [K].
        expectation: computes the truth of this round, dropping out included.
        features: [K, d] or None.
        present: bool[K], who exists in this round; None for everyone.
    """

    latency_seconds: FloatArray
    expectation: Callable[[], Truth]
    features: FloatArray | None = None
    present: BoolArray | None = None


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

    def typical_latency_seconds(self) -> FloatArray:
        """[K], what to expect of each client in the long run, for reports."""
        if self._usual_latency_seconds is not None:
            return self._usual_latency_seconds
        return self.realise(1).truth.mean_latency_seconds

    def realise(self, round_number: int) -> WorldRound:
        """Draw round t = 1, 2, …; the same round gives the same draw, in any order."""
        if round_number < 1:
            raise DataError(f"realise: round is {round_number}, expected 1, 2, …")
        rng = stream(self.seed, WORLD, round_number)
        draw = self._clients(round_number, rng)
        latency = draw.latency_seconds
        if self._dropout > 0:  # drawn last, so that it leaves the latencies as they were
            latency = np.where(rng.random(len(latency)) < self._dropout, np.inf, latency)
        available = self._availability(round_number)
        return WorldRound(
            round=round_number,
            available=available if draw.present is None else available & draw.present,
            features=draw.features,
            latency_seconds=latency,
            expectation=draw.expectation,
            time=self._time,
        )


class World(Protocol):
    """A frozen, keyword-only dataclass that says how clients behave."""

    name: ClassVar[str]

    def start(self, seed: int) -> WorldRun:
        """Draw the layout: who is fast, who sits in which cluster, who has how much data."""
        ...

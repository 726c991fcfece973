"""The base class of worlds: the fields and helpers that they share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import ceil_of
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray, IntArray, Problem, Truth
from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds.adversaries import Adversaries
from fedmuster.worlds.availability import Always, Availability
from fedmuster.worlds.laws.latency import LatencyLaw
from fedmuster.worlds.layout import Alike, ClientData
from fedmuster.worlds.round_time import RoundTime
from fedmuster.worlds.world import Clients, Drift, RoundDraw, WorldRun

DATA_KEY = 1
"""Data has a layout stream of its own: with other data, the same clients are fast."""

Answers = Callable[[Generator], tuple[FloatArray, Mapping[str, FloatArray]]]
"""The round's random stream -> [K] latencies, and [K] signals by name."""

_MOST = 10**9  # of anything that is counted: more does not fit into memory


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """The fields that every world has; the base of a world, see ``World``.

    Args:
        cohort_size: m; with fewer clients available, the server asks all of them.
        availability: which clients can be asked in a round.
        dropout: probability that a client which was asked never answers.
        deadline_seconds: when the server stops waiting; None to wait for every client.
        over_selection: the server asks ``over_selection × m`` clients and keeps the first m
            answers, for example 1.3 (Oort); 1 to ask m and wait for all of them.
        data: how much data each client has.
        forecast_accuracy: how often a client's forecast of its own availability is right (REFL
            asks for it). REFL's evaluation: 0.9.
        adversaries: clients that lie, keep silent, share a machine or poison their updates, for
            example ``{ share = 0.2, loss_factor = 10 }`` (docs/liars.md has all settings); None
            where all are honest.
    """

    hierarchical: ClassVar[bool] = False
    """Whether there are edge servers between the clients and the cloud."""
    unlimited_cohort: ClassVar[int | None] = None
    """The cohort size that stands for all clients; None where no number does."""

    cohort_size: int
    availability: Availability = field(default_factory=Always)
    dropout: float = 0.0
    deadline_seconds: float | None = None
    over_selection: float = 1.0
    data: ClientData = field(default_factory=Alike)
    forecast_accuracy: float = 0.9
    adversaries: Adversaries | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if self.cohort_size != self.unlimited_cohort:
            self.require_count("cohort_size")
        require(0 <= self.dropout <= 1, self, "dropout", "a number in [0, 1]")
        require(1 <= self.over_selection <= 100, self, "over_selection", "a number in [1, 100]")
        require(0 <= self.forecast_accuracy <= 1, self, "forecast_accuracy", "a number in [0, 1]")
        if self.deadline_seconds is not None:
            self.require_positive("deadline_seconds")
        elif self.dropout > 0:
            raise ConfigError(
                f"{type(self).__name__}: dropout = {self.dropout!r} needs a deadline, or the "
                "server would wait for ever; write deadline_seconds = …",
                key=("deadline_seconds",),
            )
        elif self.adversaries is not None and self.adversaries.silent:
            raise ConfigError(
                f"{type(self).__name__}: silent adversaries need a deadline, or the server would "
                "wait for ever; write deadline_seconds = …",
                key=("deadline_seconds",),
            )

    @property
    def deadline(self) -> float:
        """In seconds; infinite to wait for every client."""
        return np.inf if self.deadline_seconds is None else self.deadline_seconds

    def require_deadline(self) -> None:
        """Complain where there is no deadline."""
        expected = "seconds > 0: without a deadline every client is in time"
        require(self.deadline_seconds is not None, self, "deadline_seconds", expected)

    def require_count(self, *names: str) -> None:
        """Complain unless the fields are integers >= 1."""
        for name in names:
            require(getattr(self, name) >= 1, self, name, "an integer >= 1")
            require(getattr(self, name) <= _MOST, self, name, f"at most {_MOST:,}")

    def require_positive(self, *names: str) -> None:
        """Complain unless the fields are finite numbers > 0."""
        for name in names:
            require(0 < getattr(self, name) < np.inf, self, name, "a number > 0")

    def require_not_negative(self, *names: str) -> None:
        """Complain unless the fields are finite numbers >= 0."""
        for name in names:
            require(0 <= getattr(self, name) < np.inf, self, name, "a number >= 0")

    def require_range(self, *names: str, limit: float = np.inf) -> None:
        """Complain unless the fields are pairs of finite numbers in (0, limit], lower first."""
        bound = "" if limit == np.inf else f" and <= {limit:g}"
        for name in names:
            low, high = getattr(self, name)
            fits = 0 < low <= high <= limit and high < np.inf
            require(fits, self, name, f"two numbers > 0{bound}, the lower first")

    def truth(self, law: LatencyLaw, tau_min_seconds: float) -> Truth:
        """The expectations of ``law`` under this deadline and dropout, see WorldRound.truth."""
        mean = law.mean_seconds().copy()
        speed = (1.0 - self.dropout) * tau_min_seconds * law.mean_inverse(self.deadline)
        np.clip(speed, 0.0, 1.0, out=speed)  # quadrature may end at 1 + 1e-16
        mean.setflags(write=False)
        speed.setflags(write=False)
        return Truth(mean_latency_seconds=mean, mean_speed=speed)

    def stationary(
        self, law: LatencyLaw, tau_min_seconds: float, *, answers: Answers | None = None
    ) -> Clients:
        """Clients whose latencies follow the same ``law`` in every round.

        ``answers`` draws latencies by that law, and the signals of answers; None for no signals.
        """
        expectation = cache(lambda: self.truth(law, tau_min_seconds))

        def clients(_round: int, rng: Generator) -> RoundDraw:
            latency, signals = (law.draw(rng), {}) if answers is None else answers(rng)
            return RoundDraw(latency_seconds=latency, expectation=expectation, signals=signals)

        return clients

    def begin(
        self,
        seed: int,
        clients: Clients | LatencyLaw,
        *,
        tau_min_seconds: float,
        groups: IntArray,
        usual_latency_seconds: FloatArray | None = None,
        columns: Mapping[str, FloatArray] | None = None,
        time: RoundTime | None = None,
        clusters: IntArray | None = None,
        num_features: int = 0,
        num_edges: int = 0,
        attributes: FloatArray | None = None,
        expected_seconds: FloatArray | None = None,
        rounds_only: str | None = None,
        drift: Drift | None = None,
    ) -> WorldRun:
        """A run of these ``clients`` with the setting's availability, deadline and data.

        ``clients`` is a function that draws a round, or the law of latencies in all rounds.
        ``time`` holds what is special about the end of a round; the setting adds the deadline,
        over-selection and clusters. ``clusters`` to ``expected_seconds`` describe the clients to
        the server, see :class:`~fedmuster.core.records.Problem`. ``rounds_only`` says why clients
        cannot be asked one by one, where that is so. ``drift`` says how fast they are at each time.
        """
        if not callable(clients):
            clients = self.stationary(clients, tau_min_seconds)
        num_clients, cohort_size = len(groups), self.cohort_size
        if cohort_size == self.unlimited_cohort:
            cohort_size = num_clients
        adversaries, columns = None, {} if columns is None else dict(columns)
        if self.adversaries is not None:
            adversaries = self.adversaries.start(num_clients, seed)
            columns["adversary"] = adversaries.mask.astype(np.float64)
        samples, quality = self.data.draw(num_clients, stream(seed, LAYOUT, DATA_KEY))
        problem = Problem(
            num_clients=num_clients,
            cohort_size=cohort_size,
            num_samples=samples,
            quality=quality,
            clusters=clusters,
            num_features=num_features,
            num_edges=num_edges,
            attributes=attributes,
            expected_seconds=expected_seconds,
        )
        return WorldRun(
            seed=seed,
            problem=problem,
            tau_min_seconds=tau_min_seconds,
            groups=groups,
            clients=clients,
            availability=self.availability.start(num_clients, seed),
            dropout=self.dropout,
            time=replace(
                RoundTime() if time is None else time,
                deadline_seconds=self.deadline,
                keep_first=None if self.over_selection == 1 else cohort_size,
                clusters=problem.clusters,
            ),
            num_to_ask=ceil_of(self.over_selection * cohort_size),
            usual_latency_seconds=usual_latency_seconds,
            forecast_accuracy=self.forecast_accuracy,
            columns=columns,
            rounds_only=rounds_only,
            drift=drift,
            adversaries=adversaries,
        )

"""What the configs of all worlds have in common."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import ceil_of
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray, IntArray, Problem, Truth
from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds.availability import Always, Availability
from fedmuster.worlds.laws.latency import LatencyLaw
from fedmuster.worlds.layout import Alike, ClientData
from fedmuster.worlds.round_time import RoundTime
from fedmuster.worlds.world import Clients, Draw, WorldRun

DATA_KEY = 1
"""Data has a layout stream of its own: with other data, the same clients are fast."""

Answers = Callable[[Generator], tuple[FloatArray, Mapping[str, FloatArray]]]
"""The round's random stream -> [K] latencies, and [K] signals by name."""

_MOST = 10**9  # of anything that is counted: more does not fit into memory


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """The fields that every world has.

    Args:
        cohort_size: m; with fewer clients available, all of them are asked.
        availability: who can be asked in a round.
        dropout: probability that a client which was asked never answers.
        deadline_seconds: when the server stops waiting; None to wait for everyone.
        over_selection: the server asks this many times m clients and keeps the first m answers,
            for example 1.3 (Oort); 1 to ask m and wait for all of them.
        data: how much data each client has.
        forecast_accuracy: how often clients are right when they say whether they will be
            available (REFL asks them). REFL's evaluation: 0.9.
    """

    hierarchical: ClassVar[bool] = False
    """Whether there are edge servers between the clients and the cloud."""
    unlimited_cohort: ClassVar[int | None] = None
    """The cohort size that stands for all clients; None where there is no such."""

    cohort_size: int
    availability: Availability = field(default_factory=Always)
    dropout: float = 0.0
    deadline_seconds: float | None = None
    over_selection: float = 1.0
    data: ClientData = field(default_factory=Alike)
    forecast_accuracy: float = 0.9

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

    @property
    def deadline(self) -> float:
        """In seconds; infinite to wait for everyone."""
        return np.inf if self.deadline_seconds is None else self.deadline_seconds

    def require_count(self, name: str) -> None:
        """Complain unless the field is an integer >= 1."""
        require(getattr(self, name) >= 1, self, name, "an integer >= 1")
        require(getattr(self, name) <= _MOST, self, name, f"at most {_MOST:,}")

    def require_positive(self, *names: str) -> None:
        """Complain unless the fields are finite numbers > 0."""
        for name in names:
            require(0 < getattr(self, name) < np.inf, self, name, "a number > 0")

    def require_range(self, name: str, *, limit: float = np.inf) -> None:
        """Complain unless the field is a pair of finite numbers in (0, limit], the lower first."""
        low, high = getattr(self, name)
        fits = 0 < low <= high <= limit and high < np.inf
        bound = "" if limit == np.inf else f" and <= {limit:g}"
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

        Args:
            law: of the latencies.
            tau_min_seconds: the shortest.
            answers: draws latencies by that law, and what else answers say; None for no more.
        """
        expectation = cache(lambda: self.truth(law, tau_min_seconds))

        def clients(_round: int, rng: Generator) -> Draw:
            latency, signals = (law.draw(rng), {}) if answers is None else answers(rng)
            return Draw(latency_seconds=latency, expectation=expectation, signals=signals)

        return clients

    def begin(
        self,
        seed: int,
        clients: Clients,
        *,
        tau_min_seconds: float,
        groups: IntArray,
        clusters: IntArray | None = None,
        cluster_delay_seconds: float = 0.0,
        num_features: int = 0,
        usual_latency_seconds: FloatArray | None = None,
        sequential: bool = False,
        attributes: FloatArray | None = None,
        expected_seconds: FloatArray | None = None,
        columns: Mapping[str, FloatArray] | None = None,
        num_edges: int = 0,
        at_least: int = 0,
        patience_seconds: float = np.inf,
        edge_seconds: float = 0.0,
    ) -> WorldRun:
        """A run of these ``clients`` with the setting's availability, deadline and data.

        See :class:`~fedmuster.worlds.world.WorldRun`, its problem and its
        :class:`~fedmuster.worlds.round_time.RoundTime` for what is handed on to them.
        """
        num_clients = len(groups)
        cohort_size = self.cohort_size
        if cohort_size == self.unlimited_cohort:
            cohort_size = num_clients
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
            time=RoundTime(
                deadline_seconds=self.deadline,
                keep_first=None if self.over_selection == 1 else cohort_size,
                clusters=problem.clusters,
                cluster_delay_seconds=cluster_delay_seconds,
                sequential=sequential,
                at_least=at_least,
                patience_seconds=patience_seconds,
                edge_seconds=edge_seconds,
            ),
            num_to_ask=ceil_of(self.over_selection * cohort_size),
            usual_latency_seconds=usual_latency_seconds,
            forecast_accuracy=self.forecast_accuracy,
            columns=columns,
        )

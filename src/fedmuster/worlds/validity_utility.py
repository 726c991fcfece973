"""The world of FedSUV's simulation: clients differ in validity and utility."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import require
from fedmuster.core.records import FloatArray
from fedmuster.core.streams import LAYOUT, stream
from fedmuster.worlds.layout import speed_groups
from fedmuster.worlds.setting import Setting
from fedmuster.worlds.world import WORLDS, WorldRun


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidityLatency:
    """In time with probability v: uniform up to the deadline, or else up to twice the deadline.

    ``validity`` [K] is ``P(tau <= deadline)``; ``floor``, the shortest latency, is in (0,
    deadline).
    """

    validity: FloatArray
    deadline: float
    floor: float

    def draw(self, rng: Generator) -> FloatArray:
        """See :class:`~fedmuster.worlds.laws.latency.LatencyLaw`."""
        valid = rng.random(len(self.validity)) < self.validity
        share = 1.0 - rng.random(len(self.validity))  # in (0, 1]: a late client is never in time
        in_time = self.deadline - (1.0 - share) * (self.deadline - self.floor)
        return np.where(valid, in_time, self.deadline * (1.0 + share))

    def mean_seconds(self) -> FloatArray:
        """See :class:`~fedmuster.worlds.laws.latency.LatencyLaw`."""
        in_time, late = 0.5 * (self.floor + self.deadline), 1.5 * self.deadline
        return self.validity * in_time + (1.0 - self.validity) * late

    def mean_inverse(self, deadline_seconds: float = np.inf) -> FloatArray:
        """See :class:`~fedmuster.worlds.laws.latency.LatencyLaw`."""
        until = min(max(deadline_seconds, self.floor), 2.0 * self.deadline)
        first = math.log(min(until, self.deadline) / self.floor) / (self.deadline - self.floor)
        second = math.log(max(until, self.deadline) / self.deadline) / self.deadline
        return self.validity * first + (1.0 - self.validity) * second


@WORLDS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class ValidityUtilityWorld(Setting):
    """Validity and utility are uniform on the unit square, and linear in known attributes.

    FedSUV's simulation (section 6.3). Client k is in time with probability ``v_k`` (before
    dropout), and the signal "utility" of a round is ``u_k + N(0, sd²)``. The server knows
    ``num_attributes`` numbers of each client: a random mixture of v and u with orthonormal columns,
    so that both are linear in them, and as well conditioned as possible.

    The paper states the number of clients and the law of (v, u); attributes, noise and latencies
    are this package's choice.

    Args:
        num_clients: K. Paper: 2500.
        cohort_size: m. Paper: 20 in its other experiments.
        deadline_seconds: when the server stops waiting. Paper: 100.
        num_attributes: how many numbers describe a client, >= 2.
        attribute_noise: standard deviation of the noise of each attribute, drawn once.
        utility_sd: standard deviation of a round's utility.
        fastest_seconds: the shortest latency.

    References:
        FedSUV: Validity and Utility-Guided Client Selection for Federated Learning, section 6.3.

    Example:
        >>> run = ValidityUtilityWorld(num_clients=40, cohort_size=5).start(seed=1)
        >>> run.problem.attributes.shape, sorted(run.columns)
        ((40, 4), ['utility', 'validity'])
    """

    name: ClassVar[str] = "validity-utility"

    num_clients: int = 2500
    cohort_size: int = 20
    deadline_seconds: float | None = 100.0
    num_attributes: int = 4
    attribute_noise: float = 0.0
    utility_sd: float = 0.1
    fastest_seconds: float = 1.0

    def __post_init__(self) -> None:
        Setting.__post_init__(self)
        self.require_count("num_clients")
        require(2 <= self.num_attributes <= 1000, self, "num_attributes", "an integer in [2, 1000]")
        self.require_not_negative("attribute_noise", "utility_sd")
        self.require_deadline()
        fits = 0 < self.fastest_seconds < self.deadline
        require(fits, self, "fastest_seconds", "a number > 0 and < deadline_seconds")

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        layout = stream(seed, LAYOUT)
        expected = layout.random((self.num_clients, 2))
        validity, utility = expected[:, 0].copy(), expected[:, 1].copy()
        mixture = np.linalg.qr(layout.standard_normal((self.num_attributes, 2))).Q
        noise = layout.standard_normal((self.num_clients, self.num_attributes))
        law = ValidityLatency(validity=validity, deadline=self.deadline, floor=self.fastest_seconds)

        def answers(rng: Generator) -> tuple[FloatArray, dict[str, FloatArray]]:
            latency = law.draw(rng)
            luck = rng.standard_normal(self.num_clients)
            return latency, {"utility": utility + self.utility_sd * luck}

        return self.begin(
            seed,
            self.stationary(law, self.fastest_seconds, answers=answers),
            tau_min_seconds=self.fastest_seconds,
            groups=speed_groups(law.mean_seconds()),
            attributes=expected @ mixture.T + self.attribute_noise * noise,
            columns={"validity": (1.0 - self.dropout) * validity, "utility": utility},
        )

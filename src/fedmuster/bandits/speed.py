"""Speed ``tau_min / tau`` (BSFL, PAUSE) and reward ``1 - tau / tau_max`` (CS-UCB) of clients."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedmuster.bandits.means import (
    Bonus,
    MeanEstimator,
    MeanState,
    SpreadState,
    check_bonus,
    confidence_radius,
    log_rounds,
    shrunk_variance,
    spread,
    variance_radius,
)
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import require, shared_settings
from fedmuster.core.records import Feedback
from fedmuster.core.state import shared

_ROUNDING = 1e-12
"""More than rounding can move a bound, relative to the numbers in it."""


@dataclass(slots=True)
class SpeedState:
    """Mean of ``1/tau`` of each client, and the smallest latency that anybody ever had."""

    inverse: MeanState
    fastest_seconds: FloatArray = shared()


def check_seconds(config: object, name: str) -> None:
    """Check a hyper-parameter that is a number of seconds > 0, or None."""
    given = getattr(config, name)
    require(given is None or 0 < given < np.inf, config, name, "seconds > 0")


def check_speed(config: object) -> None:
    """Check the hyper-parameters of a :class:`SpeedEstimator` that ``config`` has."""
    check_seconds(config, "tau_min_seconds")
    require(0 < getattr(config, "zeta", 1) < np.inf, config, "zeta", "a number > 0")
    check_bonus(config)


OfRows = Callable[[IntArray | slice], FloatArray]
"""What a number is for each client of some rows."""


@dataclass(frozen=True, slots=True)
class Tabulated:
    """A function of a whole count, with all its values that are asked for in a table."""

    count: Callable[[IntArray | slice], IntArray]
    table: FloatArray

    def __call__(self, rows: IntArray | slice) -> FloatArray:
        """The value for each client of ``rows``."""
        # "clip" spares a check of every index; there is nothing to clip.
        return np.take(self.table, self.count(rows), mode="clip")


@dataclass(frozen=True, kw_only=True, slots=True)
class UpperBounds:
    """Upper confidence bounds ``scale mean + radius``, computed for clients that are asked for."""

    radius: OfRows
    mean: FloatArray
    scale: float

    def __call__(self, rows: IntArray | slice) -> FloatArray:
        """The bounds of these clients."""
        bound = self.radius(rows)
        bound += self.mean[rows] * self.scale  # BSFL Eq. 12
        return bound

    def below(self, level: float) -> Callable[[IntArray | slice], BoolArray]:
        """A test of who is below ``level``, or at it by rounding; for ``+inf`` an exact one.

        It fails nobody whose bound is ``level`` or more, nor NaN. Where radii are tabulated, it
        compares means with what each count needs, and computes no bound.
        """
        radius, mean = self.radius, self.mean
        if level == np.inf:  # means are finite
            return lambda rows: radius(rows) < np.inf
        if not isinstance(radius, Tabulated) or self.scale == 0:
            return lambda rows: self(rows) < level
        table = radius.table
        with np.errstate(over="ignore"):  # no mean reaches more than the largest number
            needed = (level - table - _ROUNDING * (abs(level) + table)) / self.scale
        falls_short = Tabulated(radius.count, needed)
        return lambda rows: mean[rows] < falls_short(rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedEstimator:
    """Mean and upper confidence bound of the speed ``s = tau_min / tau`` (BSFL Eq. 8–12).

    ``tau_min`` is rarely known. It is kept outside the mean, so that a new running minimum
    re-scales the past for free. A client that did not complete had speed 0: if failures were not
    counted, a client that never answers would stay unseen, and be chosen for ever.

    Args:
        estimator: which samples count.
        tau_min_seconds: the shortest conceivable latency; None for the shortest seen so far.
        zeta: factor on the mean, > 1 to exploit more (PAUSE section V.D).
        bonus: "published" for ``sqrt((m+1) ln t / c)``, "variance" for ``sqrt(2 s² ln t / c)``,
            "minimax" for ``sqrt(2 s² ln+(c̄ / c) / c)``.
        scale: factor on the bonus.
    """

    estimator: MeanEstimator
    tau_min_seconds: float | None
    zeta: float = 1.0
    bonus: Bonus = "published"
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_speed(self)

    @classmethod
    def of(cls, config: object) -> Self:
        """The estimator with the hyper-parameters of a policy, where the policy has them."""
        return cls(**shared_settings(cls, config))

    def init(self, num_clients: int) -> SpeedState:
        """No client observed yet."""
        return SpeedState(
            inverse=self.estimator.init(num_clients, self.bonus), fastest_seconds=np.array(np.inf)
        )

    def update(self, state: SpeedState, feedback: Feedback) -> None:
        """Count the answers, and the missing ones, of a round."""
        answered = feedback.answered
        inverse = np.zeros(len(answered))
        np.divide(1.0, feedback.latency_seconds, out=inverse, where=answered)
        self.estimator.update(state.inverse, feedback.clients, inverse, round_=feedback.round)
        if answered.any():
            fastest = feedback.latency_seconds[answered].min()
            np.minimum(state.fastest_seconds, fastest, out=state.fastest_seconds)

    def upper_bound(
        self, state: SpeedState, rows: IntArray | slice, *, round_: int, cohort_size: int
    ) -> FloatArray:
        """``ucb(k, t-1)``, with which round t chooses; ``+inf`` for the unseen (BSFL Eq. 9, 13)."""
        most = int(state.inverse.count[rows].max(initial=0))
        bounds = self.upper_bounds(state, round_=round_, cohort_size=cohort_size, most=most)
        return bounds(rows)

    def upper_bounds(
        self, state: SpeedState, *, round_: int, cohort_size: int, most: int
    ) -> UpperBounds:
        """:meth:`upper_bound` of clients, asked at most ``most`` times, that are named later."""
        # PAUSE Eq. 13 is the same index; its large networks multiply the mean by zeta.
        return UpperBounds(
            radius=self._radius(state, round_, cohort_size, most),
            mean=state.inverse.mean,
            scale=self.zeta * self._tau_min(state),
        )

    def terms(
        self, state: SpeedState, rows: IntArray | slice, *, round_: int, cohort_size: int
    ) -> tuple[FloatArray, FloatArray]:
        """Mean speed (times zeta) and confidence radius, whose sum is the upper bound."""
        mean = state.inverse.mean[rows] * (self.zeta * self._tau_min(state))
        most = int(state.inverse.count[rows].max(initial=0))
        return mean, self._radius(state, round_, cohort_size, most)(rows)

    def spread(
        self, state: SpeedState, rows: IntArray | slice, *, round_: int
    ) -> FloatArray | None:
        """The standard deviation of the speed, as the variance bonus estimates it; else None."""
        if not isinstance(state.inverse, SpreadState):
            return None
        count = self.estimator.effective_count(state.inverse, rows, round_=round_ - 1)
        variance = state.inverse.variance[rows] * self._tau_min(state) ** 2
        return np.sqrt(shrunk_variance(count, variance))

    def _radius(self, state: SpeedState, round_: int, cohort_size: int, most: int) -> OfRows:
        inverse, horizon = state.inverse, self.estimator.horizon(round_ - 1)
        log_term = self.scale**2 * log_rounds(horizon)

        def count(rows: IntArray | slice) -> IntArray | FloatArray:
            return self.estimator.effective_count(inverse, rows, round_=round_ - 1)

        if not isinstance(inverse, SpreadState):
            log_term *= cohort_size + 1
            if self.estimator.whole and most < len(inverse.count):
                table = confidence_radius(np.arange(most + 1), log_term)
                return Tabulated(lambda rows: np.asarray(count(rows), dtype=np.int64), table)
            return lambda rows: confidence_radius(count(rows), log_term)
        usual_count = None
        if self.bonus == "minimax":
            log_term = self.scale**2
            usual_count = float(count(slice(None)).mean())
        unit = self._tau_min(state)
        return lambda rows: variance_radius(
            count(rows), inverse.variance[rows], log_term, usual_count=usual_count, unit=unit
        )

    def _tau_min(self, state: SpeedState) -> float:
        if self.tau_min_seconds is not None:
            return self.tau_min_seconds
        fastest = float(state.fastest_seconds)
        return fastest if fastest < np.inf else 0.0  # nobody answered yet: all means are 0


@dataclass(slots=True)
class LatencyState:
    """Times each client was asked and answered, its summed latency, and the longest of all."""

    asked: IntArray
    answered: IntArray
    latency_sum: FloatArray
    slowest_seconds: FloatArray = shared()


@dataclass(kw_only=True, slots=True)
class LatencySpreadState(LatencyState):
    """A :class:`LatencyState` that also keeps the variance of each client's latencies."""

    variance: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class LatencyReward:
    """Kept as counts and sums, so that a new ``tau_max`` re-scales the past for free.

    Args:
        tau_max_seconds: the longest conceivable latency; None for the longest seen so far.
        bonus: of the index; variances are kept for all but the published one.
        scale: factor on the bonus.
    """

    tau_max_seconds: float | None
    bonus: Bonus = "published"
    scale: float = 1.0

    @classmethod
    def of(cls, config: object) -> Self:
        """The reward with the hyper-parameters of a policy."""
        return cls(**shared_settings(cls, config))

    def init(self, num_clients: int) -> LatencyState:
        """No client observed yet."""
        asked = np.zeros(num_clients, dtype=np.int64)
        latency_sum, slowest = np.zeros(num_clients), np.array(0.0)
        if self.bonus == "published":
            return LatencyState(asked, asked.copy(), latency_sum, slowest)
        variance = np.zeros(num_clients)
        return LatencySpreadState(asked, asked.copy(), latency_sum, slowest, variance=variance)

    def update(self, state: LatencyState, feedback: Feedback) -> None:
        """Count the answers, and the missing ones, of a round."""
        answered = feedback.answered
        state.asked[feedback.clients] += 1
        clients, latency = feedback.clients[answered], feedback.latency_seconds[answered]
        if self.tau_max_seconds is not None:
            latency = np.minimum(latency, self.tau_max_seconds)  # a reward is never below 0
        if isinstance(state, LatencySpreadState):
            number, total = state.answered[clients] + 1, state.latency_sum[clients]
            means = total / np.maximum(number - 1, 1), (total + latency) / number
            spread(state.variance, clients, latency, means, number)
        state.answered[clients] += 1
        state.latency_sum[clients] += latency
        slowest = latency.max(initial=0.0)
        np.maximum(state.slowest_seconds, slowest, out=state.slowest_seconds)

    def mean(self, state: LatencyState, rows: IntArray | slice) -> FloatArray:
        """Mean of ``1 - tau / tau_max``; no answer earns 0, and so does a client never asked."""
        slowest = self._longest_seconds(state) or 1.0
        reward = state.answered[rows] - state.latency_sum[rows] / slowest
        return np.asarray(reward / np.maximum(state.asked[rows], 1))

    def radius(
        self, state: LatencyState, rows: IntArray | slice, *, round_: int, factor: float
    ) -> FloatArray:
        """The confidence radius of each mean; ``+inf`` for clients never asked.

        ``factor`` is that of the published radius, ``sqrt(factor ln t / z_k)``.
        """
        log_term, asked = self.scale**2 * log_rounds(round_), state.asked[rows]
        if isinstance(state, LatencySpreadState):
            variance = self._variance(state, rows)
            if self.bonus == "minimax":
                usual = float(state.asked.mean())
                return variance_radius(asked, variance, self.scale**2, usual_count=usual)
            return variance_radius(asked, variance, log_term)
        return confidence_radius(asked, factor * log_term)

    def spread(self, state: LatencyState, rows: IntArray | slice) -> FloatArray | None:
        """The standard deviation of the reward, as the variance bonus estimates it; else None."""
        if not isinstance(state, LatencySpreadState):
            return None
        return np.sqrt(shrunk_variance(state.asked[rows], self._variance(state, rows)))

    def _variance(self, state: LatencySpreadState, rows: IntArray | slice) -> FloatArray:
        """Mean squared deviation of the rewards: of answers, and of the zeros for missing ones."""
        slowest = self._longest_seconds(state) or 1.0
        answered = state.answered[rows]
        share = answered / np.maximum(state.asked[rows], 1)
        reward = 1.0 - state.latency_sum[rows] / np.maximum(answered, 1) / slowest
        between = (1.0 - share) * reward**2  # the law of total variance
        return np.asarray(share * (state.variance[rows] / slowest**2 + between))

    def mean_seconds(self, state: LatencyState, rows: IntArray | slice) -> FloatArray:
        """Mean of ``tau``; no answer took ``tau_max``, and a client never asked has 0."""
        asked = state.asked[rows]
        missing = (asked - state.answered[rows]) * self._longest_seconds(state)
        return np.asarray((state.latency_sum[rows] + missing) / np.maximum(asked, 1))

    def _longest_seconds(self, state: LatencyState) -> float:
        """``tau_max``; 0 before it is known."""
        return self.tau_max_seconds or float(state.slowest_seconds)

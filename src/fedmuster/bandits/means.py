"""Confidence radii; mean and variance of each client's samples: all, the last, or discounted."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray, tabulate
from fedmuster.core.config import check_types, require

Bonus = Literal["published", "variance", "minimax"]
"""The confidence radius of an index: the paper's, or one with the client's own variance s².

"variance" is ``sqrt(2 s² ln t / c)``, as for normal samples. "minimax" has ``ln+(c̄ / c)`` in place
of ``ln t``, with the mean count c̄ of all clients: clients observed more than most need no bonus
(MOSS).

References:
    J.-Y. Audibert, S. Bubeck, Minimax Policies for Adversarial and Stochastic Bandits, COLT 2009.
"""

_PRIOR_SAMPLES, _PRIOR_SQUARES = 2, 0.02
"""A variance is estimated as if two samples more had each been 0.1 away from the mean."""


def check_bonus(config: object) -> None:
    """Check the factor on a confidence radius that ``config`` has."""
    require(0 <= getattr(config, "scale", 1) < math.inf, config, "scale", "a number >= 0")


def confidence_radius(count: IntArray | FloatArray, log_term: float) -> FloatArray:
    """``sqrt(log_term / count)``, ``+inf`` for clients never seen (BSFL Eq. 9; PAUSE Eq. 13).

    Example:
        >>> confidence_radius(np.array([0, 1, 4]), 4.0)
        array([inf,  2.,  1.])
    """
    # ln 1 = 0 in the second round; the tiniest number keeps the unseen at +inf instead of 0/0.
    with np.errstate(divide="ignore"):
        radius = np.divide(max(log_term, np.finfo(np.float64).tiny), count)
    return np.sqrt(radius, out=radius)  # BSFL Eq. 9


def shrunk_variance(count: IntArray | FloatArray, variance: FloatArray) -> FloatArray:
    """``s² = (count · variance + 0.02) / (count + 2)``: few samples do not make anybody certain.

    Args:
        count: samples (or their total weight).
        variance: their mean squared deviation from their mean, of numbers in [0, 1].

    Example:
        >>> shrunk_variance(np.array([0, 2]), np.array([0.0, 0.03]))
        array([0.01, 0.02])
    """
    return np.asarray((count * variance + _PRIOR_SQUARES) / (count + _PRIOR_SAMPLES))


def variance_radius(
    count: IntArray | FloatArray,
    variance: FloatArray,
    log_term: float,
    *,
    usual_count: float | None = None,
    unit: float = 1.0,
) -> FloatArray:
    """``sqrt(2 s² log_term / count)`` with :func:`shrunk_variance`; ``+inf`` for the unseen.

    Args:
        count: samples (or their total weight) of each client.
        variance: their mean squared deviation from their mean.
        log_term: ``ln t``, or what ``ln+(usual_count / count)`` is multiplied by.
        usual_count: the mean count of all clients, for the minimax radius.
        unit: what a sample of 1 counts in the index.

    Example:
        >>> count, variance = np.array([0, 2]), np.array([0.0, 0.03])
        >>> variance_radius(count, variance, 4.0).round(3)
        array([  inf, 0.283])
        >>> variance_radius(count, variance, 1.0, usual_count=2 * np.e**4).round(3)
        array([  inf, 0.283])
    """
    tiny = np.finfo(np.float64).tiny  # keeps the unseen at +inf, as in confidence_radius

    def factor(count: IntArray | FloatArray) -> FloatArray:
        """What the squares of the samples and of the prior are multiplied by."""
        with np.errstate(divide="ignore"):
            factor = max(2.0 * log_term, tiny) / (count * (count + _PRIOR_SAMPLES))
            if usual_count is not None:
                factor *= np.log(np.maximum(max(usual_count, tiny) / count, 1.0))
        return np.asarray(factor)

    radius = tabulate(count, factor)
    squares = count * variance
    squares *= unit**2
    squares += _PRIOR_SQUARES
    radius *= squares
    return np.sqrt(radius, out=radius)


def spread(
    variance: FloatArray,
    clients: IntArray,
    values: FloatArray,
    means: tuple[FloatArray, FloatArray],
    weight: IntArray | FloatArray,
) -> None:
    """Update the ``variance`` of ``clients`` with one new sample of each, in place (West, 1979).

    Older samples lose weight together, so that a variance, as a mean, changes only with a new one.

    Args:
        variance: mean squared deviation of the samples of each client.
        clients: distinct.
        values: the new samples.
        means: the clients' means before and after them.
        weight: the samples (or their total weight) behind the latter.
    """
    before, after = means
    old = variance[clients]
    variance[clients] = old + ((values - before) * (values - after) - old) / weight


def log_rounds(rounds: float) -> float:
    """``ln t``, 0 before the first round is over."""
    return math.log(rounds) if rounds > 1 else 0.0


def validity_radius(delta: float) -> float:
    """alpha, how many ``||x||_{H^-1}`` the validity may be off (FedSUV Eq. 4).

    Example:
        >>> round(validity_radius(0.1), 6)
        2.358102
    """
    return 1.0 + math.sqrt(math.log(4.0 / delta) / 2.0)  # FedSUV Eq. 4


def utility_radius(num_clients: int, round_: int, delta: float) -> float:
    """The root of beta_t, how many standard deviations the utility may be off (FedSUV Eq. 5).

    Example:
        >>> round(utility_radius(2500, 1, 0.1) ** 2, 6)  # 2 ln(2500 pi² / 0.3)
        22.634957
    """
    # Two logarithms, because t² |X| would leave the floats one day.
    beta = 2.0 * (math.log(num_clients * math.pi**2 / (3.0 * delta)) + 2.0 * math.log(round_))
    return math.sqrt(beta)  # FedSUV Eq. 5


@dataclass(slots=True)
class MeanState:
    """Number of observations (``c_k``), estimated mean, and the estimator's memory."""

    count: IntArray
    mean: FloatArray
    memory: FloatArray


@dataclass(slots=True)
class SpreadState(MeanState):
    """A :class:`MeanState` that also keeps the variance of the samples behind each mean."""

    variance: FloatArray


class _Mean:
    """What the estimators of a mean share."""

    __slots__ = ()
    whole: ClassVar[bool] = True
    """Whether effective counts are whole numbers, up to the number of samples."""

    @property
    def _memory(self) -> int:
        """How many numbers of each client the estimator remembers."""
        return 0

    def init(self, num_clients: int, bonus: Bonus = "published") -> MeanState:
        """No client observed yet; variances are kept for the bonus that needs them."""
        count = np.zeros(num_clients, dtype=np.int64)
        mean, memory = np.zeros(num_clients), np.zeros((num_clients, self._memory))
        if bonus == "published":
            return MeanState(count, mean, memory)
        return SpreadState(count, mean, memory, variance=np.zeros(num_clients))

    def horizon(self, rounds: int) -> float:
        """How many rounds the confidence radius must hold over."""
        return rounds


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleMean(_Mean):
    """The mean of all samples, for clients that do not change (BSFL Eq. 8, 11)."""

    name: ClassVar[str] = "mean"

    def update(
        self, state: MeanState, clients: IntArray, values: FloatArray, *, round_: int
    ) -> None:
        """One new sample for each of ``clients`` (distinct)."""
        state.count[clients] += 1  # BSFL Eq. 10
        mean = state.mean[clients]
        state.mean[clients] = mean + (values - mean) / state.count[clients]  # BSFL Eq. 11
        if isinstance(state, SpreadState):
            means = mean, state.mean[clients]
            spread(state.variance, clients, values, means, state.count[clients])

    def effective_count(
        self, state: MeanState, rows: IntArray | slice, *, round_: int
    ) -> IntArray | FloatArray:
        """How many samples stand behind each mean."""
        return state.count[rows]


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowedMean(_Mean):
    """The mean of each client's last ``window`` samples, for clients that change abruptly.

    A window over a client's own samples rather than over rounds (as SW-UCB has it), because in a
    large fleet a client is seen every few thousand rounds only.
    """

    name: ClassVar[str] = "windowed"
    window: int = 20

    def __post_init__(self) -> None:
        check_types(self)
        require(self.window >= 1, self, "window", "an integer >= 1")

    @property
    def _memory(self) -> int:
        return self.window

    def update(
        self, state: MeanState, clients: IntArray, values: FloatArray, *, round_: int
    ) -> None:
        """One new sample for each of ``clients`` (distinct)."""
        state.memory[clients, state.count[clients] % self.window] = values
        state.count[clients] += 1
        # Slots not yet filled are 0 and do not disturb the sum.
        total = state.memory[clients].sum(axis=1)
        filled = np.minimum(state.count[clients], self.window)
        state.mean[clients] = total / filled
        if isinstance(state, SpreadState):
            squares = (state.memory[clients] - state.mean[clients, np.newaxis]) ** 2
            squares[np.arange(self.window) >= filled[:, np.newaxis]] = 0.0
            state.variance[clients] = squares.sum(axis=1) / filled

    def effective_count(
        self, state: MeanState, rows: IntArray | slice, *, round_: int
    ) -> IntArray | FloatArray:
        """How many samples stand behind each mean."""
        return np.minimum(state.count[rows], self.window)


@dataclass(frozen=True, kw_only=True, slots=True)
class DiscountedMean(_Mean):
    """A sample made n rounds ago weighs ``discount ** n``, for clients that drift (D-UCB).

    Weights and sums of a client shrink together, so its mean changes only when it is observed;
    what shrinks meanwhile is the weight, and it is enough to keep it as of the last observation.

    References:
        Garivier and Moulines, On Upper-Confidence Bound Policies for Switching Bandit Problems,
        ALT 2011.
    """

    name: ClassVar[str] = "discounted"
    whole: ClassVar[bool] = False
    discount: float = 0.99

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.discount < 1, self, "discount", "a number in (0, 1)")

    @property
    def _memory(self) -> int:
        return 2  # the weight, and the round of the last observation

    def update(
        self, state: MeanState, clients: IntArray, values: FloatArray, *, round_: int
    ) -> None:
        """One new sample for each of ``clients`` (distinct)."""
        weight = np.asarray(self.effective_count(state, clients, round_=round_) + 1.0)
        mean = state.mean[clients]
        state.mean[clients] = mean + (values - mean) / weight
        if isinstance(state, SpreadState):
            spread(state.variance, clients, values, (mean, state.mean[clients]), weight)
        state.memory[clients, 0] = weight
        state.memory[clients, 1] = round_
        state.count[clients] += 1

    def effective_count(
        self, state: MeanState, rows: IntArray | slice, *, round_: int
    ) -> IntArray | FloatArray:
        """How much weight of samples stands behind each mean."""
        # Without rounds a client may be asked again in the round in which it answered.
        age = np.maximum(round_ - state.memory[rows, 1], 0.0)
        weight: FloatArray = state.memory[rows, 0] * self.discount**age
        return weight

    def horizon(self, rounds: int) -> float:
        """The total weight of all rounds, ``(1 - discount^t) / (1 - discount)``."""
        return (1.0 - self.discount**rounds) / (1.0 - self.discount)


MeanEstimator = SampleMean | WindowedMean | DiscountedMean

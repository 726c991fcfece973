"""How a regret curve grows, and whether it stays below the bound that theory gives."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from claims.measures import number
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.report.statistics import Interval, interval

Law = Literal["logarithmic", "power", "linear"]

_POWERS = np.linspace(0.0, 2.0, 401)
_NEARLY_LINEAR = 0.05
"""An exponent this close to 1 counts as 1: no run is long enough to tell them apart."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Growth:
    """Least-squares fits of three laws to the mean of cumulative regret curves ``R(n)``.

    Args:
        log_r2: share of the variance that ``a + b ln n`` explains.
        linear_r2: share of the variance that ``a + b n`` explains.
        power_r2: share of the variance that ``a n^b`` explains, which has two parameters, too.
        power: the b of the latter.
        exponents: of each curve, the b of ``a n^b`` over the last part alone: near 1 for linear
            growth, towards 0 for logarithmic growth.
    """

    log_r2: float
    linear_r2: float
    power_r2: float
    power: float
    exponents: FloatArray

    @property
    def exponent(self) -> Interval:
        """The last exponent, with its interval over the curves."""
        return interval(self.exponents)

    @property
    def law(self) -> Law:
        """The law that fits best; a power of (nearly) 1 is linear growth."""
        if self.power_r2 <= max(self.log_r2, self.linear_r2):
            return "logarithmic" if self.log_r2 > self.linear_r2 else "linear"
        last = self.exponent
        unsure = np.fmax(last.half_width, _NEARLY_LINEAR)  # NaN for a single curve
        return "linear" if abs(last.mean - 1.0) <= unsure else "power"

    @property
    def text(self) -> str:
        """The law, and how well all fit."""
        name = f"n^{self.power:.2f}" if self.law == "power" else self.law
        return (
            f"{name} fits best (R² {self.log_r2:.3f} for ln n, {self.linear_r2:.3f} for n, "
            f"{self.power_r2:.3f} for n^{self.power:.2f}; last exponent {self.last})"
        )

    @property
    def last(self) -> str:
        """The last exponent in words."""
        last = self.exponent
        return f"{last.mean:.2f}" if math.isnan(last.half_width) else number(last, 2)


def growth(cumulative: FloatArray, *, first_round: int) -> Growth:
    """Fit all laws from ``first_round`` on, with every decade of n weighing alike.

    Points evenly spaced in ln n: points evenly spaced in n would let the last decade decide alone.
    The last exponents are slopes of ``ln R`` over ``ln n`` on the last factor of four.

    Args:
        cumulative: [rounds], or [seeds, rounds].
        first_round: the first round that counts.
    """
    curves = np.atleast_2d(cumulative)
    rounds = curves.shape[1]
    n = np.unique(np.geomspace(first_round, rounds, 400).astype(np.int64))
    regret = curves.mean(axis=0)[n - 1]
    late = n[n >= rounds // 4]
    power, power_r2 = _power(n, regret)
    return Growth(
        log_r2=_explained(np.log(n), regret),
        linear_r2=_explained(n.astype(np.float64), regret),
        power_r2=power_r2,
        power=power,
        exponents=np.array([_exponent(late, curve[late - 1]) for curve in curves]),
    )


def theorem_1_use(
    gaps: FloatArray, *, num_clients: int, cohort_size: int, alpha: float, speed_range: float
) -> float:
    """The largest share of Theorem 1's bound that a run of BSFL used, at any round (BSFL Eq. 15).

    The theorem supposes that rewards are quantised in steps of Delta_min and counts the rounds
    with a positive gap. Its proof holds as it stands for the rounds with a gap of at least delta,
    for any delta in place of Delta_min, so every delta gives a bound to check:
    ``sum of gaps >= delta  <=  Delta_max K (4 (m+1) ln n / delta^2 + 1 + pi^2 / 3)``.
    A result above 1 would contradict the theorem (which bounds the expectation).
    """
    largest_gap = 2 * alpha + speed_range  # Delta_max, after BSFL Eq. 14
    rounds = np.arange(1, len(gaps) + 1)
    use = 0.0
    for delta in np.quantile(gaps[gaps > 0], np.linspace(0, 1, 50)) if (gaps > 0).any() else []:
        regret = np.cumsum(np.where(gaps >= delta, gaps, 0.0))
        exploration = 4 * (cohort_size + 1) * np.log(rounds) / delta**2
        bound = largest_gap * num_clients * (exploration + 1 + math.pi**2 / 3)  # BSFL Eq. 15
        use = max(use, float((regret / bound).max()))
    return use


def share_used(gaps: FloatArray, bound: Callable[[FloatArray], FloatArray]) -> float:
    """The largest share of a bound on regret that a run with these gaps used, at any round."""
    rounds = np.arange(1.0, len(gaps) + 1)
    return float((np.cumsum(gaps) / bound(rounds)).max())


def first_informative_round(bound: Callable[[FloatArray], FloatArray], largest_gap: float) -> float:
    """The round from which a bound on regret is below ``n largest_gap``, which is always true.

    The bound must grow more slowly than n: the iteration then falls to where the two cross.
    """
    rounds = np.array(1e60)
    for _ in range(200):
        rounds = bound(rounds) / largest_gap
    return float(rounds)


def _exponent(n: IntArray, regret: FloatArray) -> float:
    """The slope of ``ln R`` over ``ln n``; 0 without regret."""
    some = regret > 0
    if np.count_nonzero(some) < 2:
        return 0.0
    return float(np.polyfit(np.log(n[some]), np.log(regret[some]), 1)[0])


def _power(n: IntArray, regret: FloatArray) -> tuple[float, float]:
    """The b of the best ``a n^b``, and its share of the variance."""
    curves = n ** _POWERS[:, np.newaxis]
    factors = curves @ regret / (curves**2).sum(axis=1)  # the best a of each b
    residuals = ((regret - factors[:, np.newaxis] * curves) ** 2).sum(axis=1)
    best = int(residuals.argmin())
    return float(_POWERS[best]), _share(float(residuals[best]), regret)


def _explained(x: FloatArray, y: FloatArray) -> float:
    residual = y - np.polyval(np.polyfit(x, y, 1), x)
    return _share(float((residual**2).sum()), y)


def _share(squares: float, y: FloatArray) -> float:
    """The share of the variance of ``y`` that a fit with this sum of squared residuals explains."""
    spread = float(((y - y.mean()) ** 2).sum())
    return 1.0 - squares / spread if spread > 0 else 1.0

"""How a regret curve grows, and whether it stays below the bound that theory gives."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedmuster.core.records import FloatArray


class Growth(NamedTuple):
    """Least-squares fits of two laws to a cumulative regret curve ``R(n)``.

    ``log_r2`` and ``linear_r2`` are the shares of variance that ``a + b ln n`` and ``a + b n``
    explain; ``exponent`` is that of a power law over the last part of the curve: near 1 for
    linear growth, towards 0 for logarithmic growth.
    """

    log_r2: float
    linear_r2: float
    exponent: float

    @property
    def law(self) -> str:
        """The law that fits better."""
        return "logarithmic" if self.log_r2 > self.linear_r2 else "linear"

    @property
    def text(self) -> str:
        """The law, and how well both fit."""
        return (
            f"{self.law} fits better (R² {self.log_r2:.3f} for ln n, {self.linear_r2:.3f} for n; "
            f"last exponent {self.exponent:.2f})"
        )


def growth(cumulative: FloatArray, *, first_round: int) -> Growth:
    """Fit both laws from ``first_round`` on, with every decade of n weighing alike.

    Points evenly spaced in ln n: points evenly spaced in n would let the last decade decide alone.
    The exponent is fitted on the last factor of four.
    """
    last = len(cumulative)
    n = np.unique(np.geomspace(first_round, last, 400).astype(np.int64))
    regret = cumulative[n - 1]
    tail = (n >= last // 4) & (regret > 0)
    exponent = 0.0
    if np.count_nonzero(tail) > 1:
        exponent = float(np.polyfit(np.log(n[tail]), np.log(regret[tail]), 1)[0])
    return Growth(
        log_r2=_explained(np.log(n), regret),
        linear_r2=_explained(n.astype(np.float64), regret),
        exponent=exponent,
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


def _explained(x: FloatArray, y: FloatArray) -> float:
    residual = y - np.polyval(np.polyfit(x, y, 1), x)
    spread = float(((y - y.mean()) ** 2).sum())
    return 1.0 - float((residual**2).sum()) / spread if spread > 0 else 1.0

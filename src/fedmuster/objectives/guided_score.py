"""Oort's score of an explored client: what its data are worth, how long ago, and how slow it is."""

import math
from dataclasses import dataclass

import numpy as np

from fedmuster.core.blocks import blocks
from fedmuster.core.records import FloatArray, IntArray

_BELOW = 0.999
"""So that the least useful is not worth nothing, and equals are all worth 1 (authors' code)."""


Known = tuple[FloatArray, FloatArray, IntArray, int, float]
"""Utility, seconds and last round of some clients, this round, preferred seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GuidedScore:
    """``(u + sqrt(staleness ln t / L)) (T / D)^alpha``, the last factor only where ``D > T``.

    What Alg. 1 of Oort calls Util: u is the utility, clipped and scaled to (0, 1] among those who
    are scored. Both methods take the same five arguments, of n clients: ``utility`` [n] when each
    was last asked, ``seconds`` [n], D, how long it took then (0 if unknown), ``last_round`` [n],
    L, when that was, ``round_``, t, and ``preferred_seconds``, T (+inf if nobody is too slow).

    Args:
        clip: utility is clipped at the value that this share of all are below.
        staleness: weight of the second term.
        slow_penalty: alpha.

    Example:
        >>> known = np.array([4.0, 4.0]), np.array([1.0, 2.0]), np.array([1, 1]), 1, 1.0
        >>> score = GuidedScore(clip=0.95, staleness=0.1, slow_penalty=2.0)
        >>> score.of(*known).round(6)
        array([1.  , 0.25])
        >>> list(score.terms(*known))
        ['score', 'statistical_utility', 'staleness_bonus', 'speed_factor']
    """

    clip: float
    staleness: float
    slow_penalty: float

    def of(
        self,
        utility: FloatArray,
        seconds: FloatArray,
        last_round: IntArray,
        round_: int,
        preferred_seconds: float,
    ) -> FloatArray:
        """[n], the scores."""
        score = np.empty(len(utility))
        low, high = self._range(utility)
        for block in blocks(len(utility)):
            part = _scaled(utility[block], low, high)
            part += self._staleness(last_round[block], round_)
            if preferred_seconds < math.inf:
                part *= self._speed_factor(seconds[block], preferred_seconds)
            score[block] = part
        return score

    def terms(
        self,
        utility: FloatArray,
        seconds: FloatArray,
        last_round: IntArray,
        round_: int,
        preferred_seconds: float,
    ) -> dict[str, FloatArray]:
        """[n] by name: "score", and what it is made of: two terms add up, the third multiplies."""
        factor = np.ones(len(utility))
        if preferred_seconds < math.inf:
            factor = self._speed_factor(seconds, preferred_seconds)
        return {
            "score": self.of(utility, seconds, last_round, round_, preferred_seconds),
            "statistical_utility": _scaled(utility, *self._range(utility)),
            "staleness_bonus": self._staleness(last_round, round_),
            "speed_factor": factor,
        }

    def _range(self, utility: FloatArray) -> tuple[float, float]:
        """Which utilities count as 0 and as 1."""
        return _BELOW * float(utility.min(initial=math.inf)), value_at(utility, self.clip)

    def _staleness(self, last_round: IntArray, round_: int) -> FloatArray:
        """``sqrt(staleness ln t / L)`` (Oort Alg. 1): how long ago."""
        urgency = self.staleness * math.log(round_)
        return np.asarray(np.sqrt(urgency / last_round))

    def _speed_factor(self, seconds: FloatArray, preferred_seconds: float) -> FloatArray:
        """``(T / D)^alpha`` where ``D > T`` (Oort Alg. 1): how slow."""
        slowness = preferred_seconds / np.maximum(seconds, preferred_seconds)
        return np.asarray(slowness**self.slow_penalty)


def _scaled(utility: FloatArray, low: float, high: float) -> FloatArray:
    """u, clipped and scaled as in the authors' code."""
    part = np.minimum(utility, high)
    part -= low
    part /= (high - low) or 1.0  # 0 if all are
    return part


def preferred_seconds(seconds: FloatArray, percentile: float) -> float:
    """T, the R-th percentile of all known durations (> 0); +inf, nobody is too slow, from 100 on.

    Example:
        >>> preferred_seconds(np.array([0.0, 4.0, 1.0, 3.0, 2.0]), 50.0)
        3.0
    """
    if percentile >= 100.0:
        return math.inf
    known = seconds > 0
    return value_at(seconds if known.all() else seconds[known], percentile / 100)


def value_at(values: FloatArray, share: float) -> float:
    """The value that this share of the ``values`` are below, without sorting them.

    It is one of them: number ``min(floor(share n), n - 1)`` in increasing order, counted from 0;
    ``+inf`` where there are none.

    Example:
        >>> value_at(np.array([4.0, 1.0, 3.0, 2.0]), 0.5)
        3.0
    """
    if len(values) == 0:
        return math.inf
    rank = min(int(share * len(values)), len(values) - 1)
    return float(np.partition(values, rank)[rank])

"""Oort's score of an explored client: what its data are worth, how long ago, and how slow it is."""

import math

import numpy as np

from fedmuster.core.blocks import blocks
from fedmuster.core.records import FloatArray, IntArray

_BELOW = 0.999
"""So that the least useful is not worth nothing, and equals are all worth 1 (authors' code)."""


def guided_score(
    utility: FloatArray,
    seconds: FloatArray,
    last_round: IntArray,
    round_: int,
    preferred_seconds: float,
    *,
    clip: float,
    staleness: float,
    slow_penalty: float,
) -> FloatArray:
    """``(u + sqrt(staleness ln t / L)) (T / D)^alpha``, the last factor only where ``D > T``.

    What Alg. 1 of Oort calls Util: u is the utility, clipped and scaled to (0, 1] among those who
    are scored.

    Args:
        utility: [n], of each client when it was last asked.
        seconds: [n], D, how long it took then; 0 if unknown.
        last_round: [n], L, when that was.
        round_: t.
        preferred_seconds: T; +inf if nobody is too slow.
        clip: utility is clipped at the value that this share of all are below.
        staleness: weight of the second term.
        slow_penalty: alpha.

    Example:
        >>> utility, seconds, last_round = np.array([4.0, 4.0]), np.array([1.0, 2.0]), np.ones(2)
        >>> known = utility, seconds, last_round.astype(int), 1, 1.0
        >>> guided_score(*known, clip=0.95, staleness=0.1, slow_penalty=2.0).round(6)
        array([1.  , 0.25])
    """
    score = np.empty(len(utility))
    if len(utility) == 0:
        return score
    high, low = value_at(utility, clip), _BELOW * float(utility.min())
    span = (high - low) or 1.0  # 0 if all are
    urgency = staleness * math.log(round_)
    for block in blocks(len(utility)):
        part = np.minimum(utility[block], high)
        part -= low
        part /= span  # scaled as in the authors' code
        part += np.sqrt(urgency / last_round[block])  # Oort Alg. 1: how long ago
        if preferred_seconds < math.inf:  # Oort Alg. 1: how slow
            slowness = preferred_seconds / np.maximum(seconds[block], preferred_seconds)
            part *= slowness**slow_penalty
        score[block] = part
    return score


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

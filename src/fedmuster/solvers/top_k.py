"""The k largest of a million values, fair to ties; weighted draws; cohorts made of them."""

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import DataError
from fedmuster.core.records import RoundView, Selection

_SAMPLE_STRIDE = 31
_LARGE = 1 << 14


def top_k(values: FloatArray, count: int, rng: Generator) -> IntArray:
    """Positions of the ``count`` largest values, increasing.

    Values tied at the boundary are chosen among uniformly. Infinities are values like others.

    Example:
        >>> top_k(np.array([3.0, np.inf, 1.0, 2.0]), 2, np.random.default_rng(0))
        array([0, 1])
    """
    if not 0 <= count <= len(values):
        raise DataError(f"top_k: count is {count}, expected 0 … {len(values)}")
    if count == 0:
        return np.empty(0, dtype=np.int64)
    if np.isnan(np.maximum.reduce(values)):  # a maximum hands a NaN on
        raise DataError("top_k: values hold NaN, which cannot be ordered")
    if count == len(values):
        return np.arange(count)
    bar = _kth_largest(values, count)
    reaching = values >= bar
    if np.count_nonzero(reaching) == count:
        return np.flatnonzero(reaching)  # no tie at the boundary
    at_bar, above = values == bar, np.flatnonzero(values > bar)
    num_tied = int(np.count_nonzero(at_bar))
    drawn = rng.choice(num_tied, count - len(above), replace=False, shuffle=False)
    if num_tied < len(values):  # else a list of all is long, and says nothing
        drawn = np.flatnonzero(at_bar)[drawn]
    return np.sort(np.concatenate((above, drawn)))


def _kth_largest(values: FloatArray, count: int) -> float:
    sample = values[::_SAMPLE_STRIDE]
    if len(values) > _LARGE and len(sample) >= count:
        # The k-th largest of a part is at most the k-th largest of all; if fewer than k values
        # exceed it, it is the k-th largest of all.
        bar = np.partition(sample, -count)[-count]
        above = values[np.flatnonzero(values > bar)]
        if len(above) < count:
            return float(bar)
        values = above
    return float(np.partition(values, -count)[-count])


def weighted_draw(weights: FloatArray, count: int, rng: Generator) -> IntArray:
    """``count`` positions, drawn one by one in proportion to the ``weights`` (>= 0) that are left.

    The first arrivals ``E_k / w_k``: an exponential race is won in proportion to the rate, and so
    is the race of the others after it (Efraimidis and Spirakis 2006). Weights of 0 come last, in
    random order.

    Example:
        >>> weighted_draw(np.array([0.0, 2.0, 0.0, 1.0]), 2, np.random.default_rng(0))
        array([1, 3])
    """
    arrival = rng.standard_exponential(len(weights))
    np.divide(arrival, weights, out=arrival, where=weights > 0)
    arrival[weights == 0] = np.inf
    return top_k(-arrival, count, rng)


def draw_near_top(scores: FloatArray, count: int, cut_off: float, rng: Generator) -> IntArray:
    """``count`` positions in proportion to ``scores`` (>= 0), without those far below the best.

    A client is admitted if it has at least ``cut_off`` (in [0, 1]) times the score at rank
    ``count``, so at least ``count`` clients are (Oort, Alg. 1).

    Example:
        >>> draw_near_top(np.array([0.1, 5.0, 4.0, 3.0]), 2, 0.95, np.random.default_rng(0))
        array([1, 2])
    """
    if count == 0:
        return np.empty(0, dtype=np.int64)
    bar = cut_off * float(scores[top_k(scores, count, rng)].min())
    admitted = np.flatnonzero(scores >= bar)
    return admitted[weighted_draw(scores[admitted], count, rng)]


def highest(
    view: RoundView, candidates: IntArray | slice, scores: FloatArray, rng: Generator
) -> Selection:
    """The candidates with the highest scores."""
    return Selection.of(view, candidates, top_k(scores, view.num_to_choose, rng))


def filled_up(view: RoundView, chosen: IntArray, first: BoolArray, rng: Generator) -> Selection:
    """``chosen``, and as many others as are missing, drawn uniformly: ``first`` (bool[K]) first."""
    missing = view.num_to_choose - len(chosen)
    if missing > 0:
        others = np.setdiff1d(np.flatnonzero(view.available), chosen)
        added = others[top_k(first[others].astype(np.float64), missing, rng)]
        chosen = np.concatenate([chosen, added])
    return Selection.of(view, slice(None), chosen)


def nobody(view: RoundView) -> Selection:
    """The empty cohort, for a round in which no client is available."""
    return Selection.of(view, slice(None), np.empty(0, dtype=np.int64))

"""Pareto fronts of two objectives, both maximised, in O(n log n)."""

import numpy as np

from fedmuster.core.errors import DataError
from fedmuster.core.records import BoolArray, FloatArray

Points = tuple[FloatArray, FloatArray]
"""n points of the plane, as two columns of n numbers."""

_LARGE = 1 << 14
_SAMPLE_STRIDE = 101


def pareto_front(values: FloatArray) -> BoolArray:
    """Which rows of ``values`` ([n, 2]) are Pareto-optimal; of equal points all are or none.

    A point is not if another is at least as good in both objectives and better in one.

    Example:
        >>> pareto_front(np.array([[0.2, 0.9], [0.9, 0.2], [0.2, 0.8], [0.1, 0.1]]))
        array([ True,  True, False, False])
    """
    first, second = values[:, 0], values[:, 1]
    _refuse_nan("pareto_front", first, second)
    return _is_step(_staircase(first, second), first, second)


def dominated_boxes(low: Points, high: Points) -> BoolArray:
    """Which boxes are certainly no better than another one (FedSUV, section 4.4).

    ``low`` and ``high`` are the worst and best corners. Box x is dominated if the worst corner of
    another box x' is at least as good in both objectives as its best: ``max R(x) ⪯ min R(x')``.
    That can hold both ways only between boxes that are one and the same point. Of those
    the paper's pseudo-code, which removes one after another, keeps the last; here equal points do
    not dominate each other, so that the answer does not depend on the order of clients. In every
    other case the two agree, because dominance is transitive: a removed box that dominates another
    is itself dominated by a box that stays.

    Example:
        >>> low = np.array([0.5, 0.0, 0.4]), np.array([0.5, 0.0, 0.4])
        >>> high = np.array([0.9, 0.5, 0.6]), np.array([0.9, 0.4, 0.6])
        >>> dominated_boxes(low, high)
        array([False,  True, False])
    """
    _refuse_nan("dominated_boxes", *low, *high)
    answer = np.zeros(len(low[0]), dtype=np.bool_)
    if len(answer) == 0:
        return answer
    stairs = _staircase(*low)
    # Most boxes reach beyond every worst corner in one objective, and need no search.
    rows = np.flatnonzero((high[0] <= stairs[0][-1]) & (high[1] <= stairs[1][0]))
    corner = high[0][rows], high[1][rows]
    beaten = _is_below(stairs, *corner)
    # A box that is a point reaches its own worst corner. On a step, nothing better is in sight;
    # it is dominated there only by a box that begins at this point and reaches beyond it.
    alone = (low[0][rows] == corner[0]) & (low[1][rows] == corner[1]) & _is_step(stairs, *corner)
    if alone.any():
        extended = (low[0] < high[0]) | (low[1] < high[1])
        beginning = _staircase(low[0][extended], low[1][extended])
        beaten[alone] = _is_below(beginning, corner[0][alone], corner[1][alone])
    answer[rows] = beaten
    return answer


def _staircase(first: FloatArray, second: FloatArray) -> Points:
    """The front from left to right: ``second`` decreases, while ``first`` does not.

    Of several steps with the same ``first``, the first one is the highest, and the one that counts.
    """
    if len(first) > _LARGE:
        # The front of a sample lies below that of all and drops nearly everybody unsorted.
        stairs = _sorted_staircase(first[::_SAMPLE_STRIDE], second[::_SAMPLE_STRIDE])
        above = np.flatnonzero(~_is_below(stairs, first, second))
        first = np.concatenate((stairs[0], first[above]))
        second = np.concatenate((stairs[1], second[above]))
    return _sorted_staircase(first, second)


def _sorted_staircase(first: FloatArray, second: FloatArray) -> Points:
    order = np.argsort(first)[::-1]
    first, highest = first[order], np.maximum.accumulate(second[order])
    step = np.ones(len(first), dtype=np.bool_)
    step[1:] = highest[1:] > highest[:-1]
    return first[step][::-1], highest[step][::-1]


def _is_below(stairs: Points, first: FloatArray, second: FloatArray) -> BoolArray:
    """Whether a step is at least as good in both objectives."""
    # Of the steps that are as good in the first, the leftmost is the best in the second. Right of
    # all steps there is none: a comparison with NaN is false.
    best_second = np.append(stairs[1], np.nan)
    return np.asarray(best_second[np.searchsorted(stairs[0], first, side="left")] >= second)


def _is_step(stairs: Points, first: FloatArray, second: FloatArray) -> BoolArray:
    """Whether the point itself is a step."""
    if len(first) == 0:
        return np.zeros(0, dtype=np.bool_)
    place = np.minimum(np.searchsorted(stairs[0], first, side="left"), len(stairs[0]) - 1)
    return np.asarray((stairs[0][place] == first) & (stairs[1][place] == second))


def _refuse_nan(who: str, *columns: FloatArray) -> None:
    for column in columns:
        if len(column) > 0 and np.isnan(np.maximum.reduce(column)):  # a maximum hands a NaN on
            raise DataError(f"{who}: values hold NaN, which cannot be ordered")

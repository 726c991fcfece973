"""Who of a million can be among the first m, when less is better in two respects.

A candidate *precedes* another if it is at least as good in both respects and better in one, or if
they are equal and chance says so. Whoever m others precede is never needed: whatever increasing
function of the two is made small, one of the m who is still there makes it smaller.
"""

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import FloatArray, IntArray

_FEW = 1_000
"""So few candidates are looked at faster than sifted."""
_STRIDES = (31, 1)
"""Sifted coarsely with the help of a sample, then finely. Odd, as periods of two are common."""


def contenders(first: FloatArray, second: FloatArray, size: int, rng: Generator) -> IntArray:
    """All candidates whom fewer than ``size`` others precede, and perhaps some more.

    Args:
        first: of each candidate, finite.
        second: of each candidate, finite.
        size: m, at least 1 and at most the number of candidates.
        rng: orders equals.

    Returns:
        Positions in the order of ``first``, then of ``second``, then of chance.

    Example:
        >>> first, second = np.array([2.0, 1.0, 3.0, 1.0]), np.array([5.0, 6.0, 4.0, 5.0])
        >>> contenders(first, second, 2, np.random.default_rng(0))
        array([3, 1, 0, 2])
    """
    best = np.flatnonzero((first == first.min()) & (second == second.min()))
    if len(best) >= size:  # as at first, when nothing is known of anybody
        return rng.choice(best, size, replace=False)
    near = rng.permutation(_sift(first, second, size))
    order = near[np.lexsort((second[near], first[near]))]
    return order if len(order) <= _FEW else order[_staircase(second[order], size)]


def _sift(first: FloatArray, second: FloatArray, size: int) -> IntArray:
    """All but those whom m candidates near the best corner precede: no sorting."""
    near, x, y = np.arange(len(first)), first, second
    for stride in _STRIDES:
        if len(near) <= _FEW or len(near) < stride * size:
            continue  # not worth it, or not m candidates in a sample
        a, b = _corner(x[::stride], y[::stride], size)
        # At (a, b) itself somebody may be one of the m, or equal to one.
        kept = np.flatnonzero((x < a) | (y < b) | ((x == a) & (y == b)))
        near, x, y = near[kept], x[kept], y[kept]
    return near


def _corner(x: FloatArray, y: FloatArray, size: int) -> tuple[float, float]:
    """The upper right corner of a box that holds m candidates, few of them alone in x or y."""
    distance = np.maximum(_scaled(x), _scaled(y))
    inside = distance <= np.partition(distance, size - 1)[size - 1]
    return x[inside].max(), y[inside].max()


def _scaled(values: FloatArray) -> FloatArray:
    """From 0 on, with mean 1, so that both respects count alike. (Any scale would be right.)"""
    least = values.min()
    spread = values.mean() - least
    return np.asarray((values - least) / (spread if spread > 0 else 1.0))


def _staircase(values: FloatArray, size: int) -> IntArray:
    """Positions of the first m and of all values smaller than the m-th smallest before them.

    The m-th smallest is kept up to date at powers of two only: a few steps, and a few more pass.
    """
    kept = [np.arange(size)]
    smallest = values[:size]
    start = size
    while start < len(values):
        rows = start + np.flatnonzero(values[start : 2 * start] < smallest.max())
        kept.append(rows)
        smallest = np.partition(np.concatenate((smallest, values[rows])), size - 1)[:size]
        start *= 2
    return np.concatenate(kept)

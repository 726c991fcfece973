"""Find the best thresholds of a million clients without sorting them.

A strided sample is solved first, recursively. Its optimum bounds the best energy from below, and
the m-th largest weights along its sweep bound those of all clients from below. Whoever cannot
matter by these bounds is dropped; the few that remain are swept. The pivots found are exactly
those of all clients.
"""

from math import isqrt

import numpy as np

from fedmuster.core.records import BoolArray, FloatArray, IntArray
from fedmuster.solvers.sweep import Field, Frontier, compact, leading_weight, sweep

FEW = 2_000
"""So few clients are sorted faster than pruned."""

_BINS = 1_024
_ROUNDING = 1e-10
_TINY = 1e-290  # below, _BINS / span would overflow


def best_thresholds(field: Field) -> Frontier:
    """The frontier of a field, reliable at and above every threshold that could be best."""
    num_clients = len(field.bottleneck)
    # About stride * m clients survive a sample of n / stride: the two are balanced here.
    # Odd, because periods of two are common among client numbers.
    stride = max(2, isqrt(num_clients // field.size) // 2) | 1
    if num_clients <= FEW or num_clients < 4 * stride * field.size:
        return sweep(field)
    sample = best_thresholds(field.part(slice(None, None, stride)))
    lowest = _lowest_threshold(field, sample)
    near = np.flatnonzero(field.bottleneck >= lowest)
    candidates = field.part(near)
    if len(near) > FEW:
        sampled = np.zeros(num_clients, dtype=np.bool_)
        sampled[::stride] = True
        keep = _undominated(candidates, sampled[near], sample, lowest)
        candidates = candidates.part(np.flatnonzero(keep))
    return sweep(candidates)


def _lowest_threshold(field: Field, sample: Frontier) -> float:
    """No threshold below this can be best.

    At threshold t the energy is at most t + the largest mean of m adjusted weights, and the
    latter at most max w, less the charges that are due when there are fewer than m clusters.
    """
    mean = float(np.maximum.reduce(field.weight))
    if field.clusters is not None:
        _, num_clusters = compact(field.clusters)
        mean -= field.charge * max(0, field.size - num_clusters) / field.size
    scale = abs(sample.best) + abs(sample.pivots[0]) + abs(mean)
    return sample.best - mean - _ROUNDING * scale


def _undominated(field: Field, sampled: BoolArray, sample: Frontier, lowest: float) -> BoolArray:
    """Who can change the m largest adjusted weights at some threshold.

    A client with m values of the sample at or above its own u and no smaller than its own value
    changes nothing, as the m-th largest value never falls when clients are added. The sample's
    own clients stay when they are equal to a bar, for they are those who set it.
    """
    u, w = field.bottleneck, field.weight
    levels, bars = np.array(sample.levels)[::-1], np.array(sample.bars)[::-1]
    bar = _bars_above(u, levels, bars, lowest)
    pivot = sample.pivots[0]
    low = u <= pivot
    np.maximum(bar, bars[np.searchsorted(levels, pivot)], out=bar, where=low)

    def beats(values: FloatArray, others: FloatArray) -> BoolArray:
        return np.asarray((values > others) | (sampled & (values == others)))

    keep = beats(w, bar)
    if field.clusters is not None:
        # Who is behind its cluster's leader among the sample above the pivot pays the charge.
        labels, num_clusters = compact(field.clusters)
        above = np.flatnonzero(sampled & (u >= pivot))
        leader = leading_weight(w[above], labels[above], num_clusters)
        keep &= beats(w - field.charge, bar) | beats(w, leader[labels]) | ~low
    return keep


def _bars_above(u: FloatArray, levels: FloatArray, bars: FloatArray, lowest: float) -> FloatArray:
    """For each u the bar of a level above it, ``-inf`` where there is none (levels increase).

    Looked up in equal bins of u, as a binary search for each is slow. Putting into bins is
    monotone even when rounded, so a level of a higher bin is above every u of a lower bin.
    """
    span = levels[-1] - lowest
    if not span > _TINY:
        return np.full(len(u), -np.inf)

    def bins(values: FloatArray) -> IntArray:
        return np.minimum((values - lowest) * (_BINS / span), _BINS - 1).astype(np.int64)

    next_level = np.searchsorted(bins(levels), np.arange(_BINS), side="right")
    table: FloatArray = np.append(bars, -np.inf)[next_level]
    return table[bins(u)]

"""The exact solver of the bottleneck problem, for any number of clients.

The papers hold BSFL Eq. 13 and PAUSE Eq. 22 to be infeasible beyond small networks. They are
not: see :mod:`fedmuster.solvers.sweep`.
"""

from dataclasses import dataclass
from math import isqrt
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.solvers.instance import Instance, check_values
from fedmuster.solvers.sweep import Field, Frontier, adjusted, compact, leading_weight, sweep
from fedmuster.solvers.top_k import top_k

FEW = 2_000
"""So few clients are sorted faster than pruned."""
COHORTS_IN_SAMPLE = 4
"""A sample of fewer cohorts would bound next to nothing."""

_BINS = 1_024
_CHUNK = 1 << 15  # a few arrays of this length stay in cache
_ROUNDING = 1e-10
_TINY = 1e-290  # a shorter span of u would overflow the number of bins per unit


def best_thresholds(field: Field) -> tuple[list[float], IntArray | slice]:
    """Every threshold on u that reaches the optimum, and an index of all clients above them."""
    frontier, near = _search(field)
    return frontier.pivots, near


def _search(field: Field) -> tuple[Frontier, IntArray | slice]:
    num_clients = len(field.bottleneck)
    # About stride * m clients survive a sample of n / stride: the two are balanced here.
    # Odd, because periods of two are common among client numbers.
    stride = max(2, isqrt(num_clients // field.size) // 2) | 1
    if num_clients <= FEW or num_clients < COHORTS_IN_SAMPLE * stride * field.size:
        return sweep(field), slice(None)
    sample, _ = _search(field.part(slice(None, None, stride)))
    # At threshold t the energy is at most t + ceiling, so below this no threshold can be best.
    scale = abs(sample.best) + abs(sample.pivots[0]) + abs(field.ceiling)
    lowest = sample.best - field.ceiling - _ROUNDING * scale
    near = np.flatnonzero(field.bottleneck >= lowest)
    if len(near) <= FEW:
        return sweep(field.part(near)), near
    sieve = _Sieve(field, stride, sample, lowest)
    contenders = sieve.sift(near)
    if len(contenders) > _CHUNK:
        sieve.narrow(contenders, sample.best - _ROUNDING * scale)
        contenders = sieve.sift(contenders)
    return sweep(field.part(contenders)), near


class _Sieve:
    """Holds back clients that change the m largest adjusted weights at no threshold.

    A client with m values of the sample at or above its own u and no smaller than its own value
    changes nothing, as the m-th largest value never falls when clients are added. The sample's
    own clients pass when they equal a bar, for they are those who set it.
    """

    def __init__(self, field: Field, stride: int, sample: Frontier, lowest: float) -> None:
        self.field, self.pivot, self.lowest = field, sample.pivots[0], lowest
        self.sampled = np.zeros(len(field.weight), dtype=np.bool_)
        self.sampled[::stride] = True
        levels, bars = sample.levels[::-1], sample.bars[::-1]
        self.pivot_bar = bars[np.searchsorted(levels, self.pivot)]
        # Bars are looked up in equal bins of u, as a binary search for each client is slow.
        # Putting into bins is monotone even when rounded, so a level of a higher bin is above
        # every u of a lower one.
        span = max(float(levels[-1]) - lowest, _TINY)
        self.bins_per_unit = _BINS / span
        next_level = np.searchsorted(self._bins(levels), np.arange(_BINS), side="right")
        self.bars: FloatArray = np.append(bars, -np.inf)[next_level]
        if field.clusters is not None:
            self.labels, num_clusters = compact(field.clusters)
            above = stride * np.flatnonzero(field.bottleneck[::stride] >= self.pivot)
            self.leader = leading_weight(field.weight[above], self.labels[above], num_clusters)

    def _bins(self, u: FloatArray) -> IntArray:
        with np.errstate(over="ignore"):  # what overflows belongs into the last bin
            return np.minimum((u - self.lowest) * self.bins_per_unit, _BINS - 1).astype(np.int64)

    def narrow(self, clients: IntArray, least: float) -> None:
        """Raise the bars of thresholds that cannot reach an energy of ``least``.

        At a threshold t the energy is at most t + the largest weight at or above t. A client
        matters only from the next better bin on, at or below its own, so the bar of that counts.
        """
        u, peaks = self.field.bottleneck[clients], np.full(_BINS, -np.inf)
        np.maximum.at(peaks, self._bins(u), self.field.weight[clients])
        peaks = np.maximum.accumulate(peaks[::-1])[::-1]
        # The upper edge of the next bin, so that rounding cannot put an edge too low.
        edges = self.lowest + np.arange(2, _BINS + 2) / self.bins_per_unit
        possible = np.where(edges + peaks >= least, np.arange(_BINS), -1)
        possible[-1] = _BINS - 1  # the last bin is open
        self.bars = np.append(self.bars, np.inf)[np.maximum.accumulate(possible)]

    def sift(self, clients: IntArray) -> IntArray:
        """Those of ``clients``, all at or above the lowest threshold, that may matter."""
        chunks = np.split(clients, range(_CHUNK, len(clients), _CHUNK))
        return np.concatenate([chunk[self._passes(chunk)] for chunk in chunks])

    def _passes(self, clients: IntArray) -> BoolArray:
        u, w = self.field.bottleneck[clients], self.field.weight[clients]
        sampled = self.sampled[clients]
        bar, low = self.bars[self._bins(u)], u <= self.pivot
        np.maximum(bar, self.pivot_bar, out=bar, where=low)

        def beats(values: FloatArray, others: FloatArray) -> BoolArray:
            return np.asarray((values > others) | (sampled & (values == others)))

        passing = beats(w, bar)
        if self.field.clusters is not None:
            # Who is behind a leader of its cluster at or above the pivot pays the charge.
            follows = low & ~beats(w, self.leader[self.labels[clients]])
            passing &= ~follows | beats(w - self.field.charge, bar)
        return passing


# The exact solver of the bottleneck problem, for any number of clients.


@dataclass(frozen=True, kw_only=True, slots=True)
class Exact:
    """A best cohort (BSFL Eq. 13; PAUSE Eq. 14 with 18 or 22), one at random among equals.

    With at least m unseen clients (u infinite) every cohort of them ties at ``+inf``, and the
    additive part decides; fewer are ordinary members that never bind.

    Example:
        >>> speed, weight = np.array([3.0, 1.0, 2.0]), np.array([0.0, 5.0, 1.0])
        >>> instance = Instance(bottleneck=speed, weight=weight, size=2)
        >>> Exact().solve(instance, np.random.default_rng(0))
        array([1, 2])
    """

    name: ClassVar[str] = "exact"

    def solve(self, instance: Instance, rng: Generator) -> IntArray:
        """Increasing positions of the best cohort."""
        highest, heaviest = check_values(instance)
        u, w, size = instance.bottleneck, instance.weight, instance.size
        if size == len(u):
            return np.arange(size)
        clusters, charge, ceiling = None, 0.0, heaviest
        if instance.penalty > 0 and instance.clusters is not None:
            clusters, num_clusters = compact(instance.clusters)
            charge = size * instance.penalty
            # With fewer than m clusters some of the m must pay.
            ceiling -= instance.penalty * max(0, size - num_clusters)
        field = Field(u, w, clusters, size, charge, ceiling)
        if highest == np.inf:
            unseen = u == np.inf
            num_unseen = np.count_nonzero(unseen)
            if num_unseen >= size:
                everyone = num_unseen == len(u)
                return _largest(field, slice(None) if everyone else np.flatnonzero(unseen), rng)
        pivots, near = best_thresholds(field)
        pivot = pivots[int(rng.integers(len(pivots)))] if len(pivots) > 1 else pivots[0]
        above = np.flatnonzero(u[near] >= pivot)
        return _largest(field, above if isinstance(near, slice) else near[above], rng)


def _largest(field: Field, clients: IntArray | slice, rng: Generator) -> IntArray:
    """The m largest adjusted weights of ``clients``, ties at random."""
    values = field.weight[clients]
    if field.clusters is not None:
        values = adjusted(values, field.clusters[clients], field.charge, rng)
    chosen = top_k(values, field.size, rng)
    return chosen if isinstance(clients, slice) else clients[chosen]

"""The sweep over thresholds of u that solves the bottleneck problem of clients that fit a sort.

With a penalty, ``charge = m * penalty`` in units of w: the best client of each cluster (its
leader) counts w, every other w - charge, and the m largest of these adjusted weights are best.
Proof: the penalty asks for each cluster's clients by falling weight, the first free, the others
charged alike; marginal values fall, so taking the m largest of all respects that order.
"""

from collections import Counter
from heapq import heapify, heappop, heappush, heappushpop, heapreplace
from itertools import repeat
from math import fsum
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray, IntArray

_FIRST_STOP = 1_024
"""One block of this number of clients costs less than the calls for several."""


class Field(NamedTuple):
    """The clients that compete: u, w, and their clusters where there is a penalty.

    ``charge = m * penalty`` is the cost of a client that is not the best of its cluster.
    """

    bottleneck: FloatArray
    weight: FloatArray
    clusters: IntArray | None
    size: int
    charge: float

    def part(self, where: IntArray | slice) -> "Field":
        """The field of the clients at ``where``."""
        return self._replace(
            bottleneck=self.bottleneck[where],
            weight=self.weight[where],
            clusters=None if self.clusters is None else self.clusters[where],
        )


class Frontier(NamedTuple):
    """The result of a sweep: the largest energy, and every threshold that reaches it, increasing.

    ``levels`` are the thresholds at which the m largest (adjusted) weights change, falling;
    ``bars`` are the m-th largest from each level on: below a bar no client enters.
    """

    best: float
    pivots: list[float]
    levels: FloatArray
    bars: FloatArray


def sweep(field: Field) -> Frontier:
    """The frontier of a field, whatever its order."""
    falling = field.part(np.argsort(field.bottleneck)[::-1])
    levels, bars, energies = _plain(falling) if field.clusters is None else _clustered(falling)
    best = float(energies.max())
    pivots = sorted(set(levels[energies == best].tolist()))
    return Frontier(best, pivots, levels, bars)


Steps = tuple[FloatArray, FloatArray, FloatArray]
"""Level, bar and energy wherever the m largest adjusted weights change."""


def _plain(field: Field) -> Steps:
    """Evaluates only where a weight enters the m largest: between two such clients u only falls."""
    u, w, m = field.bottleneck, field.weight, field.size
    heap = w[:m].tolist()
    heapify(heap)
    levels, bars = [u[m - 1 : m]], [np.array(heap[:1])]
    energies = [levels[0] + fsum(heap) / m]
    start = m
    while start < len(u):
        stop = max(4 * start, _FIRST_STOP)  # the bar rises ever more slowly, so blocks may grow
        total = fsum(heap)  # afresh, lest rounding errors pile up
        ranks = start + (w[start:stop] > heap[0]).nonzero()[0]
        entering = w[ranks]
        pushed_out = map(heappushpop, repeat(heap), entering.tolist())
        leaving = np.fromiter(pushed_out, np.float64, len(ranks))
        # A client that leaves at once never entered: its point has the energy before at a lower u.
        levels.append(u[ranks])
        energies.append(levels[-1] + (total + (entering - leaving).cumsum()) / m)
        # The bar from here on is whatever the next to enter pushes out.
        bars.append(np.append(leaving[1:], heap[0])[: len(ranks)])
        start = stop
    rising = np.maximum.accumulate(np.concatenate(bars))
    return np.concatenate(levels), rising, np.concatenate(energies)


def _clustered(field: Field) -> Steps:
    """The best cohort with adjusted weights.

    A client that does not lead adds w - charge. A new leader lifts its cluster's largest value
    from the old leader's w to its own and adds the old leader's w - charge. So one value rises
    and one is added, the m-th largest never falls, and what left the m largest never returns.
    """
    assert field.clusters is not None
    u, w, m, charge = field.bottleneck, field.weight, field.size, field.charge
    labels, num_clusters = compact(field.clusters)
    leader = leading_weight(w[:m], labels[:m], num_clusters)
    heap = adjusted(w[:m], labels[:m], charge).tolist()
    heapify(heap)
    outdated: Counter[float] = Counter()  # values in the heap that rose since; equal ones are alike
    total, level = fsum(heap), float(u[m - 1])
    levels, bars, energies = [level], [heap[0]], [level + total / m]
    start = m
    while start < len(u):
        stop = 4 * start
        if outdated:
            heap = list((Counter(heap) - outdated).elements())
            heapify(heap)
            outdated.clear()
        total, weights, bar = fsum(heap), w[start:stop], heap[0]
        leads = weights > leader[labels[start:stop]]
        ranks = np.flatnonzero((weights > bar) & (leads | (weights - charge > bar))) + start
        for level, weight, label in zip(
            u[ranks].tolist(), w[ranks].tolist(), labels[ranks].tolist(), strict=True
        ):
            value, before = weight - charge, total
            former = leader.item(label)
            if weight > former:
                leader[label] = value = weight
                if former >= heap[0]:
                    outdated[former] += 1
                    heappush(heap, weight)
                    total += weight - former
                    value = former - charge
                    _drop_outdated(heap, outdated)
            if value > heap[0]:
                total += value - heapreplace(heap, value)
                _drop_outdated(heap, outdated)
            if total > before:
                levels.append(level)
                bars.append(heap[0])
                energies.append(level + total / m)
        start = stop
    return np.array(levels), np.array(bars), np.array(energies)


def _drop_outdated(heap: list[float], outdated: Counter[float]) -> None:
    while outdated[heap[0]] > 0:
        outdated[heappop(heap)] -= 1


def adjusted(
    weight: FloatArray, clusters: IntArray, charge: float, rng: Generator | None = None
) -> FloatArray:
    """The weights less ``charge`` for all but one best client of each cluster, drawn by ``rng``."""
    labels, num_clusters = compact(clusters)
    best = np.flatnonzero(weight == leading_weight(weight, labels, num_clusters)[labels])
    if rng is not None:
        rng.shuffle(best)
    leader = np.full(num_clusters, -1)
    leader[labels[best]] = best  # the last of several is kept
    leader = leader[leader >= 0]
    values = weight - charge
    values[leader] = weight[leader]
    return values


def leading_weight(weight: FloatArray, labels: IntArray, num_clusters: int) -> FloatArray:
    """The largest weight in each cluster, ``-inf`` where there is no client."""
    largest = np.full(num_clusters, -np.inf)
    np.maximum.at(largest, labels, weight)
    return largest


def compact(clusters: IntArray) -> tuple[IntArray, int]:
    """Labels small enough to index a table, and the length of that table."""
    largest = int(np.maximum.reduce(clusters))
    if largest < 4 * len(clusters) and np.minimum.reduce(clusters) >= 0:
        return clusters, largest + 1
    names, labels = np.unique(clusters, return_inverse=True)
    return labels, len(names)

"""The exact solver of the bottleneck problem, for any number of clients.

The papers hold BSFL Eq. 13 and PAUSE Eq. 22 to be infeasible beyond small networks. They are not.

For a fixed threshold on u the best cohort is the m largest weights among the clients at or above
it, and the minimum of u over that cohort is at least the threshold. So the maximum over
thresholds of ``u + (m largest weights) / m`` is the optimum of the whole problem.

With a penalty, ``charge = m * penalty`` in units of w: the best client of each cluster (its
leader) counts w, every other w - charge, and the m largest of these adjusted weights are best.
Proof: the penalty asks for each cluster's clients by falling weight, the first free, the others
charged alike; marginal values fall, so taking the m largest of all respects that order.
"""

from collections import Counter
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heappushpop, heapreplace
from itertools import repeat
from math import fsum, isqrt
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.solvers.bottleneck_problem import SOLVERS, BottleneckProblem, check_values
from fedmuster.solvers.top_k import top_k

FEW = 2_000
"""With at most this number of clients, sorting is faster than pruning."""
COHORTS_IN_SAMPLE = 4
"""A sample of fewer cohorts bounds next to nothing."""

_BINS = 1_024
_CHUNK = 1 << 15  # a few arrays of this length stay in cache
_ROUNDING = 1e-10
_TINY = 1e-290  # a shorter span of u would overflow the number of bins per unit
_FIRST_STOP = 1_024
"""One block of this number of clients costs less than the calls for several."""


class Field(NamedTuple):
    """The clients that compete: u, w, and their clusters where there is a penalty.

    ``charge = m * penalty`` is the cost of a client that is not the best of its cluster; no cohort
    has a larger mean of adjusted weights than ``ceiling``.
    """

    bottleneck: FloatArray
    weight: FloatArray
    clusters: IntArray | None
    size: int
    charge: float
    ceiling: float

    def part(self, where: IntArray | slice) -> "Field":
        """The same competition among fewer clients."""
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


def _search(field: Field) -> tuple[Frontier, IntArray | slice]:
    """The frontier of those clients that matter, and an index of all clients above its pivots."""
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

    A client changes nothing if m values of the sample at or above its own u are no smaller than its
    own value, because the m-th largest value never falls when clients are added. Clients of the
    sample that equal a bar pass, because they set it.
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
        matters only from the next better bin on, at or below its own, so the bar of that bin
        counts.
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
            # A client behind a leader of its cluster at or above the pivot pays the charge.
            follows = low & ~beats(w, self.leader[self.labels[clients]])
            passing &= ~follows | beats(w - self.field.charge, bar)
        return passing


@SOLVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Exact:
    """A best cohort (BSFL Eq. 13; PAUSE Eq. 14 with 18 or 22), one at random among equals.

    With at least m unseen clients (u infinite) every cohort of them ties at ``+inf``, and the
    additive part decides; fewer are ordinary members that never bind.

    Example:
        >>> speed, weight = np.array([3.0, 1.0, 2.0]), np.array([0.0, 5.0, 1.0])
        >>> instance = BottleneckProblem(bottleneck=speed, weight=weight, size=2)
        >>> Exact().solve(instance, np.random.default_rng(0))
        array([1, 2])
    """

    name: ClassVar[str] = "exact"

    def solve(self, instance: BottleneckProblem, rng: Generator) -> IntArray:
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
        frontier, near = _search(field)
        pivots = frontier.pivots
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

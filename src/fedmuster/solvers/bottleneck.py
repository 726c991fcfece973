"""The exact solver of the bottleneck problem, for any number of clients.

The papers hold BSFL Eq. 13 and PAUSE Eq. 22 to be infeasible beyond small networks. They are not.

For a fixed threshold on u the best cohort is the m largest weights among the clients at or above
it, and the minimum of u over that cohort is at least the threshold. So the maximum over
thresholds of ``u + (m largest weights) / m`` is the optimum of the whole problem.

Sorting a million clients would take most of the time. The optimum of a sample bounds what can
matter, and few clients do: u is looked at once, w is read of those few, and they are swept.
"""

from dataclasses import dataclass
from math import isqrt
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.solvers.bottleneck_candidates import (
    EVERYONE,
    Candidates,
    Clients,
    Stored,
    heaviest,
    is_ordered,
    refuse_unordered,
)
from fedmuster.solvers.bottleneck_problem import SOLVERS, BottleneckProblem
from fedmuster.solvers.frontier import Field, Frontier, adjusted, compact, leading_weight, sweep
from fedmuster.solvers.top_k import top_k

FEW = 2_000
"""With at most this number of clients, sorting is faster than pruning."""
COHORTS_IN_SAMPLE = 4
"""A sample of fewer cohorts bounds next to nothing."""

_BINS = 1_024
_CHUNK = 1 << 15  # a few arrays of this length stay in cache
_ROUNDING = 1e-10
_TINY = 1e-290  # a shorter span of u would overflow the number of bins per unit


class _Contest(NamedTuple):
    """Candidates that the solver has not read yet; see :class:`Field` for the rest.

    No cohort has a larger mean of adjusted weights than ``ceiling``.
    """

    candidates: Candidates
    clusters: IntArray | None
    size: int
    charge: float
    ceiling: float

    def field(self, clients: Clients) -> Field:
        """The competition among ``clients`` alone."""
        u, w = self.candidates.bottleneck(clients), self.candidates.weight(clients)
        labels = None if self.clusters is None else self.clusters[clients]
        return Field(u, w, labels, self.size, self.charge)

    def sample(self, stride: int) -> "_Contest":
        """The contest among every ``stride``-th candidate."""
        part = self.field(slice(None, None, stride))
        if not is_ordered(part.bottleneck):
            refuse_unordered(self.candidates)
        stored = Stored(part.bottleneck, part.weight)
        return self._replace(candidates=stored, clusters=part.clusters)


class _Found(NamedTuple):
    """All clients that reach a pivot of their frontier.

    Where at least m are unseen there is no frontier, and the clients are the unseen.
    """

    clients: Clients
    bottleneck: FloatArray
    frontier: Frontier | None


def _search(contest: _Contest) -> _Found:
    """Find all clients that can be in a best cohort; read u of all and w of few."""
    num_clients = len(contest.candidates)
    # About stride * m clients survive a sample of n / stride: the two are balanced here.
    # Odd, because periods of two are common among client numbers.
    stride = max(2, isqrt(num_clients // contest.size) // 2) | 1
    sample, lowest, rounding = None, -np.inf, 0.0
    if num_clients > FEW and num_clients >= COHORTS_IN_SAMPLE * stride * contest.size:
        sample = _search(contest.sample(stride)).frontier
        if sample is None:
            return _Found(_reaching(contest, np.inf), np.empty(0), None)
        # At threshold t the energy is at most t + ceiling, so below this no threshold can be best.
        scale = abs(sample.best) + abs(sample.pivots[0]) + abs(contest.ceiling)
        rounding = _ROUNDING * scale
        lowest = sample.best - contest.ceiling - rounding
    clients, near = _at_or_above(contest, lowest)
    u = near.bottleneck
    unseen = u == np.inf
    if np.count_nonzero(unseen) >= contest.size:
        return _Found(_among(clients, np.flatnonzero(unseen)), u, None)
    if sample is None or len(u) <= FEW:
        return _Found(clients, u, sweep(near))
    sampled = np.zeros(num_clients, dtype=np.bool_)
    sampled[::stride] = True
    sieve = _Sieve(near, sampled[clients], sample, lowest)
    contenders = sieve.sift(np.arange(len(u)))
    if len(contenders) > _CHUNK:
        sieve.narrow(contenders, sample.best - rounding)
        contenders = sieve.sift(contenders)
    return _Found(clients, u, sweep(near.part(contenders)))


def _at_or_above(contest: _Contest, lowest: float) -> tuple[Clients, Field]:
    """The clients with a u of at least ``lowest``; complains of a u that cannot be ordered."""
    clients = EVERYONE if lowest == -np.inf else _reaching(contest, lowest)
    near = contest.field(clients)
    if not is_ordered(near.bottleneck):
        refuse_unordered(contest.candidates)
    exact = near.bottleneck >= lowest
    if exact.all():
        return clients, near
    kept = np.flatnonzero(exact)
    return _among(clients, kept), near.part(kept)


def _reaching(contest: _Contest, level: float) -> Clients:
    reaching = contest.candidates.reaching(level)
    return EVERYONE if reaching.all() else np.flatnonzero(reaching)


def _among(clients: Clients, positions: IntArray) -> IntArray:
    return positions if isinstance(clients, slice) else clients[positions]


class _Sieve:
    """Holds back clients that change the m largest adjusted weights at no threshold.

    A client changes nothing if m values of the sample at or above its own u are no smaller than its
    own value, because the m-th largest value never falls when clients are added. Clients of the
    sample that equal a bar pass, because they set it.
    """

    def __init__(self, field: Field, sampled: BoolArray, sample: Frontier, lowest: float) -> None:
        self.field, self.sampled = field, sampled
        self.pivot, self.lowest = sample.pivots[0], lowest
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
            above = np.flatnonzero(sampled & (field.bottleneck >= self.pivot))
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
        return self.choose(
            Stored(instance.bottleneck, instance.weight),
            size=instance.size,
            clusters=instance.clusters,
            penalty=instance.penalty,
            rng=rng,
        )

    def choose(
        self,
        candidates: Candidates,
        *,
        size: int,
        clusters: IntArray | None = None,
        penalty: float = 0.0,
        rng: Generator,
    ) -> IntArray:
        """:meth:`solve` for candidates whose u and w are computed on demand."""
        charge, ceiling = 0.0, heaviest(candidates)
        if size == len(candidates):
            refuse_unordered(candidates)
            return np.arange(size)
        if penalty == 0:
            clusters = None
        elif clusters is not None:
            clusters, num_clusters = compact(clusters)
            charge = size * penalty
            # With fewer than m clusters some of the m must pay.
            ceiling -= penalty * max(0, size - num_clusters)
        clients, u, frontier = _search(_Contest(candidates, clusters, size, charge, ceiling))
        if frontier is not None:
            pivots = frontier.pivots
            pivot = pivots[int(rng.integers(len(pivots)))] if len(pivots) > 1 else pivots[0]
            clients = _among(clients, np.flatnonzero(u >= pivot))
        elif clusters is None:
            low, high = candidates.weight_bounds(clients)
            num_unseen = len(candidates) if isinstance(clients, slice) else len(clients)
            if low == high and num_unseen > size:  # what top_k draws, without a list of weights
                drawn = rng.choice(num_unseen, size, replace=False, shuffle=False)
                return _among(clients, np.sort(drawn))
        values = candidates.weight(clients)
        if clusters is not None:
            values = adjusted(values, clusters[clients], charge, rng)
        return _among(clients, top_k(values, size, rng))

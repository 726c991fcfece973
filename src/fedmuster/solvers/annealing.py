"""Simulated annealing over m-sets, as BSFL (SA and ALSA) and PAUSE (SA-PAUSE) search.

Kept for the papers' comparisons: the exact solver is both faster and better.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.solvers.bottleneck_problem import SOLVERS, BottleneckProblem, check_values

NeighbourhoodName = Literal["swap", "alsa", "pause"]

Draw = Callable[[], float]
"""The next uniform number in [0, 1)."""

Neighbourhood = Callable[["Members", Draw], tuple[int, int]]
"""Draws a neighbour, each with the same probability, as (leaving rank, joining rank)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The clients in the order of u and in the order of w.

    ``positions`` has the position in the instance of each rank by u, ``weight_rank`` the rank by w
    of each rank by u, and ``at_weight_rank`` is its inverse.
    """

    positions: IntArray
    weight_rank: Sequence[int]
    at_weight_rank: Sequence[int]

    @classmethod
    def of(cls, instance: BottleneckProblem, rng: Generator) -> "Ranking":
        """Sort once. Ties are ordered at random, so that no position is favoured."""
        shuffled = rng.permutation(len(instance.weight))
        by_bottleneck = shuffled[np.argsort(instance.bottleneck[shuffled], kind="stable")]
        by_weight = shuffled[np.argsort(instance.weight[shuffled], kind="stable")]
        at_weight_rank = _inverse(by_bottleneck)[by_weight]
        # Indexing .data gives plain Python numbers, without the cost of a list of K of them.
        return cls(
            positions=by_bottleneck,
            weight_rank=_inverse(at_weight_rank).data,
            at_weight_rank=at_weight_rank.data,
        )


def _inverse(permutation: IntArray) -> IntArray:
    inverse = np.empty_like(permutation)
    inverse[permutation] = np.arange(len(permutation))
    return inverse


class Members:
    """The vertex under inspection: its clients, sorted by u and by w."""

    __slots__ = ("by_bottleneck", "by_weight", "num_outsiders", "ranking")

    def __init__(self, ranking: Ranking, ranks: Sequence[int]) -> None:
        self.ranking = ranking
        self.by_bottleneck = sorted(ranks)
        self.by_weight = sorted(ranking.weight_rank[rank] for rank in ranks)
        self.num_outsiders = len(ranking.positions) - len(ranks)

    def outsider(self, number: int) -> int:
        """The rank of outsider ``number`` = 0, 1, … in the order of u."""
        ranks = self.by_bottleneck
        # ranks[i] - i outsiders come before member i, so the members before the wanted outsider
        # are those with at most `number` before them. (bisect with a key takes 2.5 x as long.)
        low, high = 0, len(ranks)
        while low < high:
            middle = (low + high) // 2
            if ranks[middle] - middle <= number:
                low = middle + 1
            else:
                high = middle
        return number + low

    def replace(self, leaver: int, joiner: int) -> None:
        """Move to the neighbour where ``joiner`` takes the place of ``leaver``."""
        weight_rank = self.ranking.weight_rank
        del self.by_bottleneck[bisect_left(self.by_bottleneck, leaver)]
        insort(self.by_bottleneck, joiner)
        del self.by_weight[bisect_left(self.by_weight, weight_rank[leaver])]
        insort(self.by_weight, weight_rank[joiner])


def swap(members: Members, draw: Draw) -> tuple[int, int]:
    """Any member for any outsider: m (K - m) neighbours (BSFL Eq. 18)."""
    ranks, outside = members.by_bottleneck, members.num_outsiders
    member, outsider = divmod(int(draw() * len(ranks) * outside), outside)
    return ranks[member], members.outsider(outsider)


def pause(members: Members, draw: Draw) -> tuple[int, int]:
    """The client that leaves or joins has the lowest u of its set (PAUSE IV.A, N1 and N2).

    N2b is part of N1. N2a needs no search: all clients ranked below the lowest member are
    outsiders.
    """
    ranks, outside = members.by_bottleneck, members.num_outsiders
    lowest = ranks[0]
    number = int(draw() * (outside + (len(ranks) - 1) * lowest))
    if number < outside:
        return lowest, members.outsider(number)  # N1
    member, joiner = divmod(number - outside, lowest)
    return ranks[1 + member], joiner  # N2a


def alsa(members: Members, draw: Draw) -> tuple[int, int]:
    """The client that leaves or joins has the lowest u or the lowest w of its set (BSFL Eq. 19).

    Any outsider may replace the member of lowest u or that of lowest w. Any other member leaves the
    two lowest in place, so only clients below the one or below the other may replace it.
    """
    ranks, outside = members.by_bottleneck, members.num_outsiders
    at_weight_rank = members.ranking.at_weight_rank
    lower_u, lower_w = ranks[0], members.by_weight[0]  # how many clients are below the lowest
    lowest_u, lowest_w = lower_u, at_weight_rank[lower_w]
    num_lowest = 1 if lowest_u == lowest_w else 2
    free = num_lowest * outside
    total = free + (len(ranks) - num_lowest) * (lower_u + lower_w)
    while True:
        number = int(draw() * total)
        if number < free:
            which, outsider = divmod(number, outside)
            return (lowest_w if which else lowest_u), members.outsider(outsider)
        other, lower = divmod(number - free, lower_u + lower_w)
        joiner = lower if lower < lower_u else at_weight_rank[lower - lower_u]
        # A client below both is counted twice; its second copy is drawn again, which leaves every
        # neighbour equally likely and happens less than half of the time.
        if lower < lower_u or joiner > lowest_u:
            break
    leaver = 1 + other
    if num_lowest == 2 and leaver >= bisect_left(ranks, lowest_w):
        leaver += 1
    return ranks[leaver], joiner


NEIGHBOURHOODS: Final[Mapping[NeighbourhoodName, Neighbourhood]] = {
    "swap": swap,
    "alsa": alsa,
    "pause": pause,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class AnnealingTrace:
    """A run (BSFL Fig. 4): energies after 0, 1, … steps, the best so far, and the best set."""

    current: FloatArray
    best: FloatArray
    positions: IntArray


@SOLVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Annealing:
    """Walk from a random set to random neighbours, less and less willing to get worse.

    A set that is not worse is always accepted, a worse one with probability
    ``exp((E(U) - E(V)) / T_i)`` (BSFL Eq. 16), ``T_i = C / (kappa log(i + 1))``.

    C is the range of the bottleneck as in PAUSE Eq. 20 (m-th largest u less smallest u) plus the
    range of the additive part, taken from the instance's own weights. It bounds the difference of
    energies between any two vertices, hence satisfies Hajek's condition for convergence with
    ``kappa = 1``, and is never above PAUSE's constant, which takes the widest range that weights
    could have.

    A step costs O(log m) whatever the number of clients; sorting them first, O(K log K).

    Args:
        neighbourhood: "swap" (BSFL Eq. 18), "alsa" (BSFL Eq. 19) or "pause" (PAUSE N1 and N2).
        steps: how many neighbours to inspect.
        kappa: divides the temperature; PAUSE section V.D takes 30 in large networks, which gives
            up the guarantee of convergence for speed.

    Deviations:
        1. PAUSE Algorithm 3 has the sign of the acceptance probability wrong; BSFL Eq. 16 is right.
        2. PAUSE Algorithm 3 returns the last set that was no step down; here, the best one seen.
        3. BSFL Eq. 17 draws the sum into the minimum; the energy is that of Eq. 13.
        4. BSFL's ``2 alpha + mu_max - mu_min`` bounds differences of true means. The energies hold
           confidence bounds, which can be further apart, so C is computed from those.

    References:
        B. Hajek, Cooling schedules for optimal annealing, Math. Oper. Res. 13(2), 1988.

    Example:
        >>> u, w = np.array([0.9, 0.1, 0.8, 0.6]), np.array([0.1, 1.0, 0.0, 0.8])
        >>> instance = BottleneckProblem(bottleneck=u, weight=w, size=2)
        >>> Annealing(steps=100).solve(instance, np.random.default_rng(0))
        array([0, 3])
    """

    name: ClassVar[str] = "annealing"
    neighbourhood: NeighbourhoodName = "alsa"
    steps: int = 1000
    kappa: float = 1.0

    def __post_init__(self) -> None:
        check_types(self)
        require(self.steps >= 1, self, "steps", "at least 1")
        require(self.kappa > 0 and isfinite(self.kappa), self, "kappa", "a number > 0")

    def solve(self, instance: BottleneckProblem, rng: Generator) -> IntArray:
        """The best set seen, as increasing positions."""
        walk = Walk(self, instance, rng)
        for step in range(1, self.steps + 1):
            walk.step(step)
        return walk.best_positions()

    def trace(self, instance: BottleneckProblem, rng: Generator) -> AnnealingTrace:
        """The same walk as :meth:`solve` takes with the same ``rng``, with all its energies."""
        walk = Walk(self, instance, rng)
        current = np.empty(self.steps + 1)
        current[0] = walk.value()
        for step in range(1, self.steps + 1):
            walk.step(step)
            current[step] = walk.value()
        return AnnealingTrace(
            current=current, best=np.maximum.accumulate(current), positions=walk.best_positions()
        )


class Walk:
    """The inspected vertex of an :class:`Annealing`, its energy, and the best vertex so far."""

    def __init__(self, config: Annealing, instance: BottleneckProblem, rng: Generator) -> None:
        check_values(instance)
        ranking = Ranking.of(instance, rng)
        landscape = Landscape.of(instance, ranking)
        start = np.sort(rng.choice(len(ranking.positions), instance.size, replace=False))

        self.members = Members(ranking, start.tolist())
        _, self.additive = instance.parts(ranking.positions[start])
        self.energy = float(landscape.bottleneck[start[0]]) + self.additive
        self.best_energy, self.best_ranks = self.energy, self.members.by_bottleneck.copy()

        self._num_seen = landscape.num_seen
        # Indexing .data gives plain Python numbers, without the cost of a list of K of them.
        self._bottleneck: Sequence[float] = landscape.bottleneck.data
        self._share: Sequence[float] = (instance.weight[ranking.positions] / instance.size).data
        self._clusters: Sequence[int] | None = None
        if instance.clusters is not None and instance.penalty > 0:
            self._penalty = instance.penalty
            self._clusters = instance.clusters[ranking.positions].data
            self._cluster_sizes = Counter(self._clusters[rank] for rank in self.best_ranks)
        # Where all energies are equal, only rounding can make a set look worse: never accept it.
        self._coldness = config.kappa / landscape.spread if landscape.spread > 0 else inf
        self._neighbourhood = NEIGHBOURHOODS[config.neighbourhood]
        self._draw = _uniforms(rng).__next__

    def step(self, number: int) -> None:
        """Inspect one neighbour at the temperature of step ``number`` = 1, 2, …"""
        if self.members.num_outsiders == 0:
            return
        leaver, joiner = self._neighbourhood(self.members, self._draw)
        additive = self.additive + self._gain(leaver, joiner)
        energy = self._bottleneck[self._lowest_after(leaver, joiner)] + additive
        rise = energy - self.energy
        # BSFL Eq. 16 with 1 / T_i = kappa log(i + 1) / C.
        if rise < 0 and self._draw() >= exp(rise * self._coldness * log(number + 1)):
            return
        self.members.replace(leaver, joiner)
        if self._clusters is not None:
            self._cluster_sizes[self._clusters[leaver]] -= 1
            self._cluster_sizes[self._clusters[joiner]] += 1
        self.additive, self.energy = additive, energy
        if energy > self.best_energy:
            self.best_energy, self.best_ranks = energy, self.members.by_bottleneck.copy()

    def value(self) -> float:
        """The energy as in ``BottleneckProblem.energy``: infinite for a set of unseen clients."""
        return self.energy if self.members.by_bottleneck[0] < self._num_seen else inf

    def best_positions(self) -> IntArray:
        """The best set so far, as increasing positions of the instance."""
        return np.sort(self.members.ranking.positions[self.best_ranks])

    def _lowest_after(self, leaver: int, joiner: int) -> int:
        ranks = self.members.by_bottleneck
        if leaver != ranks[0]:
            return min(ranks[0], joiner)
        return min(ranks[1], joiner) if len(ranks) > 1 else joiner

    def _gain(self, leaver: int, joiner: int) -> float:
        gain = self._share[joiner] - self._share[leaver]
        if self._clusters is not None:  # PAUSE Eq. 22
            left, joined = self._clusters[leaver], self._clusters[joiner]
            if left != joined:
                fewer = self._cluster_sizes[left] > 1
                more = self._cluster_sizes[joined] > 0
                gain += self._penalty * (fewer - more)
        return gain


@dataclass(frozen=True, kw_only=True, slots=True)
class Landscape:
    """What the walk needs to know of all energies.

    ``bottleneck`` is u in increasing order, with a finite value in place of ``+inf``; ``num_seen``
    counts those that were finite; ``spread`` is C, no less than the difference of any two energies.
    """

    bottleneck: FloatArray
    num_seen: int
    spread: float

    @classmethod
    def of(cls, instance: BottleneckProblem, ranking: Ranking) -> "Landscape":
        """The landscape of ``instance``, in the order of ``ranking``."""
        size = instance.size
        weight = instance.weight[ranking.positions][ranking.at_weight_rank]
        rest = float(weight[-size:].sum() - weight[:size].sum()) / size
        rest += instance.penalty * (size - 1)

        bottleneck = instance.bottleneck[ranking.positions]
        num_seen = int(np.searchsorted(bottleneck, inf))
        top = float(bottleneck[num_seen - 1]) if num_seen else 0.0
        # A set of only unseen clients has to beat every other set: with M for +inf, the difference
        # of their energies is at least (M - top) - rest, and M is chosen to make that positive,
        # beyond rounding. In other sets M is never the minimum, so their energies are unchanged.
        scale = 1.0 + abs(top) + max(abs(float(weight[0])), abs(float(weight[-1])))
        bottleneck[num_seen:] = top + rest + 1e-6 * scale
        # The minimum of m values lies between the smallest and the m-th largest (PAUSE Eq. 20).
        spread = float(bottleneck[-size] - bottleneck[0]) + rest
        return cls(bottleneck=bottleneck, num_seen=num_seen, spread=spread)


def _uniforms(rng: Generator) -> Iterator[float]:
    while True:
        yield from rng.random(1024).tolist()

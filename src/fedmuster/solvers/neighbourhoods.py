"""The three graphs that annealing walks on: which sets are neighbours, and a random one of them.

A vertex is an m-set; neighbours always differ in one client. No list of neighbours is ever built:
clients are named by their *rank* in the order of u, so "every client with a lower u" is a range
of numbers, and a neighbour is drawn with one uniform number in O(log m).
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import IntArray
from fedmuster.solvers.instance import Instance

NeighbourhoodName = Literal["swap", "alsa", "pause"]

Draw = Callable[[], float]
"""The next uniform number in [0, 1)."""

Neighbourhood = Callable[["Members", Draw], tuple[int, int]]
"""Draws a neighbour, each with the same probability, as (leaving rank, joining rank)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The clients in the order of u and in the order of w.

    Args:
        positions: the position in the instance of each rank in the order of u.
        weight_rank: the rank in the order of w of each rank in the order of u.
        at_weight_rank: the inverse.
    """

    positions: IntArray
    weight_rank: Sequence[int]
    at_weight_rank: Sequence[int]

    @classmethod
    def of(cls, instance: Instance, rng: Generator) -> "Ranking":
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
    """Whoever leaves or joins has the lowest u of its own set (PAUSE section IV.A, N1 and N2).

    N2b is part of N1. All clients ranked below the lowest member are outsiders, and as many as
    its rank says, so N2a needs no search.
    """
    ranks, outside = members.by_bottleneck, members.num_outsiders
    lowest = ranks[0]
    number = int(draw() * (outside + (len(ranks) - 1) * lowest))
    if number < outside:
        return lowest, members.outsider(number)  # N1
    member, joiner = divmod(number - outside, lowest)
    return ranks[1 + member], joiner  # N2a


def alsa(members: Members, draw: Draw) -> tuple[int, int]:
    """Whoever leaves or joins has the lowest u or the lowest w of its own set (BSFL Eq. 19).

    The member of lowest u and that of lowest w may be replaced by anyone. Any other member leaves
    the two lowest in place, so only clients below the one or below the other may replace it.
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

"""Distributions poured from integers are exact, and a draw from them repeats nobody."""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.core.records import IntArray
from fedmuster.policies.clustered_sampling import SamplingBins, draw, pour, pour_groups
from fedmuster.solvers.inclusion import num_certain


def shares(bins: SamplingBins) -> list[dict[int, Fraction]]:
    """The distributions as the definition of SamplingBins says, unit by unit of each line."""
    found: list[dict[int, Fraction]] = []
    own_at = 0
    for begin, end in zip(bins.room_edges[:-1].tolist(), bins.room_edges[1:].tolist(), strict=True):
        units: Counter[int] = Counter()
        own_end = own_at + bins.capacity - (end - begin)
        for clients, edges, low, high in (
            (bins.poured, bins.poured_edges, begin, end),
            (bins.own, bins.own_edges, own_at, own_end),
        ):
            for i, client in enumerate(clients.tolist()):
                held = min(high, int(edges[i + 1])) - max(low, int(edges[i]))
                if held > 0:
                    units[client] += held
        found.append({k: Fraction(held, bins.capacity) for k, held in units.items()})
        own_at = own_end
    return found


@st.composite
def sized(draw_: st.DrawFn) -> tuple[IntArray, int]:
    """Falling sizes of clients none of whom is certain to be chosen, and m."""
    size = st.one_of(st.integers(1, 6), st.integers(1, 10**9))
    sizes = np.array(sorted(draw_(st.lists(size, min_size=2, max_size=12)), reverse=True))
    most = int(sizes.sum()) // int(sizes[0])
    count = draw_(st.integers(1, most))
    certain = num_certain(sizes[:count], sizes.sum())
    return (sizes[certain:], count - certain) if certain < count else (sizes, 1)


@st.composite
def grouped(draw_: st.DrawFn) -> tuple[IntArray, IntArray, int]:
    """The same, with groups of a share of 1/m or less."""
    sizes, count = draw_(sized())
    wanted = draw_(st.lists(st.integers(0, 5), min_size=len(sizes), max_size=len(sizes)))
    room: dict[int, int] = {}
    groups = []
    for size, group in zip(sizes.tolist(), wanted, strict=True):
        while room.get(group, int(sizes.sum())) < count * size:
            group += 6
        room[group] = room.get(group, int(sizes.sum())) - count * size
        groups.append(group)
    return sizes, np.unique(groups, return_inverse=True)[1], count


def assert_exact(bins: SamplingBins, sizes: IntArray, count: int) -> None:
    found = shares(bins)
    assert len(found) == len(bins) == count
    assert all(sum(law.values()) == 1 for law in found)
    for k, size in enumerate(sizes.tolist()):
        total = sum((law.get(k, Fraction(0)) for law in found), Fraction(0))
        assert total == Fraction(count * size, int(sizes.sum()))


@given(sized(), st.integers(0, 2**32))
def test_pouring_by_size_is_exact(case: tuple[IntArray, int], seed: int) -> None:
    sizes, count = case
    bins = pour(sizes, count)
    assert_exact(bins, sizes, count)
    assert_drawn_as_held(bins, seed)


@given(grouped(), st.integers(0, 2**32))
def test_pouring_by_groups_is_exact(case: tuple[IntArray, IntArray, int], seed: int) -> None:
    sizes, groups, count = case
    bins = pour_groups(sizes, groups, count)
    assert_exact(bins, sizes, count)
    assert_drawn_as_held(bins, seed)
    # The m largest groups are each in one bin alone, and whole.
    units = np.bincount(groups, weights=count * sizes)
    for group in np.argsort(-units, kind="stable")[:count]:
        homes = [
            set(law) for law in shares(bins) if set(law) & set(np.flatnonzero(groups == group))
        ]
        assert len(homes) == 1


def assert_drawn_as_held(bins: SamplingBins, seed: int) -> None:
    """Every bin gives somebody whom it holds, and nobody is given twice."""
    for chosen in (draw(bins, np.random.default_rng(seed + i)).tolist() for i in range(10)):
        assert len(set(chosen)) == len(bins)
        assert all(k in law for k, law in zip(chosen, shares(bins), strict=True))


def test_pouring_by_size_worked_by_hand() -> None:
    """Sizes 4 3 2 2 1 of 12, m = 2: 8 and 4 of the 6 fill bin 0, the other 2 go to bin 1."""
    twelfth = Fraction(1, 12)
    assert shares(pour(np.array([4, 3, 2, 2, 1]), 2)) == [
        {0: 8 * twelfth, 1: 4 * twelfth},
        {1: 2 * twelfth, 2: 4 * twelfth, 3: 4 * twelfth, 4: 2 * twelfth},
    ]


def test_pouring_by_groups_worked_by_hand() -> None:
    """The same with groups {0}, {1, 4}, {2}, {3}: 8 units each for the first two, 4 room each."""
    twelfth = Fraction(1, 12)
    bins = pour_groups(np.array([4, 3, 2, 2, 1]), np.array([0, 1, 2, 3, 1]), 2)
    assert shares(bins) == [
        {0: 8 * twelfth, 2: 4 * twelfth},
        {1: 6 * twelfth, 4: 2 * twelfth, 3: 4 * twelfth},
    ]


class EveryOutcome:
    """Stands in for a generator: gives all outcomes of two calls of ``integers``, in turn."""

    def __init__(self, answers: tuple[int, ...]) -> None:
        self.answers = answers
        self.highs: list[int] = []

    def integers(self, high: IntArray) -> IntArray:
        done = len(self.highs)
        self.highs += high.tolist()
        return np.array(self.answers[done : len(self.highs)], dtype=np.int64)


def outcomes(bins: SamplingBins) -> Iterator[list[int]]:
    probe: Any = EveryOutcome((0,) * (2 * len(bins)))
    draw(bins, probe)
    assert prod(probe.highs) < 300_000
    for answers in product(*map(range, probe.highs)):
        rng: Any = EveryOutcome(answers)
        yield draw(bins, rng).tolist()


SMALL = {
    "by size": pour(np.array([3, 2, 2]), 2),
    "by size, three": pour(np.array([2, 2, 1, 1]), 2),
    "by size, shared twice": pour(np.array([1, 1, 1, 1]), 3),
    "by groups": pour_groups(np.array([2, 2, 1]), np.array([0, 1, 2]), 2),
    "one poured into three": pour_groups(np.array([1, 1, 1, 1]), np.array([0, 1, 2, 3]), 3),
    "nothing poured": pour_groups(np.array([1, 1, 1, 1]), np.array([0, 1, 0, 1]), 2),
}


@pytest.mark.parametrize("label", SMALL)
def test_every_bin_is_drawn_from_by_its_law_over_all_outcomes(label: str) -> None:
    """Exactly, in fractions: also where the client of an earlier bin must not be drawn again."""
    bins = SMALL[label]
    found = list(outcomes(bins))
    for j, law in enumerate(shares(bins)):
        times = Counter(chosen[j] for chosen in found)
        assert {k: Fraction(n, len(found)) for k, n in times.items()} == law


@pytest.mark.parametrize(
    ("sizes", "count", "expected"),
    [
        ([1, 1, 1], 3, 3),
        ([1, 1, 1], 2, 0),
        ([5, 3, 2], 2, 1),
        ([9, 4, 2, 1, 1], 3, 2),
        ([100, 1, 1, 1, 1], 3, 1),
        ([7, 0, 0], 2, 2),
        ([0, 0], 1, 1),
        ([3], 0, 0),
        ([], 0, 0),
    ],
)
def test_who_is_certain(sizes: list[int], count: int, expected: int) -> None:
    assert num_certain(np.array(sizes[:count], dtype=np.int64), sum(sizes)) == expected


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(0, 9))
def test_certain_clients_one_by_one(sizes: list[int], count: int) -> None:
    """The largest is taken while its share of what is left is 1 by the places left, or more."""
    falling, left = sorted(sizes, reverse=True), min(count, len(sizes))
    expected = 0
    while left and left * falling[expected] >= sum(falling[expected:]):
        expected, left = expected + 1, left - 1
    assert num_certain(np.array(falling[:count]), sum(sizes)) == expected

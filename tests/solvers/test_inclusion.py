"""Draws with known inclusion probabilities: the capped chances, and systematic sampling."""

from itertools import combinations, pairwise, permutations
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedmuster.solvers.inclusion import chances, systematic_draw

LEVEL = 1e-3

weights = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12)


class TestChances:
    @given(weights, st.integers(0, 12))
    def test_are_capped_shares_that_sum_to_the_number_of_places(
        self, of: list[float], count: int
    ) -> None:
        count = min(count, len(of))
        chance = chances(np.array(of), count)
        assert chance.sum() == pytest.approx(count, rel=1e-12)
        assert ((chance >= 0) & (chance <= 1)).all()
        open_ = chance < 1
        ratio = chance[open_] / np.array(of)[open_]
        assert np.allclose(ratio, ratio[:1].sum(), rtol=1e-9)
        if count > 0 and open_.any():  # whoever is certain would have more than 1
            assert (ratio.max() * np.array(of)[~open_] >= 1 - 1e-9).all()

    def test_by_hand(self) -> None:
        """10 fills a place by itself (10/16 >= 1/2); the other place is shared by 3, 2, 1."""
        assert chances(np.array([1.0, 10.0, 2.0, 3.0]), 2).tolist() == pytest.approx(
            [1 / 6, 1.0, 1 / 3, 1 / 2]
        )

    def test_do_not_depend_on_the_order(self) -> None:
        of = np.array([5.0, 1.0, 40.0, 7.0, 7.0])
        for order in map(list, permutations(range(5))):
            assert np.array_equal(chances(of[order], 3), chances(of, 3)[order])


class TestSystematicDraw:
    @given(weights, st.integers(0, 12), st.integers(0, 2**32))
    def test_as_many_as_the_chances_sum_to(self, of: list[float], count: int, seed: int) -> None:
        count = min(count, len(of))
        chance = chances(np.array(of), count)
        drawn = systematic_draw(chance, np.random.default_rng(seed))
        assert len(drawn) == count
        assert (np.diff(drawn) > 0).all()
        assert set(np.flatnonzero(chance == 1).tolist()) <= set(drawn.tolist())

    def test_of_a_million(self) -> None:
        rng = np.random.default_rng(0)
        chance = chances(rng.pareto(1.2, 1_000_000) + 1e-6, 1000)
        assert 0 < np.count_nonzero(chance == 1) < 1000
        for _ in range(3):
            drawn = systematic_draw(chance, rng)
            assert len(np.unique(drawn)) == 1000

    def test_sets_have_the_probabilities_of_points_on_a_line(self) -> None:
        """Every set of two of four: the mean over orders of the length of u for which it is drawn.

        At level 1e-3.
        """
        chance = [0.9, 0.3, 0.5, 0.3]
        expected = dict.fromkeys(combinations(range(4), 2), 0.0)
        for order in permutations(range(4)):
            ends = np.cumsum([chance[k] for k in order])
            cuts = np.unique(np.append(ends % 1, [0.0, 1.0]))
            for low, high in pairwise(cuts.tolist()):
                points = (low + high) / 2 + np.arange(2)
                held = sorted(order[i] for i in np.searchsorted(ends, points, side="right"))
                expected[held[0], held[1]] += (high - low) / factorial(4)
        assert sum(expected.values()) == pytest.approx(1.0)
        for k in range(4):  # the inclusion probabilities follow
            mine = sum(p for pair, p in expected.items() if k in pair)
            assert mine == pytest.approx(chance[k])
        times = dict.fromkeys(expected, 0)
        for seed in range(4000):
            one, other = systematic_draw(np.array(chance), np.random.default_rng([3, seed]))
            times[int(one), int(other)] += 1
        possible = [pair for pair, p in expected.items() if p > 1e-12]
        assert all(times[pair] == 0 for pair in expected if pair not in possible)
        seen = [times[pair] for pair in possible]
        assert chisquare(seen, [4000 * expected[pair] for pair in possible]).pvalue > LEVEL

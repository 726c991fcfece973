"""Weighted draws against the probabilities of all ordered draws; cut-offs; filling up."""

from collections import Counter, defaultdict
from itertools import permutations

import numpy as np
import pytest
from numpy.random import Generator
from scipy import stats

from fedmuster.core.records import RoundView
from fedmuster.policies.oort.scores import not_too_often, value_at
from fedmuster.solvers.best_cohort import filled_up
from fedmuster.solvers.top_k import draw_near_top, weighted_draw

LEVEL = 1e-3


def set_probabilities(weights: list[float], count: int) -> dict[frozenset[int], float]:
    """P of each set, if one is drawn after the other in proportion to the weights of those left."""
    chance: dict[frozenset[int], float] = defaultdict(float)
    for order in permutations(range(len(weights)), count):
        left, p = sum(weights), 1.0
        for k in order:
            p *= weights[k] / left
            left -= weights[k]
        chance[frozenset(order)] += p
    return dict(chance)


def p_value(drawn: Counter[frozenset[int]], chance: dict[frozenset[int], float]) -> float:
    total = sum(drawn.values())
    assert set(drawn) <= {s for s, p in chance.items() if p > 0}
    possible = [s for s, p in chance.items() if p > 0]
    return float(
        stats.chisquare([drawn[s] for s in possible], [total * chance[s] for s in possible]).pvalue
    )


def generators(number: int) -> list[Generator]:
    return [np.random.default_rng([17, i]) for i in range(number)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_draws_have_the_probabilities_of_successive_draws(count: int) -> None:
    weights = [1.0, 2.0, 3.0, 6.0, 0.5]
    drawn = Counter(
        frozenset(weighted_draw(np.array(weights), count, rng).tolist()) for rng in generators(4000)
    )
    assert p_value(drawn, set_probabilities(weights, count)) > LEVEL


def test_weights_of_zero_come_last_and_uniformly() -> None:
    weights = np.array([0.0, 3.0, 0.0, 0.0])
    drawn = Counter(int(k) for rng in generators(3000) for k in weighted_draw(weights, 2, rng))
    assert drawn[1] == 3000
    assert stats.chisquare([drawn[k] for k in (0, 2, 3)]).pvalue > LEVEL
    assert weighted_draw(np.zeros(4), 4, generators(1)[0]).tolist() == [0, 1, 2, 3]
    assert weighted_draw(np.empty(0), 0, generators(1)[0]).tolist() == []


def test_who_is_near_the_top_is_drawn_by_score() -> None:
    # At rank 2 stands 0.8; half of it is 0.4, so three are admitted and one is not.
    scores = [0.8, 0.39, 1.0, 0.4]
    drawn = Counter(
        frozenset(draw_near_top(np.array(scores), 2, 0.5, rng).tolist()) for rng in generators(4000)
    )
    assert not any(1 in cohort for cohort in drawn)
    assert p_value(drawn, set_probabilities([0.8, 0.0, 1.0, 0.4], 2)) > LEVEL


@pytest.mark.parametrize("cut_off", [0.0, 0.95, 1.0])
def test_as_many_as_asked_for_are_always_admitted(cut_off: float) -> None:
    scores = np.random.default_rng(3).random(40)
    for count in (0, 1, 7, 40):
        for rng in generators(20):
            drawn = draw_near_top(scores, count, cut_off, rng)
            assert len(set(drawn.tolist())) == count
            if cut_off == 1.0:
                assert sorted(drawn) == sorted(np.argsort(scores)[40 - count :])


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("number", [1, 2, 10, 101])
def test_value_at_is_an_order_statistic(number: int, share: float) -> None:
    values = np.random.default_rng(number).random(number)
    assert value_at(values, share) == sorted(values)[min(int(share * number), number - 1)]


def test_nothing_is_above_the_value_of_nobody() -> None:
    assert value_at(np.empty(0), 0.3) == np.inf


def test_at_most_a_share_is_left_out_the_most_tired_first() -> None:
    times = np.array([9, 1, 8, 7, 7, 2, 0, 5, 7, 3])
    (rng,) = generators(1)
    assert not_too_often(times, None, 0.3, rng).all()
    assert np.flatnonzero(~not_too_often(times, 7, 0.3, rng)).tolist() == [0, 2]
    assert np.flatnonzero(~not_too_often(times, 4, 1.0, rng)).tolist() == [0, 2, 3, 4, 7, 8]
    thirds = Counter(
        int(k) for g in generators(3000) for k in np.flatnonzero(~not_too_often(times, 4, 0.3, g))
    )
    assert thirds[0] == thirds[2] == 3000
    assert set(thirds) == {0, 2, 3, 4, 8}  # three are tied for the third place
    assert stats.chisquare([thirds[k] for k in (3, 4, 8)]).pvalue > LEVEL


def test_a_cohort_is_filled_up_with_who_comes_first() -> None:
    available = np.array([True, True, False, True, True, True])
    first = np.array([True, False, True, False, True, True])
    view = RoundView(round=1, cohort_size=3, available=available)
    added = Counter(
        frozenset(filled_up(view, np.array([4]), first, rng).clients.tolist())
        for rng in generators(50)
    )
    assert set(added) == {frozenset({0, 4, 5})}
    wide = RoundView(round=1, cohort_size=4, available=available)
    fourth = Counter(
        frozenset(filled_up(wide, np.array([4]), first, rng).clients.tolist()) - {0, 4, 5}
        for rng in generators(2000)
    )
    assert stats.chisquare([fourth[frozenset({k})] for k in (1, 3)]).pvalue > LEVEL
    full = filled_up(view, np.array([5, 0, 1]), first, generators(1)[0])
    assert full.clients.tolist() == [0, 1, 5]

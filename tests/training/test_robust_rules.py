"""Krum and the geometric median against brute force, a solver of scipy, and bad updates."""

from itertools import combinations
from math import dist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize

from fedmuster.core.config import from_text
from fedmuster.core.errors import ConfigError
from fedmuster.training.aggregation import SERVERS
from fedmuster.training.combine import GeometricMedian, Krum, MultiKrum, WeightedMean, krum_scores


def rows_of(seed: int, count: int, length: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, length)).astype(np.float32)


def score_by_hand(rows: list[list[float]], row: int, num_bad: int) -> float:
    """The smallest sum of squared distances to any ``n - f - 2`` others."""
    others = [dist(rows[row], other) ** 2 for k, other in enumerate(rows) if k != row]
    return min(map(sum, combinations(others, max(len(rows) - num_bad - 2, 1))))


@settings(deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(3, 8), length=st.integers(1, 4))
def test_krum_is_brute_force(seed: int, count: int, length: int) -> None:
    rows = rows_of(seed, count, length)
    for num_bad in range((count - 3) // 2 + 1):
        by_hand = [score_by_hand(rows.tolist(), row, num_bad) for row in range(count)]
        np.testing.assert_allclose(krum_scores(rows, num_bad), by_hand, rtol=1e-12)
        rule = Krum(bad_share=num_bad / count)
        best = min(range(count), key=by_hand.__getitem__)
        np.testing.assert_array_equal(rule.combine(rows, np.ones(count)), rows[best])
        kept = sorted(range(count), key=by_hand.__getitem__)[: count - num_bad]
        mean = MultiKrum(bad_share=num_bad / count).combine(rows, np.ones(count))
        np.testing.assert_allclose(mean, rows[kept].mean(axis=0), rtol=1e-5, atol=1e-6)


def test_of_equal_scores_krum_takes_the_first() -> None:
    rows = np.array([[0.0], [1.0], [9.0]], np.float32)
    assert Krum(bad_share=0.0).combine(rows, np.ones(3)).tolist() == [0.0]


@pytest.mark.parametrize("rule", [Krum(bad_share=0.3), MultiKrum(bad_share=0.3), GeometricMedian()])
@pytest.mark.parametrize("count", [1, 2])
def test_few_updates_are_averaged(rule: Krum | GeometricMedian, count: int) -> None:
    rows = rows_of(1, count, 5)
    np.testing.assert_allclose(
        rule.combine(rows, np.ones(count)), rows.mean(axis=0), rtol=1e-5, atol=1e-6
    )


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), count=st.integers(3, 9), length=st.integers(1, 3))
def test_the_geometric_median_is_the_least_sum_of_distances(
    seed: int, count: int, length: int
) -> None:
    rows = rows_of(seed, count, length)
    weights = np.random.default_rng(seed + 1).uniform(0.5, 2.0, count)

    def total(point: NDArray[np.float64]) -> float:
        return float(weights @ np.linalg.norm(rows.astype(np.float64) - point, axis=1))

    found = optimize.minimize(total, rows.mean(axis=0), method="Nelder-Mead", options={
        "xatol": 1e-9, "fatol": 1e-12, "maxiter": 20_000, "maxfev": 20_000
    })  # fmt: skip
    least = min(found.fun, *(total(row) for row in rows.astype(np.float64)))
    ours = total(GeometricMedian(iterations=10_000).combine(rows, weights).astype(np.float64))
    assert ours <= least * (1 + 1e-3)


def test_on_a_line_it_is_the_median() -> None:
    rows = np.array([[1.0], [2.0], [5.0], [1e6], [-3.0]], np.float32)
    (found,) = GeometricMedian(iterations=10_000).combine(rows, np.ones(5))
    assert found == pytest.approx(2.0, abs=0.01)


def test_equal_updates_are_their_own_median() -> None:
    rows = np.tile(rows_of(3, 1, 4), (6, 1))
    np.testing.assert_array_equal(GeometricMedian().combine(rows, np.ones(6)), rows[0])


@pytest.mark.parametrize("bad", ["flipped", "huge", "noise"])
@pytest.mark.parametrize("rule", [Krum(bad_share=0.3), MultiKrum(bad_share=0.3), GeometricMedian()])
def test_three_bad_of_ten_hardly_move_it_where_they_ruin_the_mean(
    rule: Krum | GeometricMedian, bad: str
) -> None:
    rng = np.random.default_rng(4)
    truth = rng.standard_normal(50).astype(np.float32)
    rows = truth + 0.1 * rng.standard_normal((10, 50)).astype(np.float32)
    attack = {"flipped": -10 * rows[:3], "huge": rows[:3] + 1e15, "noise": 30 * rows_of(5, 3, 50)}
    rows[:3] = attack[bad]
    near = np.linalg.norm(truth) / 2
    assert np.linalg.norm(rule.combine(rows, np.ones(10)) - truth) < near
    assert np.linalg.norm(WeightedMean().combine(rows, np.ones(10)) - truth) > near


def test_a_scale_multiplies_rows_before_they_are_compared() -> None:
    rows, scale = rows_of(6, 7, 4), np.linspace(0.1, 1.0, 7)
    scaled = (rows * scale[:, np.newaxis]).astype(np.float32)
    for rule in (Krum(), MultiKrum(), GeometricMedian()):
        np.testing.assert_allclose(
            rule.combine(rows, np.ones(7), scale=scale), rule.combine(scaled, np.ones(7)), rtol=1e-4
        )


@pytest.mark.parametrize("name", ["krum", "multi-krum", "geometric-median"])
def test_a_spec_can_name_them(name: str) -> None:
    assert from_text(SERVERS, name).name == name
    combined = from_text(SERVERS, f'fedavgm:combine={{name="{name}"}}')
    assert combined.rule.name == name  # also within an optimiser


@pytest.mark.parametrize(
    "text",
    [
        "krum:bad_share=0.5",
        "multi-krum:bad_share=-0.1",
        "geometric-median:smoothing=0.0",
        "geometric-median:iterations=0",
    ],
)
def test_bad_settings_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        from_text(SERVERS, text)
    assert refusal.value.key == (text.partition(":")[2].partition("=")[0],)

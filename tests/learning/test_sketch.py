"""Short projections of updates keep their angles."""

from typing import Any

import numpy as np
import pytest

from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray
from fedmuster.training.combine import sketch

SEEDS = 400


def cosine(rows: FloatArray) -> float:
    one, other = rows
    return float(one @ other / np.sqrt((one @ one) * (other @ other)))


def pair(cos: float, rng: np.random.Generator, heavy: int = 0) -> FloatArray:
    """Two long vectors at a known angle; ``heavy`` coordinates may hold nearly all of them."""
    basis = rng.normal(size=(2, 3_000))
    basis[:, :heavy] *= 1e4
    one = basis[0] / np.linalg.norm(basis[0])
    other = basis[1] - (basis[1] @ one) * one
    other /= np.linalg.norm(other)
    return np.stack([one, cos * one + np.sqrt(1 - cos**2) * other])


@pytest.mark.parametrize("size", [16, 128])
@pytest.mark.parametrize("cos", [-0.5, 0.0, 0.6, 0.95])
def test_cosines_are_kept_within_the_stated_error(cos: float, size: int) -> None:
    """Over 400 projections: the mean within 5 standard errors and a bias of 1/size, and the
    standard deviation within 30 % of (1 - c²) / sqrt(size), which holds for large sizes; chance
    alone moves it by 15 % with probability 3e-5 (chi-square, 399 degrees of freedom).
    """
    rows = pair(cos, np.random.default_rng(1))
    found = np.array([cosine(sketch(rows, size=size, seed=seed)) for seed in range(SEEDS)])
    stated = (1 - cos**2) / np.sqrt(size)
    assert abs(found.mean() - cos) < 5 * stated / np.sqrt(SEEDS) + 1 / size
    assert found.std() == pytest.approx(stated, rel=0.3)


def test_few_heavy_coordinates_do_no_worse_than_stated() -> None:
    """Of three heavy coordinates two share a sum in about 3 / size of all projections, and then
    the angle is lost; the root mean square error stays below sqrt(2 / size).
    """
    rows = pair(0.3, np.random.default_rng(2), heavy=3)
    found = np.array([cosine(sketch(rows, size=64, seed=seed)) for seed in range(SEEDS)])
    assert np.sqrt(np.mean((found - 0.3) ** 2)) < np.sqrt(2 / 64)


def test_scalar_products_are_right_in_expectation() -> None:
    """By Student's t: |t| < 4 has probability 7e-5 to fail with 400 projections."""
    rows = pair(0.4, np.random.default_rng(3)) * np.array([[2.0], [5.0]])
    found = np.array([np.prod(sketch(rows, size=8, seed=s), axis=0).sum() for s in range(SEEDS)])
    assert abs(found.mean() - 4.0) < 4 * found.std(ddof=1) / np.sqrt(SEEDS)


def test_a_coordinate_goes_to_one_place_with_a_sign_in_all_rows() -> None:
    places = sketch(np.eye(50), size=8, seed=3)
    assert np.count_nonzero(places, axis=1).tolist() == [1] * 50
    assert set(places[places != 0].tolist()) == {-1.0, 1.0}
    weights = np.random.default_rng(4).normal(size=(3, 50))
    np.testing.assert_allclose(sketch(weights, size=8, seed=3), weights @ places)


def test_rows_longer_than_a_block_are_covered_to_the_end() -> None:
    """The first and the last coordinate of each block count, and blocks are drawn apart."""
    length = 2 * (1 << 17) + 5
    ends = np.zeros((4, length), dtype=np.float32)
    ends[range(4), [0, (1 << 17) - 1, 1 << 17, length - 1]] = 3.0
    assert np.abs(sketch(ends, size=4, seed=0)).sum(axis=1).tolist() == [3.0] * 4
    long = np.ones((1, length), dtype=np.float32)
    first, rest = long.copy(), long.copy()
    first[:, 1 << 17 :], rest[:, : 1 << 17] = 0, 0
    whole = sketch(long, size=4, seed=0)
    np.testing.assert_array_equal(
        whole, sketch(first, size=4, seed=0) + sketch(rest, size=4, seed=0)
    )
    # Blocks have different signs: were they the same, the sums of the first two would be equal.
    second = rest.copy()
    second[:, 2 << 17 :] = 0
    assert not np.array_equal(sketch(first, size=4, seed=0), sketch(second, size=4, seed=0))


def test_seeds_differ_and_calls_repeat() -> None:
    rows = np.random.default_rng(5).normal(size=(2, 100)).astype(np.float32)
    np.testing.assert_array_equal(sketch(rows, size=9, seed=1), sketch(rows, size=9, seed=1))
    np.testing.assert_array_equal(
        sketch(rows, size=9, seed=1)[1:], sketch(rows[1:], size=9, seed=1)
    )
    assert not np.array_equal(sketch(rows, size=9, seed=1), sketch(rows, size=9, seed=2))


def test_nobody_and_nothing() -> None:
    assert sketch(np.empty((0, 7), dtype=np.float32), size=3, seed=0).shape == (0, 3)
    assert sketch(np.empty((2, 0), dtype=np.float32), size=3, seed=0).tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize(
    ("deltas", "size", "message"),
    [
        (np.ones(3), 2, r"deltas has shape \(3,\), expected \[n, d\]"),
        (np.ones((1, 3)), 0, "size is 0, expected an integer >= 1"),
    ],
)
def test_wrong_arguments(deltas: Any, size: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        sketch(deltas, size=size, seed=0)

import numpy as np
import pytest

from fedmuster.bandits.linear import standardised
from fedmuster.core.errors import DataError
from fedmuster.policies.fedsuv.kernel import lower_root, solve_lower


def test_columns_have_mean_zero_and_deviation_one_whatever_their_units() -> None:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(500, 4)) * [1e-9, 1.0, 1e12, 1e306] + [0.0, 1e6, 1e12, 0.0]
    result = standardised(columns)
    np.testing.assert_allclose(result.mean(axis=0), np.zeros(4), atol=1e-12)
    np.testing.assert_allclose(result.std(axis=0), np.ones(4))
    np.testing.assert_allclose(
        result[:, 1], (columns[:, 1] - columns[:, 1].mean()) / columns[:, 1].std(), atol=1e-8
    )
    np.testing.assert_allclose(standardised(result), result, atol=1e-12)


def test_constant_columns_become_zero() -> None:
    columns = np.column_stack([np.full(7, 0.1), np.arange(7.0), np.full(7, 1e9)])
    result = standardised(columns)
    np.testing.assert_array_equal(result[:, [0, 2]], np.zeros((7, 2)))
    assert standardised(np.array([[3.0, 4.0]])).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("wrong", [np.zeros(3), np.array([[np.nan]]), np.zeros((0, 2))])
def test_what_is_no_table_of_numbers_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(DataError, match="finite numbers"):
        standardised(wrong)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 200])
def test_triangular_systems(size: int) -> None:
    rng = np.random.default_rng(size)
    half = rng.normal(size=(size, size))
    root = lower_root(half @ half.T + np.eye(size))
    right = rng.normal(size=(size, 3))
    np.testing.assert_allclose(root @ solve_lower(root, right), right, atol=1e-9)
    np.testing.assert_allclose(root @ solve_lower(root, right[:, 0]), right[:, 0], atol=1e-9)

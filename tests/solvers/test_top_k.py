"""top_k against sorting, and its fairness to ties."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedmuster.core.errors import DataError
from fedmuster.core.streams import stream
from fedmuster.solvers import top_k as module
from fedmuster.solvers.top_k import top_k

VALUES = st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 2.0, np.inf])


@pytest.mark.parametrize("large", [0, 10**9])
@given(values=st.lists(VALUES, min_size=1, max_size=70), data=st.data())
def test_takes_the_largest(large: int, values: list[float], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(values)))
    array = np.array(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LARGE", large)
        positions = top_k(array, count, stream(0, "x"))
    assert positions.dtype == np.int64
    assert (np.diff(positions) > 0).all()
    assert sorted(array[positions]) == sorted(values)[len(values) - count :]


@pytest.mark.parametrize("num_values", [100, 100_000])
@pytest.mark.parametrize("coarse", [False, True])
def test_takes_the_largest_of_many(num_values: int, coarse: bool) -> None:
    for seed in range(5):
        values = stream(seed, "layout").normal(size=num_values)
        values = np.round(values) if coarse else values
        positions = top_k(values, 37, stream(seed, "x"))
        assert np.array_equal(np.sort(values[positions]), np.sort(values)[-37:])


def test_ties_at_the_boundary_are_fair() -> None:
    values, rng = np.array([1.0, 2, 1, 1, 0, 1]), stream(5, "fairness")
    seen = Counter(tuple(top_k(values, 3, rng).tolist()) for _ in range(1_200))
    expected = [tuple(sorted((1, *pair))) for pair in combinations((0, 2, 3, 5), 2)]
    assert set(seen) <= set(expected)
    assert chisquare([seen[chosen] for chosen in expected]).pvalue > 1e-3


def test_refusals() -> None:
    with pytest.raises(DataError, match="NaN"):
        top_k(np.array([1.0, np.nan, 2.0]), 1, stream(0, "x"))
    for count in (-1, 3):
        with pytest.raises(DataError, match="expected 0 … 2"):
            top_k(np.array([1.0, 2.0]), count, stream(0, "x"))

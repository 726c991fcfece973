"""Quick medians are numpy's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from numpy.typing import NDArray

from fedmuster.core.trust.medians import median, medians, quantile

NUMBERS = st.one_of(st.floats(-1e6, 1e6), st.just(np.nan))
ROWS = arrays_of.arrays(
    np.float64, st.tuples(st.integers(0, 4), st.integers(1, 7)), elements=NUMBERS
)
SOME = arrays_of.arrays(np.float64, st.integers(1, 9), elements=st.floats(-1e6, 1e6))


@given(ROWS)
def test_of_rows_and_of_what_is_known(rows: NDArray[np.float64]) -> None:
    expected = [np.median(row[~np.isnan(row)]) if (row == row).any() else np.nan for row in rows]
    np.testing.assert_allclose(medians(rows), expected, rtol=1e-12)
    np.testing.assert_allclose([median(row) for row in rows], expected, rtol=1e-12, atol=1e-9)


@given(SOME, st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
def test_of_any_share(values: NDArray[np.float64], share: float) -> None:
    assert quantile(values, share) == pytest.approx(np.quantile(values, share), rel=1e-12, abs=1e-9)


def test_of_nothing() -> None:
    assert np.isnan(median(np.empty(0)))
    assert np.isnan(quantile(np.full(3, np.nan), 0.25))

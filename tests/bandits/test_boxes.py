"""Boxes by hand: radii, intersections, diagonals, and the scale of utility."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.bandits.means import utility_radius, validity_radius
from fedmuster.core.records import FloatArray
from fedmuster.policies.fedsuv.candidates import (
    BoxState,
    clipped,
    describe,
    diagonals,
    intersect,
    raise_scale,
    whole_plane,
)

INTERVAL = st.tuples(st.integers(-4, 4), st.integers(-4, 4)).map(sorted)


def column(*values: float) -> FloatArray:
    return np.array(values, dtype=np.float64)


def test_radii() -> None:
    # delta = 4 / e²: ln(4 / delta) / 2 = 1, so alpha = 1 + 1.
    assert validity_radius(4 / math.e**2) == pytest.approx(2.0, rel=1e-12)  # Eq. 4
    # |X| = 3, t = 10, delta = 0.5: 2 ln(3 · 9.8696044 · 100 / 1.5) = 2 ln 1973.92088 = 15.17562…
    assert utility_radius(3, 10, 0.5) ** 2 == pytest.approx(15.1756, abs=1e-4)  # Eq. 5
    assert utility_radius(3, 10, 0.5) ** 2 == pytest.approx(
        2 * math.log(3 * math.pi**2 * 10**2 / (3 * 0.5)), rel=1e-12
    )


def test_the_plane_narrows_to_the_first_rectangle() -> None:
    boxes = whole_plane(2)
    assert np.isinf(diagonals(boxes, slice(None))).all()
    intersect(boxes, (column(0.1, 0.2), column(0.4, 0.6)), (column(3.0, 5.0), column(7.0, 5.0)))
    assert boxes.validity_low.tolist() == [0.1, 0.2]
    assert boxes.validity_high.tolist() == [0.4, 0.6]
    assert boxes.utility_low.tolist() == [3.0, 5.0]
    assert boxes.utility_high.tolist() == [7.0, 5.0]


def test_an_empty_side_restarts_and_the_other_stays() -> None:
    boxes = whole_plane(3)
    intersect(boxes, (column(0, 0, 0), column(1, 1, 1)), (column(0, 0, 0), column(9, 9, 9)))
    # Client 0 narrows on both sides, 1 has an empty validity, 2 an empty utility.
    validity = column(0.5, 2.0, 0.25), column(2.0, 3.0, 0.75)
    utility = column(-1.0, 4.0, 10.0), column(5.0, 12.0, 11.0)
    intersect(boxes, validity, utility)  # Eq. 8
    assert boxes.validity_low.tolist() == [0.5, 2.0, 0.25]
    assert boxes.validity_high.tolist() == [1.0, 3.0, 0.75]
    assert boxes.utility_low.tolist() == [0.0, 4.0, 10.0]
    assert boxes.utility_high.tolist() == [5.0, 9.0, 11.0]


def test_bounds_that_touch_leave_a_point() -> None:
    boxes = whole_plane(1)
    intersect(boxes, (column(0), column(1)), (column(0), column(1)))
    intersect(boxes, (column(1), column(2)), (column(-1), column(0)))
    assert [boxes.validity_low[0], boxes.validity_high[0]] == [1.0, 1.0]
    assert [boxes.utility_low[0], boxes.utility_high[0]] == [0.0, 0.0]
    assert diagonals(boxes, slice(None)).tolist() == [0.0]


@given(rounds=st.lists(st.tuples(INTERVAL, INTERVAL), min_size=1, max_size=8))
def test_intersections_are_those_of_sets(rounds: list[tuple[list[int], list[int]]]) -> None:
    """Against sets of whole numbers, an interval at a time."""
    boxes = whole_plane(1)
    known: list[set[int]] = [set(range(-4, 5)), set(range(-4, 5))]
    for sides in rounds:
        bounds = [(column(low), column(high)) for low, high in sides]
        intersect(boxes, bounds[0], bounds[1])
        for side, (low, high) in enumerate(sides):
            new = set(range(low, high + 1))
            known[side] = (known[side] & new) or new
    corners = (
        (boxes.validity_low[0], boxes.validity_high[0]),
        (boxes.utility_low[0], boxes.utility_high[0]),
    )
    for (low, high), members in zip(corners, known, strict=True):
        assert {low, high} == {min(members), max(members)}


def test_diagonals() -> None:
    boxes = BoxState(
        validity_low=column(0.0, 0.0, 1.0),
        validity_high=column(3.0, 0.3, 1.0),
        utility_low=column(0.0, -1.0, 2.0),
        utility_high=column(40.0, 3.0, 7.0),
        utility_scale=np.array(10.0),
    )
    assert diagonals(boxes, slice(None)) == pytest.approx([5.0, 0.5, 0.5])  # Eq. 10
    assert diagonals(boxes, np.array([2, 0])) == pytest.approx([0.5, 5.0])


def test_without_any_utility_the_unit_is_one() -> None:
    boxes = whole_plane(1)
    intersect(boxes, (column(0), column(3)), (column(0), column(4)))
    assert diagonals(boxes, slice(None)).tolist() == [5.0]


def test_unknown_corners_are_told_as_nan() -> None:
    boxes = whole_plane(2)
    boxes.validity_low[0] = 0.25
    columns = describe(boxes)
    assert list(columns) == [
        "validity_low",
        "validity_high",
        "utility_low",
        "utility_high",
        "diagonal",
    ]
    assert columns["validity_low"][0] == 0.25
    assert sum(np.isnan(values).sum() for values in columns.values()) == 9


def counted(boxes: BoxState, utilities: FloatArray) -> FloatArray:
    """What a round's utilities count as, after they have raised the scale."""
    raise_scale(boxes, utilities)
    return clipped(utilities, float(boxes.utility_scale))


def test_the_scale_is_a_maximum_that_one_outlier_does_not_move() -> None:
    boxes = whole_plane(1)
    scale = boxes.utility_scale
    assert counted(boxes, column()).shape == (0,)
    assert scale == 0.0
    outlier = counted(boxes, np.append(np.arange(19.0), 1e300))
    assert scale == 17.0  # position 0.9 · 19 = 17.1, rounded down
    assert outlier.tolist() == [*range(19), 170.0]
    assert counted(boxes, column(5.0, -600.0)).tolist() == [5.0, -170.0]
    assert scale == 17.0
    raise_scale(boxes, column(-30.0, -20.0))
    assert scale == 20.0  # a loss of accuracy is as large as a gain
    assert scale.shape == ()


def test_no_utility_is_too_large_or_cut_off_at_nothing() -> None:
    boxes = whole_plane(1)
    assert counted(boxes, column(0.0, 0.5)).tolist() == [0.0, 0.5]  # the scale is still 0
    assert counted(boxes, column(1.7e308)).tolist() == [1e100]
    assert boxes.utility_scale == 1e100


def test_a_new_scale_measures_the_past_anew() -> None:
    boxes = whole_plane(1)
    intersect(boxes, (column(0), column(3)), (column(0), column(40)))
    raise_scale(boxes, column(10.0))
    assert diagonals(boxes, slice(None)).tolist() == [5.0]
    raise_scale(boxes, column(20.0))
    assert diagonals(boxes, slice(None)) == pytest.approx([math.hypot(3, 2)])

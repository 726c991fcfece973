"""Fronts and dominated boxes against all pairs, ties and points included."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.core.errors import DataError
from fedmuster.core.records import BoolArray, FloatArray
from fedmuster.core.streams import stream
from fedmuster.solvers import pareto as module
from fedmuster.solvers.pareto import Points, dominated_boxes, pareto_front

NUMBER = st.sampled_from([-np.inf, -1.0, 0.0, 0.25, 0.5, 1.0, np.inf])
FEW_NUMBERS = st.sampled_from([0.0, 1.0, 2.0])
PAIR = st.tuples(NUMBER, NUMBER) | st.tuples(FEW_NUMBERS, FEW_NUMBERS)


def front_by_pairs(values: FloatArray) -> list[bool]:
    def better(a: FloatArray, b: FloatArray) -> bool:
        return bool((a >= b).all() and (a > b).any())

    return [not any(better(other, row) for other in values) for row in values]


def dominated_by_pairs(low: FloatArray, high: FloatArray) -> list[bool]:
    """The definition, for rows of [n, 2]."""
    size = len(low)
    beats = [[bool((high[i] <= low[j]).all()) for j in range(size)] for i in range(size)]
    return [
        any(beats[i][j] and not beats[j][i] for j in range(size) if j != i) for i in range(size)
    ]


def pseudo_code(low: FloatArray, high: FloatArray) -> list[bool]:
    """Algorithm 1, lines 10 to 18: one after another, among those who are still there."""
    there = list(range(len(low)))
    for x in range(len(low)):
        if any((high[x] <= low[other]).all() for other in there if other != x):
            there.remove(x)
    return [x not in there for x in range(len(low))]


def columns(array: FloatArray) -> Points:
    return array[:, 0].copy(), array[:, 1].copy()


def boxes(corners: list[tuple[tuple[float, float], tuple[float, float]]]) -> tuple[FloatArray, ...]:
    array = np.array(corners, dtype=np.float64).reshape(-1, 2, 2)
    return array.min(axis=1), array.max(axis=1)


@pytest.mark.parametrize("large", [0, 10**9])
@given(points=st.lists(PAIR, max_size=40))
def test_front_is_that_of_all_pairs(large: int, points: list[tuple[float, float]]) -> None:
    values = np.array(points, dtype=np.float64).reshape(-1, 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LARGE", large)
        patch.setattr(module, "_SAMPLE_STRIDE", 3)
        assert pareto_front(values).tolist() == front_by_pairs(values)


@pytest.mark.parametrize("large", [0, 10**9])
@given(corners=st.lists(st.tuples(PAIR, PAIR) | PAIR.map(lambda p: (p, p)), max_size=20))
def test_dominated_boxes_are_those_of_all_pairs(
    large: int, corners: list[tuple[tuple[float, float], tuple[float, float]]]
) -> None:
    low, high = boxes(corners)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LARGE", large)
        patch.setattr(module, "_SAMPLE_STRIDE", 3)
        ours = dominated_boxes(columns(low), columns(high))
    assert ours.tolist() == dominated_by_pairs(low, high)


@given(corners=st.lists(st.tuples(PAIR, PAIR) | PAIR.map(lambda p: (p, p)), max_size=10))
def test_the_pseudo_code_differs_in_equal_points_alone(
    corners: list[tuple[tuple[float, float], tuple[float, float]]],
) -> None:
    """Of equal points that nobody else dominates it leaves the last, and we all of them."""
    low, high = boxes(corners)
    ours, theirs = dominated_boxes(columns(low), columns(high)), pseudo_code(low, high)
    survivors = {tuple(low[x]) for x in range(len(low)) if not theirs[x]}
    for x in range(len(low)):
        if ours[x] != theirs[x]:
            assert theirs[x]
            assert (low[x] == high[x]).all()
            assert tuple(low[x]) in survivors


def large_boxes(kind: str) -> tuple[FloatArray, FloatArray]:
    rng = stream(3, "boxes")
    if kind == "nested":
        low = rng.random((3_000, 2))
    elif kind == "anti-correlated":  # every worst corner is on the front
        first = rng.random(3_000)
        low = np.column_stack([first, 1.0 - first])
    else:
        low = rng.integers(0, 8, (3_000, 2)) / 8
    return low, low + rng.choice([0.0, 0.05, 0.125, 1.0], (3_000, 2))


@pytest.mark.parametrize("kind", ["nested", "anti-correlated", "coarse"])
def test_many_boxes(kind: str) -> None:
    low, high = large_boxes(kind)
    answers: list[BoolArray] = []
    for large in (100, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_LARGE", large)
            answers.append(dominated_boxes(columns(low), columns(high)))
    beats = np.logical_and.reduce(high[:, None, :] <= low[None, :, :], axis=2)
    expected = np.logical_or.reduce(beats & ~beats.T, axis=1)
    np.testing.assert_array_equal(answers[0], expected)
    np.testing.assert_array_equal(answers[1], expected)
    assert expected.any() == (kind != "anti-correlated")


def test_nobody_is_left_out_of_nobody() -> None:
    empty = np.empty(0)
    assert dominated_boxes((empty, empty), (empty, empty)).shape == (0,)
    assert pareto_front(np.empty((0, 2))).shape == (0,)


def test_unknown_clients_are_never_dominated() -> None:
    low, high = np.array([-np.inf, 1.0]), np.array([np.inf, 1.0])
    assert dominated_boxes((low, low), (high, high)).tolist() == [False, False]


def test_nan_is_refused() -> None:
    good, bad = np.array([0.0, 1.0]), np.array([0.0, np.nan])
    with pytest.raises(DataError, match="dominated_boxes: values hold NaN"):
        dominated_boxes((good, good), (good, bad))
    with pytest.raises(DataError, match="pareto_front: values hold NaN"):
        pareto_front(np.column_stack([bad, good]))

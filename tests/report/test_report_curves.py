import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fedmuster.report.curves import (
    MOST_POINTS,
    Curve,
    common_grid,
    evaluations,
    last_before,
    running_totals,
    spans_decades,
)
from fedmuster.report.runs import load
from fedmuster.report.statistics import student_t

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

NAN = math.nan


def test_mean_over_time_by_hand(write_run: "WriteRun") -> None:
    folders = [
        write_run(seed=0, seconds=[1.0, 2.0, 3.0], loss=[NAN, 8.0, 4.0]),  # at 3 and 6 s
        write_run(seed=1, seconds=[2.0, 2.0, 1.0], loss=[6.0, 2.0, 1.0]),  # at 2, 4 and 5 s
    ]
    (curve,) = evaluations(load(folders), "loss", "seconds")
    np.testing.assert_array_equal(curve.x, [3.0, 4.0, 5.0, 6.0])  # from when both have a value
    np.testing.assert_array_equal(curve.mean, [7.0, 5.0, 4.5, 2.5])
    # The second seed ends after 5 s: no band beyond, and its last model is what it has.
    t = student_t(1, 0.95)
    np.testing.assert_allclose(curve.half_width, [t * 1.0, t * 3.0, t * 3.5, NAN])


def test_mean_over_rounds_by_hand(write_run: "WriteRun") -> None:
    folders = [
        write_run(seed=0, seconds=[3.0] * 2, loss=[8.0, 4.0], horizon=6.0),
        write_run(seed=1, seconds=[2.0] * 3, loss=[6.0, 2.0, 1.0], horizon=6.0),
    ]
    (curve,) = evaluations(load(folders), "loss", "round")
    np.testing.assert_array_equal(curve.x, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(curve.mean, [7.0, 3.0, 2.5])
    assert np.isnan(curve.half_width).tolist() == [False, False, True]


def test_a_curve_ends_with_the_number_of_the_tables(write_run: "WriteRun") -> None:
    rng = np.random.default_rng(0)
    folders = []
    for seed in range(3):
        loss = rng.exponential(size=900)
        folders.append(
            write_run(seed=seed, seconds=rng.exponential(size=900).tolist(), loss=loss.tolist())
        )
    comparison = load(folders)
    finals = [run.columns["loss"][-1] for run in comparison.runs["bsfl"]]
    for axis in ("seconds", "round"):
        (curve,) = evaluations(comparison, "loss", axis)
        assert len(curve.x) <= MOST_POINTS
        assert curve.mean[-1] == pytest.approx(np.mean(finals))


def test_mean_over_time_is_that_of_brute_force(write_run: "WriteRun") -> None:
    rng = np.random.default_rng(1)
    folders = []
    for seed in range(4):
        accuracy = np.where(rng.random(60) < 0.5, rng.random(60), NAN)
        accuracy[-1] = 0.5
        folders.append(
            write_run(
                seed=seed,
                seconds=rng.exponential(size=60).tolist(),
                accuracy=accuracy.tolist(),
                loss=accuracy.tolist(),
            )
        )
    comparison = load(folders)
    (curve,) = evaluations(comparison, "accuracy", "seconds")
    for x, mean in zip(curve.x, curve.mean, strict=True):
        values = []
        for run in comparison.runs["bsfl"]:
            elapsed, value = 0.0, NAN
            for duration, evaluated in zip(
                run.columns["seconds"], run.columns["accuracy"], strict=True
            ):
                elapsed += duration
                if elapsed <= x + 1e-12 and not math.isnan(evaluated):
                    value = evaluated
            values.append(value)
        assert mean == pytest.approx(np.mean(values))


def test_totals_of_runs_that_differ_in_length(write_run: "WriteRun") -> None:
    folders = [
        write_run("bsfl", 0, seconds=[1.0] * 6, regret=[1.0] * 6, horizon=6.0),
        write_run("bsfl", 1, seconds=[2.0] * 3, regret=[3.0] * 3, horizon=6.0),
        write_run("random", 0, seconds=[6.0], horizon=6.0),
        write_run("random", 1, seconds=[3.0] * 2, horizon=6.0),
    ]
    comparison = load(folders)
    (regret,) = running_totals(comparison, "regret")  # random was not judged
    np.testing.assert_array_equal(regret.x, [1, 2, 3])
    np.testing.assert_array_equal(regret.mean, [2.0, 4.0, 6.0])
    assert [len(curve.x) for curve in running_totals(comparison, "seconds")] == [3, 1]


def test_before_the_first_there_is_nothing() -> None:
    values = last_before(np.array([0.0, 1.0]), np.array([0.5]), np.array([3.0]))
    np.testing.assert_array_equal(values, [NAN, 3.0])


def _curve(x: list[float], mean: list[float]) -> Curve:
    return Curve(label="any", x=np.array(x), mean=np.array(mean), half_width=np.zeros(len(x)))


def test_common_grid_keeps_the_ends() -> None:
    x = np.linspace(0.0, 1000.0, 5_001).tolist()
    grid = common_grid([_curve(x, x), _curve([0.123, 7.77], [1.0, 1.0])])
    assert len(grid) <= MOST_POINTS + 4
    assert {0.0, 1000.0, 0.123, 7.77} <= set(grid.tolist())
    assert len(common_grid([])) == 0


@pytest.mark.parametrize(
    ("means", "so"), [([1.0, 50.0], False), ([0.01, 5.0], True), ([0.0, 5.0], False)]
)
def test_decades(means: list[float], so: bool) -> None:
    assert spans_decades([_curve([1.0, 2.0], means)]) is so

"""Targets that cannot be derived are named."""

import numpy as np
import pytest

from claims.league import calibrate
from claims.league.cells import PlayedCourse
from claims.league.tiny import TINY
from fedmuster.core.errors import StateError


def flat(accuracy: float) -> dict[float, list[PlayedCourse]]:
    course = PlayedCourse(
        columns={"seconds": np.ones(10), "accuracy": np.full(10, accuracy)},
        cohort_sizes=np.full(10, 3),
        num_parameters=1,
    )
    return {0.1: [course]}


def test_the_highest_level_that_is_reached_is_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "courses", lambda *_: flat(0.501))
    assert calibrate.target_of(TINY) == 0.5


def test_a_setting_without_a_target_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "courses", lambda *_: flat(0.1))
    with pytest.raises(StateError) as caught:
        calibrate.target_of(TINY)
    assert TINY.name in str(caught.value)


def test_times_in_both_worlds_are_smoothed_over_the_judging_horizon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the module's rule says; the frozen horizons rest on it."""
    asked: list[float] = []

    def best(found: object, target: float, horizon: float) -> float:
        asked.append(horizon)
        return 7.0

    monkeypatch.setattr(calibrate, "courses", lambda *_: flat(0.5))
    monkeypatch.setattr(calibrate, "best_seconds", best)
    assert calibrate.tuning_horizon_of(TINY, 0.5) == pytest.approx(10.0)
    assert asked == [TINY.judging.seconds]
    assert "judging horizon" in " ".join((calibrate.__doc__ or "").split())

"""Each sentence on rounds can hold, and can fail."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from claims.by_hand import run_by_hand
from claims.claim import Finding
from claims.racing.milestone_table import share_text
from claims.racing.tuning import Trial
from claims.roundless import bottleneck as findings
from claims.roundless.contestants import (
    BSFL_3,
    BSFL_ROUNDS,
    CONTESTANTS,
    FEDBUFF_3,
    FEDBUFF_10,
    OORT_3,
    OORT_ROUNDS,
    PISCES,
    RANDOM,
)
from claims.roundless.race import BASELINE, RaceResult
from claims.roundless.settings import GROUPS, SETTINGS
from fedmuster.report.runs import Run

SECONDS = 100
TIMES: Mapping[str, int] = {
    BASELINE: 90,
    RANDOM: 45,
    BSFL_ROUNDS: 40,
    OORT_ROUNDS: 35,
    FEDBUFF_10: 30,
    FEDBUFF_3: 20,
    BSFL_3: 18,
    OORT_3: 15,
    PISCES: 16,
}
"""When each is at the level, in seconds."""


def run(label: str, seed: int, at: float, end: float, jobs: int) -> Run:
    """Accuracy 0 until the level is reached, then ``end``; a row a second."""
    accuracy = np.where(np.arange(1, SECONDS + 1) >= at + seed, end, 0.0)
    return run_by_hand(
        label,
        seed,
        [(0,) * jobs] * SECONDS,
        {
            "seconds": np.ones(SECONDS),
            "accuracy": accuracy,
            "num_completed": np.full(SECONDS, jobs),
            "num_aggregated": np.full(SECONDS, jobs),
        },
        num_parameters=1000,
    )


def result(
    times: Mapping[str, float] | None = None,
    *,
    ends: Mapping[str, float] | None = None,
    jobs: Mapping[str, int] | None = None,
) -> RaceResult:
    """Three seeds of every contestant; what is not given is as in TIMES, 0.9 and two jobs."""
    at = {**TIMES, **(times or {})}
    ended, worked = ends or {}, jobs or {}
    runs = {
        label: tuple(
            run(label, seed, at[label], ended.get(label, 0.9), worked.get(label, 2))
            for seed in range(3)
        )
        for label in TIMES
    }
    labels = [contestant.label for contestant in CONTESTANTS]
    trial = Trial(np.array([10.0, 20.0]), np.array([0.9, 0.9]))
    return RaceResult(
        setting=GROUPS,
        rates=dict.fromkeys(labels, 0.4),
        trials={label: {0.05: trial} for label in labels},
        runs=runs,
        levels=np.full(3, 0.8),
        horizon_seconds=float(SECONDS),
    )


FAILURES: list[tuple[Callable[[findings.Results], Finding], RaceResult]] = [
    (findings.fedbuff_in_every_setting, result({FEDBUFF_3: 36})),
    (findings.leaving_rounds_helps, result({BSFL_3: 45})),
    (findings.leaving_rounds_helps, result({OORT_3: np.inf})),
    (findings.more_than_choosing, result({OORT_ROUNDS: 19})),
    (findings.more_than_choosing, result({BSFL_ROUNDS: 19})),
    (findings.small_buffers, result({FEDBUFF_10: 15})),
    (findings.choosing_still_pays, result({OORT_3: 25})),
    (findings.ends_not_lower, result(ends={OORT_3: 0.88})),
    (findings.not_bought_with_work, result(jobs={FEDBUFF_3: 8})),
    (findings.one_rate_flatters, result({RANDOM: 70})),
]


def test_every_sentence_holds_where_it_should() -> None:
    for find in findings.FINDINGS:
        assert find([result()]).holds, find


@pytest.mark.parametrize(("find", "bad"), FAILURES)
def test_every_sentence_can_fail(
    find: Callable[[findings.Results], Finding], bad: RaceResult
) -> None:
    assert not find([bad]).holds
    assert not find([result(), bad]).holds


def test_every_sentence_is_tested() -> None:
    assert {find for find, _ in FAILURES} == set(findings.FINDINGS)


def test_a_lower_end_within_a_point_is_allowed() -> None:
    assert findings.ends_not_lower([result(ends={OORT_3: 0.895})]).holds


def test_shares_tell_who_never_came() -> None:
    assert share_text(np.array([0.5, np.inf])) == "reached in 1 of 2 seeds"
    assert share_text(np.array([0.5])) == "0.500"


def test_settings_have_names_of_their_own() -> None:
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)

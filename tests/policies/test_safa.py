"""SAFA: everyone is asked, and the round waits for those who were passed over."""

from typing import Any

import numpy as np
import pytest

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Feedback, Problem, RoundView
from fedmuster.core.selector import Selector
from fedmuster.core.staleness import CachedModels
from fedmuster.policies.safa import SAFA, SAFAState
from fedmuster.worlds.round_time import RoundTime

CLIENTS = 6


def compensatory(
    latency: list[float], picked_last: set[int], quota: int, limit: float
) -> tuple[set[int], float]:
    """The paper's first-come-first-merge, arrival by arrival: who is picked, when it closes."""
    picked: list[int] = []
    passed: list[int] = []
    for client in sorted(range(len(latency)), key=lambda k: latency[k]):
        if latency[client] > limit:
            break
        (passed if client in picked_last else picked).append(client)
        if len(picked) == quota:
            return set(picked), latency[client]
    everyone = len(picked) + len(passed) == len(latency)
    return set(picked + passed[: quota - len(picked)]), max(latency) if everyone else limit


def test_everyone_available_is_asked_with_the_problems_quota() -> None:
    selector = Selector(SAFA(), Problem(num_clients=CLIENTS, cohort_size=2))
    available = np.array([True, False, True, True, False, True])
    cohort = selector.select(available=available, cohort_size=3)  # an over-selecting federation
    np.testing.assert_array_equal(cohort.clients, [0, 2, 3, 5])
    assert cohort.quota == 2
    assert cohort.preferred is not None
    assert cohort.preferred.all()


@pytest.mark.parametrize("limit", [np.inf, 0.7, 0.3])
def test_rounds_close_as_the_paper_has_it(limit: float) -> None:
    """Through selector and round time, against the plain rule, for 60 rounds."""
    rng = np.random.default_rng(4)
    selector = Selector(SAFA(), Problem(num_clients=CLIENTS, cohort_size=2))
    time = RoundTime(deadline_seconds=limit)
    picked_last: set[int] = set()
    for _ in range(60):
        latency = rng.random(CLIENTS)
        cohort = selector.select()
        completed, used, seconds = time.close(cohort, latency)
        picked, expected_seconds = compensatory(latency.tolist(), picked_last, 2, limit)
        assert used is not None
        assert set(np.flatnonzero(used).tolist()) == picked
        assert seconds == expected_seconds
        selector.observe(
            Feedback(
                round=cohort.round,
                clients=cohort.clients,
                latency_seconds=np.where(completed, latency, np.inf),
                completed=completed,
                used=used,
                round_seconds=seconds,
            )
        )
        picked_last = picked


def test_only_the_last_round_counts_and_only_what_was_used() -> None:
    selector = Selector(SAFA(), Problem(num_clients=CLIENTS, cohort_size=2))
    last: list[int] = []
    for used in ([0, 1], [4], [], [2]):
        cohort = selector.select()
        assert cohort.preferred is not None
        np.testing.assert_array_equal(np.flatnonzero(~cohort.preferred), last)
        feedback = Feedback(
            round=cohort.round,
            clients=cohort.clients,
            latency_seconds=np.ones(CLIENTS),
            used=np.isin(cohort.clients, used),
        )
        selector.observe(feedback)
        last = used


def test_scores_say_for_whom_it_waits() -> None:
    available = np.array([True, True, True, False, True, True])
    state = SAFAState(picked=np.arange(CLIENTS) < 2, quota=np.array(2))
    view = RoundView(round=3, cohort_size=2, available=available)
    np.testing.assert_array_equal(SAFA().scores(state, view)["preferred"], [0, 0, 1, np.nan, 1, 1])


def test_late_answers_are_cached() -> None:
    assert SAFA().stale_answers == CachedModels(lag_tolerance=5)
    assert SAFA(lag_tolerance=2).stale_answers == CachedModels(lag_tolerance=2)


@pytest.mark.parametrize("wrong", [{"lag_tolerance": 0}, {"lag_tolerance": 1.5}])
def test_hyper_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="lag_tolerance"):
        SAFA(**wrong)

"""When rounds at edge servers close (COCS Eq. 6), by hand and against plain Python."""

import math
from typing import Any

import numpy as np
import pytest

from fedmuster.bandits.utility import participated
from fedmuster.core.edges import EdgeView
from fedmuster.core.records import FloatArray, IntArray, Selection, Truth
from fedmuster.worlds.round_time import RoundTime
from fedmuster.worlds.world import WorldRound

INF = math.inf


def closed(
    latency: list[float], edges: list[int] | None = None, **rules: Any
) -> tuple[list[bool], float]:
    at = None if edges is None else np.array(edges, dtype=np.int64)
    cohort = Selection(round=1, clients=np.arange(len(latency)), edges=at)
    rules.setdefault("deadline_seconds", 3.0)
    found = RoundTime(**rules).close(cohort, np.array(latency))
    assert found.used is None
    return found.completed.tolist(), found.seconds


def test_each_edge_closes_by_itself() -> None:
    """Edge 0 has all its answers after 2 s; edge 1 waits for client 3 until the deadline."""
    assert closed([1.0, 2.0, 0.5, 9.0], [0, 0, 1, 1]) == ([True, True, True, False], 3.0)
    assert closed([1.0, 2.0, 0.5, 2.5], [0, 0, 1, 1]) == ([True] * 4, 2.5)


def test_an_answer_at_the_deadline_is_in_time() -> None:
    assert closed([3.0], [0]) == ([True], 3.0)
    assert closed([float(np.nextafter(3.0, 4.0))], [0]) == ([False], 3.0)


def test_too_few_answers_are_waited_for_beyond_the_deadline() -> None:
    """Z = 2. Edge 0 has two in time and leaves client 2; edge 1 has one and waits for its second.

    Client 5 is the third of its edge, and not waited for.
    """
    completed, seconds = closed([1.0, 2.0, 4.0, 2.5, 7.0, 8.0], [0, 0, 0, 1, 1, 1], at_least=2)
    assert (completed, seconds) == ([True, True, False, True, True, False], 7.0)


def test_nobody_in_time_is_the_same() -> None:
    assert closed([5.0, 4.0, 6.0], [0, 0, 0], at_least=1) == ([False, True, False], 4.0)
    assert closed([5.0, 4.0, 6.0], [0, 0, 0], at_least=2) == ([True, True, False], 5.0)


def test_an_edge_that_asked_fewer_waits_for_all_of_them() -> None:
    assert closed([1.0, 4.0], [0, 1], at_least=3) == ([True, True], 4.0)


def test_who_never_answers_is_not_waited_for() -> None:
    assert closed([INF, 4.0], [0, 0], at_least=2) == ([False, True], 4.0)
    assert closed([INF, 1.0], [0, 0], at_least=2) == ([False, True], 3.0)
    assert closed([INF, INF, 1.0], [0, 0, 1], at_least=1) == ([False, False, True], 3.0)


def test_the_edges_own_work_comes_on_top() -> None:
    assert closed([1.0, 2.0], [0, 1], edge_seconds=0.25) == ([True, True], 2.25)
    assert closed([1.0, 9.0], [0, 1], edge_seconds=0.25) == ([True, False], 3.25)
    assert closed([1.0, 9.0], [0, 1], at_least=1, edge_seconds=0.25) == ([True, True], 9.25)
    assert closed([], [], at_least=1, edge_seconds=0.25) == ([], 0.0)


def test_patience_ends() -> None:
    assert closed([5.0, 40.0], [0, 1], at_least=1, patience_seconds=30.0) == ([True, False], 30.0)
    assert closed([5.0, 6.0], [0, 0], at_least=2, patience_seconds=5.5) == ([True, False], 5.5)


def test_flat_federated_learning_knows_the_least_number_too() -> None:
    assert closed([1.0, 5.0, 4.0, 9.0], at_least=2) == ([True, False, True, False], 4.0)
    assert closed([1.0, 2.0, 4.0], at_least=2) == ([True, True, False], 3.0)
    assert closed([1.0, 2.0, 4.0], [0, 0, 0], at_least=2) == ([True, True, False], 3.0)


def by_the_paper(
    latency: FloatArray, edges: IntArray, deadline: float, least: int, work: float, patience: float
) -> tuple[list[bool], float]:
    """Eq. 6 as it stands, edge by edge: all in time, or the Z fastest if these are fewer."""
    completed = [False] * len(latency)
    ends = [0.0]
    for edge in set(edges.tolist()):
        asked = [k for k in range(len(latency)) if edges[k] == edge]
        in_time = [k for k in asked if latency[k] <= deadline]
        arrivals = sorted((float(latency[k]), k) for k in asked if latency[k] < INF)
        used, end = in_time, deadline
        if len(in_time) < least and len(arrivals) > len(in_time):
            used = [k for seconds, k in arrivals[:least] if seconds <= max(patience, deadline)]
            end = min(max(seconds for seconds, _ in arrivals[:least]), patience)
        if len(used) == len(asked):
            end = max(float(latency[k]) for k in asked)
        for k in used:
            completed[k] = True
        ends.append(end + work)
    return completed, max(ends)


@pytest.mark.parametrize("seed", range(4))
def test_closing_equals_eq_6_edge_by_edge(seed: int) -> None:
    rng = np.random.default_rng(seed)
    waited = 0
    for _ in range(300):
        size, num_edges = int(rng.integers(1, 9)), int(rng.integers(1, 4))
        latency = rng.exponential(2.0, size)
        latency[rng.random(size) < 0.15] = INF
        edges = rng.integers(num_edges, size=size)
        least, work = int(rng.integers(0, 4)), float(rng.choice([0.0, 0.1]))
        patience = float(rng.choice([2.0, 3.5, INF]))
        expected = by_the_paper(latency, edges, 2.0, least, work, patience)
        found = closed(
            latency.tolist(),
            edges.tolist(),
            deadline_seconds=2.0,
            at_least=least,
            patience_seconds=patience,
            edge_seconds=work,
        )
        assert found == expected
        waited += expected[1] > 2.0 + work
    assert waited > 30  # the rule was needed


K, M = 4, 2
LATENCY = np.array([[1.0, 9.0], [5.0, 2.0], [6.0, 7.0], [INF, 4.0]])


def round_of(latency: FloatArray = LATENCY, *, at_least: int = 0) -> WorldRound:
    return WorldRound(
        round=1,
        available=np.ones(K, bool),
        features=None,
        latency_seconds=latency,
        expectation=lambda: Truth(mean_latency_seconds=np.ones(K), mean_speed=np.ones(K)),
        time=RoundTime(deadline_seconds=3.0, at_least=at_least, edge_seconds=0.5),
        signals={
            "of client": np.array([0.5, 1.5, 2.5, 3.5]),
            "of pair": np.arange(8.0).reshape(K, M),
        },
        now_seconds=100.0,
        edges=EdgeView(coverage=np.ones((K, M), bool), cost=np.ones(K), budget=np.full(M, 9.0)),
    )


def placed(*edges: int) -> Selection:
    return Selection(round=1, clients=np.arange(len(edges)), edges=np.array(edges))


def test_a_round_takes_what_a_client_does_at_its_own_edge() -> None:
    outcome = round_of().play(placed(0, 1, 0, 1))
    feedback = outcome.feedback
    assert feedback.answered.tolist() == [True, True, False, False]
    assert feedback.latency_seconds.tolist() == [1.0, 2.0, INF, INF]
    np.testing.assert_array_equal(feedback.signals["of client"], [0.5, 1.5, np.nan, np.nan])
    np.testing.assert_array_equal(feedback.signals["of pair"], [0.0, 3.0, np.nan, np.nan])
    assert outcome.round_seconds == feedback.round_seconds == 3.5
    np.testing.assert_array_equal(feedback.signals["in_time"], [1.0, 1.0, np.nan, np.nan])
    assert outcome.latency_seconds.tolist() == [1.0, 2.0, 6.0, 4.0]


def test_the_server_is_told_who_was_only_waited_for() -> None:
    """Edge 0 has client 0 in time, and waits for 2 of 6 s; edge 1 waits for 3 until 4 s."""
    outcome = round_of(at_least=2).play(placed(0, 1, 0, 1))
    feedback = outcome.feedback
    assert feedback.answered.all()
    assert feedback.latency_seconds.tolist() == [1.0, 2.0, 6.0, 4.0]
    assert feedback.signals["in_time"].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert participated(feedback).tolist() == [True, True, False, False]
    assert outcome.round_seconds == 6.5
    assert outcome.latency_seconds.tolist() == [1.0, 2.0, 6.0, 4.0]


def test_who_was_not_waited_for_tells_nothing() -> None:
    """Edge 0 waits for the fastest of 5 s, 6 s and never, edge 1 for its only one, until 9 s."""
    outcome = round_of(at_least=1).play(placed(1, 0, 0, 0))
    feedback = outcome.feedback
    assert feedback.answered.tolist() == [True, True, False, False]
    np.testing.assert_array_equal(feedback.signals["in_time"], [0.0, 0.0, np.nan, np.nan])
    assert not participated(feedback).any()
    assert outcome.latency_seconds.tolist() == [9.0, 5.0, 6.0, INF]
    assert outcome.round_seconds == 9.5


def test_latencies_of_clients_are_the_same_at_all_edges() -> None:
    per_client = np.array([1.0, 2.0, 5.0, INF])
    for edges in ((0, 0, 0, 0), (1, 0, 1, 0)):
        feedback = round_of(per_client).play(placed(*edges)).feedback
        assert feedback.latency_seconds.tolist() == [1.0, 2.0, INF, INF]


def test_nobody_is_asked() -> None:
    nobody = Selection(round=1, clients=np.arange(0), edges=np.arange(0))
    outcome = round_of(at_least=1).play(nobody)
    assert len(outcome.feedback.clients) == 0
    assert outcome.round_seconds == 3.0  # the deadline

"""The oracle of COCS: P2 on the truth, against brute force."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tests.policies.small_networks import KINDS, Round, rounds

from fedmuster.core.config import from_table
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.records import FloatArray, Problem, Truth
from fedmuster.core.selector import Selector
from fedmuster.policies.oracle import Oracle
from fedmuster.solvers.assignment import ExactAssignment, FLGreedy

TINY = {"num_clients": 6, "num_edges": 2}


def worth(played: Round, value: FloatArray) -> float:
    return float(played.selection.rows_of(value).sum())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 6])
def test_the_probabilities_buy_the_best(kind: str, size: int) -> None:
    for played in rounds(Oracle(), kind, 25, **TINY, cohort_size=size):
        assert played.truth.success is not None
        best = played.best_total(played.truth.success, size)
        assert worth(played, played.truth.success) == pytest.approx(best, abs=1e-12)


def test_a_clairvoyant_buys_the_most_answers() -> None:
    for played in rounds(Oracle(knows="outcome"), "mixed", 70, **TINY):
        assert played.truth.succeeds is not None
        outcome = played.truth.succeeds.astype(np.float64)
        assert worth(played, outcome) == played.best_total(outcome, 6)


def test_any_solver_will_do() -> None:
    for played in rounds(Oracle(solver=ExactAssignment()), "overlapping", 15, **TINY):
        assert played.truth.success is not None
        best = played.best_total(played.truth.success, 6)
        assert worth(played, played.truth.success) == pytest.approx(best, abs=1e-6)
    greedy = FLGreedy(epsilon=0.3)
    for played in rounds(Oracle(solver=greedy), "overlapping", 25, **TINY):
        assert played.truth.success is not None
        best = played.best_total(played.truth.success, 6)
        assert worth(played, played.truth.success) >= best / (1.3 * (2 + 2 * 2))  # Lemma 3


def test_in_flat_federated_learning_it_takes_the_fastest() -> None:
    seconds = np.array([0.5, 0.1, 0.4, 0.2])
    truth = Truth(mean_latency_seconds=seconds, mean_speed=0.1 / seconds)
    chosen = Selector(Oracle(), Problem(num_clients=4, cohort_size=2)).select(truth=truth)
    assert chosen.clients.tolist() == [1, 3]
    assert chosen.edges is None


def test_a_round_worked_by_hand() -> None:
    """Two edges with 3.5 each. Client 0 costs 3, the others 1.5; client 2 reaches edge 1 only.

    Best: 1 and 3 at edge 0, 2 at edge 1: 1.7, more than with 0 in the place of 2 (1.6) or of 1 and
    3 (1.5). When client 2 is away, 0 takes its place.
    """
    edges = EdgeView(
        coverage=np.array([[True, True], [True, False], [False, True], [True, False]]),
        cost=np.array([3.0, 1.5, 1.5, 1.5]),
        budget=np.full(2, 3.5),
    )
    success = np.array([[0.9, 0.5], [0.6, 0.0], [0.0, 0.6], [0.5, 0.0]])
    truth = Truth(mean_latency_seconds=np.ones(4), mean_speed=np.ones(4), success=success)
    for away, clients, at in ((4, [1, 2, 3], [0, 1, 0]), (2, [0, 1, 3], [1, 0, 0])):
        selector = Selector(Oracle(), Problem(num_clients=4, cohort_size=4, num_edges=2))
        chosen = selector.select(available=np.arange(4) != away, edges=edges, truth=truth)
        assert chosen.edges is not None
        assert (chosen.clients.tolist(), chosen.edges.tolist()) == (clients, at)
    # With client 1 less likely, 0 at edge 0 and 2 at edge 1 are worth 1.5 > 0.3 + 0.5 + 0.6.
    changed = replace(truth, success=np.where(success == 0.6, [[0.3, 0.6]], success))
    selector = Selector(Oracle(), Problem(num_clients=4, cohort_size=4, num_edges=2))
    assert selector.select(edges=edges, truth=changed).clients.tolist() == [0, 2]


def test_ties_favour_nobody() -> None:
    """Four alike, of whom one can be paid: chi-square with 3 freedoms, 1 - 1e-5."""
    edges = EdgeView(
        coverage=np.ones((4, 1), dtype=np.bool_), cost=np.ones(4), budget=np.array([1.5])
    )
    truth = Truth(
        mean_latency_seconds=np.ones(4), mean_speed=np.ones(4), success=np.full((4, 1), 0.5)
    )
    times = np.zeros(4)
    for seed in range(200):
        problem = Problem(num_clients=4, cohort_size=4, num_edges=1)
        selector = Selector(Oracle(), problem, seed=seed)
        times[selector.select(edges=edges, truth=truth).clients] += 1
    assert times.sum() == 200
    assert np.sum((times - 50) ** 2 / 50) < 25.902


def test_more_knowledge_is_worth_more() -> None:
    """Answers over 50 rounds."""
    answers = []
    for knows in ("outcome", "probability"):
        policy = Oracle() if knows == "probability" else Oracle(knows="outcome")
        answers.append(
            sum(
                worth(played, played.truth.succeeds.astype(np.float64))
                for played in rounds(policy, "overlapping", 50)
                if played.truth.succeeds is not None
            )
        )
    assert all(more > less for more, less in pairwise(answers))


def test_what_it_must_be_told() -> None:
    edges = EdgeView(
        coverage=np.ones((2, 1), dtype=np.bool_), cost=np.ones(2), budget=np.array([1.5])
    )
    truth = Truth(mean_latency_seconds=np.ones(2), mean_speed=np.ones(2))
    problem = Problem(num_clients=2, cohort_size=2, num_edges=1)
    with pytest.raises(DataError, match=r"Truth\.success"):
        Selector(Oracle(), problem).select(edges=edges, truth=truth)
    known = replace(truth, success=np.ones((2, 1)))
    with pytest.raises(DataError):
        Selector(Oracle(knows="outcome"), problem).select(edges=edges, truth=known)
    with pytest.raises(ConfigError, match="knows"):
        from_table(Oracle, {"knows": "everything"})

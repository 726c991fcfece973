"""Regret at edge servers (COCS Eq. 11) against every placement there is."""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.records import Feedback, FloatArray, Problem, RoundView, Selection, Truth
from fedmuster.federation.regret import CohortJudge, PlacementJudge, judge_for
from fedmuster.policies.genie import Genie

UTILITIES = [EdgeUtility(), EdgeUtility(utility="square-root")]
NOBODY = -1

Assignment = tuple[int, ...]
"""The edge of each client, or NOBODY's."""


def worth(participants: float, num_edges: int, utility: EdgeUtility) -> float:
    """Eq. 8 and 19, once more."""
    mean = participants / num_edges
    return math.sqrt(mean) if utility.utility == "square-root" else mean


def placements(view: RoundView) -> Iterator[Assignment]:
    """Everything that coverage, budgets, availability and the cohort size allow."""
    network = view.network
    for at in product(range(NOBODY, network.num_edges), repeat=network.num_clients):
        chosen = [(k, m) for k, m in enumerate(at) if m != NOBODY]
        if len(chosen) > view.cohort_size:
            continue
        if not all(view.available[k] and network.coverage[k, m] for k, m in chosen):
            continue
        spent = [math.fsum(network.cost[k, m] for k, m in chosen if m == edge)
                 for edge in range(network.num_edges)]  # fmt: skip
        if all(cost <= budget for cost, budget in zip(spent, network.budget, strict=True)):
            yield at


def expected(at: Assignment, success: FloatArray) -> float:
    return math.fsum(success[k, m] for k, m in enumerate(at) if m != NOBODY)


def selection(at: Assignment, *, round_: int = 1) -> Selection:
    clients = [k for k, m in enumerate(at) if m != NOBODY]
    return Selection(
        round=round_,
        clients=np.array(clients, dtype=np.int64),
        edges=np.array([at[k] for k in clients], dtype=np.int64),
    )


def tiny(seed: int) -> tuple[RoundView, FloatArray]:
    """Five clients, two edges; tight, free, infinite and empty budgets; odds of 0, 1 and equal."""
    rng = np.random.default_rng(seed)
    shape = (5, 2)
    success = rng.random(shape).round(int(rng.integers(1, 9)))
    cost = rng.integers(0, 6, shape) / 10 if seed % 2 else rng.random(shape)
    edges = EdgeView(
        coverage=rng.random(shape) < rng.choice([0.3, 0.7, 1.0]),
        cost=cost,
        budget=rng.choice([0.0, 0.3, 0.7, 1.5, np.inf], size=2, p=[0.1, 0.3, 0.3, 0.2, 0.1]),
    )
    view = RoundView(
        round=1,
        cohort_size=int(rng.choice([2, 5])),
        available=edges.covered & (rng.random(5) < 0.9),
        edges=edges,
        truth=Truth(mean_latency_seconds=np.ones(5), mean_speed=np.ones(5), success=success),
    )
    return view, success


@pytest.mark.parametrize("utility", UTILITIES, ids=lambda u: u.utility)
@pytest.mark.parametrize("seed", range(40))
def test_regret_is_that_of_brute_force_and_never_negative(seed: int, utility: EdgeUtility) -> None:
    view, success = tiny(seed)
    every = list(placements(view))
    most = max(expected(at, success) for at in every)
    judge = PlacementJudge(utility, Problem(num_clients=5, cohort_size=5, num_edges=2), seed=seed)
    rng = np.random.default_rng(seed)
    best = max(every, key=lambda at: expected(at, success))
    nobody = (NOBODY,) * 5
    for at in (best, nobody, *(every[i] for i in rng.integers(len(every), size=6))):
        verdict = judge.assess(view, selection(at))
        gap = worth(most, 2, utility) - worth(expected(at, success), 2, utility)
        assert verdict.regret == pytest.approx(gap, abs=1e-12)
        assert verdict.regret >= 0.0
        assert verdict.additive == 0.0
    assert judge.assess(view, selection(best)).regret == pytest.approx(0.0, abs=1e-12)


def test_the_best_placement_of_one_utility_is_that_of_the_other() -> None:
    """P2 and P3 have the same maximiser: the square root is increasing."""
    for seed in range(20):
        view, success = tiny(seed)
        every = [expected(at, success) for at in placements(view)]
        linear, root = ([worth(total, 2, utility) for total in every] for utility in UTILITIES)
        assert np.argmax(linear) == np.argmax(root)


@pytest.mark.parametrize("utility", UTILITIES, ids=lambda u: u.utility)
def test_the_reward_is_the_utility_of_those_who_took_part(utility: EdgeUtility) -> None:
    judge = PlacementJudge(utility, Problem(num_clients=9, cohort_size=9, num_edges=3), seed=0)
    verdict = judge.assess(*_a_round())
    answers = Feedback(
        round=1,
        clients=np.arange(5),
        latency_seconds=np.array([1.0, 2.0, 9.0, np.inf, 1.5]),
        completed=np.array([True, True, True, False, True]),
        signals={"in_time": np.array([1.0, 1.0, 0.0, np.nan, 1.0])},
    )
    assert judge.reward(verdict, answers, tau_min_seconds=0.1) == worth(3, 3, utility)
    unsaid = Feedback(
        round=1,
        clients=np.arange(5),
        latency_seconds=answers.latency_seconds,
        completed=answers.completed,
    )
    assert judge.reward(verdict, unsaid, tau_min_seconds=0.1) == worth(4, 3, utility)
    nobody = Feedback(round=1, clients=np.arange(0), latency_seconds=np.zeros(0))
    assert judge.reward(verdict, nobody, tau_min_seconds=0.1) == 0.0


def _a_round() -> tuple[RoundView, Selection]:
    view, _ = tiny(1)
    return view, selection((NOBODY,) * 5)


def test_it_repeats_and_has_no_history() -> None:
    problem = Problem(num_clients=5, cohort_size=5, num_edges=2)
    judge, other = (PlacementJudge(EdgeUtility(), problem, seed=3) for _ in range(2))
    view, _ = tiny(7)
    nobody = selection((NOBODY,) * 5)
    first = judge.assess(view, nobody)
    feedback = Feedback(round=1, clients=np.arange(0), latency_seconds=np.zeros(0))
    for _ in range(3):
        judge.record(nobody, feedback)
    other.load(judge.to_bytes(), source="memory")
    assert judge.assess(view, nobody) == other.assess(view, nobody) == first


def test_a_view_without_odds_is_refused() -> None:
    judge = PlacementJudge(
        EdgeUtility(), Problem(num_clients=2, cohort_size=2, num_edges=2), seed=0
    )
    told_nothing = RoundView(round=1, cohort_size=2, available=np.ones(2, bool))
    flat_truth = Truth(mean_latency_seconds=np.ones(2), mean_speed=np.ones(2))
    flat = RoundView(round=1, cohort_size=2, available=np.ones(2, bool), truth=flat_truth)
    for view in (told_nothing, flat):
        with pytest.raises(DataError):
            judge.assess(view, Selection(round=1, clients=np.arange(0)))


def test_who_judges_follows_from_what_is_measured() -> None:
    problem = Problem(num_clients=5, cohort_size=5, num_edges=2)
    assert isinstance(judge_for(EdgeUtility(), problem, seed=1), PlacementJudge)
    flat = Problem(num_clients=5, cohort_size=5)
    assert isinstance(judge_for(Genie(), flat, seed=1), CohortJudge)
    with pytest.raises(ConfigError, match="EdgeUtility"):
        judge_for(Genie(), problem, seed=1)
    with pytest.raises(ConfigError):
        judge_for(EdgeUtility(), flat, seed=1)

"""What policies publish as scores is what they choose by."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from fedmuster import BSFL, CSUCB, CSUCBQ, PAUSE, RBCSF, PowerOfChoice
from fedmuster.core.policy import Policy
from fedmuster.core.records import BoolArray, Feedback, FloatArray, IntArray, Problem
from fedmuster.core.selector import Selector

K, M, ROUNDS = 9, 3, 40


def _played(policy: Policy[Any]) -> list[tuple[BoolArray, IntArray, dict[str, FloatArray]]]:
    """Who was available, chosen and thought what of, in rounds with partial availability."""
    rng = np.random.default_rng(1)
    speed = rng.uniform(0.5, 2.0, K)
    selector = Selector(policy, Problem(num_clients=K, cohort_size=M), seed=3)
    told = []
    for _ in range(ROUNDS):
        available = rng.random(K) < 0.8
        selection = selector.select(available=available)
        told.append((available, selection.clients, selector.scores()))
        clients = selection.clients
        selector.observe(
            Feedback(
                round=selection.round,
                clients=clients,
                latency_seconds=speed[clients] * rng.uniform(0.8, 1.2, len(clients)),
                completed=rng.random(len(clients)) < 0.9,
                signals={"loss": rng.random(len(clients))},
            )
        )
    return told


@pytest.mark.parametrize(
    "policy",
    [
        CSUCB(),
        CSUCBQ(),
        CSUCBQ(queue_weight=1.0),
        CSUCB(bonus="minimax"),
        BSFL(alpha=0.0, bonus="minimax"),
        BSFL(alpha=0.0, bonus="variance"),
        PowerOfChoice(),
        BSFL(alpha=0.0),  # the largest minimum of m is that of the m largest
        PAUSE(alpha=0.0, gamma=0.0),
    ],
    ids=repr,
)
def test_the_highest_scores_are_taken(policy: Policy[Any]) -> None:
    unseen = 0
    for available, chosen, scores in _played(policy):
        assert not any(np.isinf(values).any() for values in scores.values())
        unseen += int(np.count_nonzero(np.isnan(scores["score"])))
        rank = np.nan_to_num(scores["score"], nan=np.inf)  # of the unseen: first
        others = available.copy()
        others[chosen] = False
        assert rank[chosen].min(initial=np.inf) >= rank[others].max(initial=-np.inf)
    assert unseen > 0 or isinstance(policy, CSUCBQ)  # whose index has an upper limit


def test_latency_and_queue_are_what_rbcs_f_weighs() -> None:
    policy = RBCSF(patience=2.0)
    for available, chosen, scores in _played(policy):
        latency, owed = scores["latency_seconds"], scores["owed_rounds"]

        def worth(
            cohort: IntArray, latency: FloatArray = latency, owed: FloatArray = owed
        ) -> float:
            return float(policy.patience * latency[cohort].max() - owed[cohort].sum())

        cohorts = combinations(np.flatnonzero(available).tolist(), len(chosen))
        best = min(worth(np.array(cohort)) for cohort in cohorts)
        assert worth(chosen) == pytest.approx(best)


def test_losses_that_must_be_asked_for_are_nobodys_score() -> None:
    policy = PowerOfChoice(variant="pow-d")
    selector = Selector(policy, Problem(num_clients=K, cohort_size=M), seed=3)
    selector.select(ask_loss=lambda clients, *, batch_size=None: np.ones(len(clients)))
    assert selector.scores() == {}


def test_bsfl_publishes_the_index_of_its_paper() -> None:
    selector = Selector(BSFL(tau_min_seconds=0.5), Problem(num_clients=3, cohort_size=1), seed=0)
    latency = np.array([1.0, 2.0, 4.0])
    asked = np.zeros(3)
    for _ in range(5):
        clients = selector.select().clients
        asked[clients] += 1
        selector.observe(
            Feedback(round=selector.round, clients=clients, latency_seconds=latency[clients])
        )
    selector.select()
    index = 0.5 / latency + np.sqrt(2 * np.log(5) / asked)  # Eq. 9, 12 with m = 1, t = 5
    np.testing.assert_allclose(selector.scores()["score"], index)

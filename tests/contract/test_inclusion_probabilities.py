"""Whether clients are chosen as often as selections say: chi-squared tests over many draws."""

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, chisquare
from tests.policies.test_exploring import Firsts, cohort_chances

from fedmuster import (
    BSFL,
    CSUCB,
    ClusteredSampling,
    Exploring,
    FedBuff,
    Oort,
    OptimalSampling,
    PowerOfChoice,
    Random,
)
from fedmuster.core.arrays import FloatArray
from fedmuster.core.policy import Policy
from fedmuster.core.records import RoundView
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.fedsuv import FedSUV
from fedmuster.testing import Knowledge
from fedmuster.testing.playing import trained
from fedmuster.testing.tiny_federation import TinyFederation, varied_seconds

LEVEL = 1e-4
"""Of each test; so of all tests here together less than 1e-2."""
DRAWS = 3_000
CLIENTS = 9
FEDERATION = TinyFederation(
    mean_seconds=varied_seconds(CLIENTS), knowledge=Knowledge(), mishaps=True
)
AWAY = 4
"""One client is never available."""


def weighted_cohorts(policy: Policy[Any], *, count: int) -> FloatArray:
    """[DRAWS, K - 1], of each available client ``1/pi`` where it was chosen, else 0.

    The policy has learned for 25 rounds; then it chooses for one round with many seeds.
    """
    state = trained(policy, FEDERATION, 25)
    drawn = FEDERATION.draw(26)
    available = np.arange(CLIENTS) != AWAY
    view = RoundView(
        round=26,
        cohort_size=count,
        available=available,
        features=drawn.features,
        ask_loss=drawn.ask_loss,
    )
    weights = np.zeros((DRAWS, CLIENTS))
    for seed in range(DRAWS):
        chosen = policy.select(state, view, stream(seed, POLICY, 26))
        assert chosen.inclusion is not None
        weights[seed, chosen.clients] = 1.0 / chosen.inclusion
    assert not weights[:, AWAY].any()
    return weights[:, available]


def p_value(weights: FloatArray) -> float:
    """Of the hypothesis that each column has the mean 1, by Hotelling's statistic.

    ``n d' C^- d`` with the deviation d of the means and the covariance C of the rows has, for many
    rows, a chi-squared law; its degrees of freedom are the rank of C, less than the number of
    columns where cohorts have a fixed size.
    """
    deviation = weights.mean(axis=0) - 1.0
    values, vectors = np.linalg.eigh(np.cov(weights.T))
    free = values > 1e-9 * values.max(initial=1e-12)
    along = vectors.T @ deviation
    if np.abs(along[~free]).max(initial=0.0) > 1e-9:
        return 0.0  # what does not vary must be 1
    statistic = len(weights) * np.sum(along[free] ** 2 / values[free])
    return float(chi2.sf(statistic, np.count_nonzero(free))) if free.any() else 1.0


STATING: dict[str, Policy[Any]] = {
    "random": Random(),
    "fedbuff": FedBuff(),
    "clustered-sampling": ClusteredSampling(),
    "clustered-sampling, by similarity": ClusteredSampling(by="similarity", sketch_size=8),
    "optimal-sampling": OptimalSampling(),
    "optimal-sampling, alike": OptimalSampling(by_data=False, unseen="mean", floor=0.5),
}
MIXED: dict[str, Policy[Any]] = {
    "bsfl": BSFL(),
    "cs-ucb": CSUCB(),
    "oort": Oort(),
    "power-of-choice": PowerOfChoice(num_candidates=5),
    "fedsuv": FedSUV(),
    "random": Random(),
    "clustered-sampling": ClusteredSampling(),
    "optimal-sampling": OptimalSampling(),
}


@pytest.mark.parametrize("count", [1, 3, 8, 20])
@pytest.mark.parametrize("name", STATING)
def test_clients_are_chosen_as_often_as_the_policy_says(name: str, count: int) -> None:
    assert p_value(weighted_cohorts(STATING[name], count=count)) > LEVEL


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", MIXED)
def test_clients_are_explored_as_often_as_is_said(name: str, count: int) -> None:
    mixed = Exploring(policy=MIXED[name], explore=0.3)
    assert p_value(weighted_cohorts(mixed, count=count)) > LEVEL


def test_the_test_sees_wrong_probabilities() -> None:
    """Of two clients, of which one is taken for likelier, or of all clients that are explored."""
    weights = weighted_cohorts(Random(), count=3)
    weights[:, 2] *= 1.2
    weights[:, 3] /= 1.2
    assert p_value(weights) < LEVEL
    mixed = Exploring(policy=BSFL(), explore=0.3)
    weights = weighted_cohorts(mixed, count=3)
    assert p_value(np.minimum(weights, 2.0)) < LEVEL


@pytest.mark.parametrize("explore", [Fraction(1, 4), Fraction(4, 5)])
def test_cohorts_come_as_often_as_they_should(explore: Fraction) -> None:
    """Every cohort of 3 of 6 clients, of whom the policy wants 0, 1 and 3 (2 is away)."""
    policy = Exploring(policy=Firsts(), explore=float(explore))
    available = np.arange(7) != 2
    view = RoundView(round=1, cohort_size=3, available=available)
    times: Counter[tuple[int, ...]] = Counter()
    for seed in range(DRAWS):
        times[tuple(policy.select(None, view, stream(seed, POLICY, 1)).clients.tolist())] += 1
    chance = cohort_chances({0, 1, 3}, {0, 1, 3, 4, 5, 6}, explore)
    expected = [DRAWS * float(p) for p in chance.values()]
    assert set(times) <= set(chance)
    assert chisquare([times[who] for who in chance], expected).pvalue > LEVEL

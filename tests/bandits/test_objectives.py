import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.bandits.rewards import (
    CohortReward,
    empty_queues,
    generalisation,
    queue_length,
    remaining_privacy,
    repeats,
    serve,
)
from fedmuster.core.config import from_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Problem
from fedmuster.privacy.schedules import Geometric


@pytest.mark.parametrize("beta", [0.5, 1.0, 1.2, 2.0])
def test_generalisation_is_equation_3(beta: float) -> None:
    count = np.array([0, 1, 5, 10])
    for client, c in enumerate(count):
        x = 0.25 - c / 20
        expected = abs(x) ** beta * (1 if x > 0 else -1 if x < 0 else 0)
        value = generalisation(count, 20, np.array(0.25), beta=beta)[client]
        assert value == pytest.approx(expected, abs=1e-15)


def test_shares_follow_size_and_quality() -> None:
    """BSFL Eq. 4: d_k = q_k |X_k|."""
    problem = Problem(
        num_clients=3,
        cohort_size=2,
        num_samples=np.array([10, 20, 40]),
        quality=np.array([1.0, 0.5, 0.25]),
    )
    assert problem.target_share().tolist() == pytest.approx([2 / 3] * 3)
    only_sizes = Problem(num_clients=2, cohort_size=1, num_samples=np.array([1, 3]))
    assert only_sizes.target_share().tolist() == [0.25, 0.75]
    alike = Problem(num_clients=8, cohort_size=2).target_share()
    assert alike.ndim == 0
    assert float(alike) == 0.25


def test_privacy_left_is_one_minus_the_sum_of_the_schedule() -> None:
    """PAUSE Eq. 6 and 7, added up term by term."""
    eta, budget = 0.04, 40.0
    for count in (0, 1, 7, 200):
        spent = sum(budget * (math.exp(eta) - 1) * math.exp(-eta * i) for i in range(1, count + 1))
        left = remaining_privacy(np.array([count]), Geometric(eta=eta))[0]
        assert left == pytest.approx(1 - spent / budget)


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=30),
    st.integers(1, 50),
    st.booleans(),
    st.sampled_from([0.0, 5.0]),
)
def test_weights_by_table_equal_weights_one_by_one(
    counts: list[int], rounds: int, alike: bool, gamma: float
) -> None:
    reward = CohortReward(alpha=3.0, beta=1.2, gamma=gamma, schedule=Geometric(eta=0.1))
    target = np.array(0.2) if alike else np.linspace(0.1, 0.4, len(counts))
    weights = reward.weights(np.array(counts), rounds, target)
    for client, count in enumerate(counts):
        x = float(target if alike else target[client]) - count / rounds
        expected = 3.0 * math.copysign(abs(x) ** 1.2, x) + gamma * math.exp(-0.1 * count)
        assert weights[client] == pytest.approx(expected)


@pytest.mark.parametrize(
    "wrong", [{"alpha": -1.0}, {"beta": 0.0}, {"gamma": math.nan}, {"rho": math.inf}]
)
def test_bad_rewards_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        from_table(CohortReward, wrong)


def test_what_a_ledger_says_replaces_the_schedule() -> None:
    reward = CohortReward(alpha=0.0, gamma=4.0)
    left = np.array([0.25, 1.0])
    for target in (np.array(0.2), np.array([0.1, 0.3])):
        weights = reward.weights(np.array([0, 7]), 9, target, privacy_left=left)
        assert weights.tolist() == [1.0, 4.0]


@given(st.lists(st.sets(st.integers(0, 4)), max_size=40), st.floats(0.0, 1.0))
def test_lazy_queues_equal_queues_updated_every_round(rounds: list[set[int]], rate: float) -> None:
    queues, plain = empty_queues(5), [0.0] * 5
    for number, chosen in enumerate(rounds, start=1):
        np.testing.assert_allclose(
            queue_length(queues, slice(None), number, rate), plain, atol=1e-9
        )
        serve(queues, np.array(sorted(chosen), dtype=np.int64), round_=number, rate=rate)
        plain = [max(0.0, z + rate - (k in chosen)) for k, z in enumerate(plain)]


def test_repeats() -> None:
    assert repeats(np.array([3])) == 0
    assert repeats(np.array([3, 3, 3])) == 2
    assert repeats(np.array([0, 1, 0, 1, 2])) == 2

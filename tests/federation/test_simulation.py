from itertools import combinations
from typing import Any

import numpy as np
import pytest

from fedmuster import BSFL, POLICIES, AllClients, Genie, Random
from fedmuster.core.errors import StateError
from fedmuster.core.policy import Policy
from fedmuster.federation import Simulation
from fedmuster.privacy.schedules import Geometric
from fedmuster.worlds import (
    Bernoulli,
    BSFLGroups,
    BSFLRates,
    ContextualWorld,
    ExponentialSizes,
    PauseGroups,
)
from fedmuster.worlds.world import World

WORLDS: dict[str, World] = {
    "iid": BSFLRates(num_clients=7, cohort_size=3),
    "non-iid": BSFLRates(num_clients=7, cohort_size=3, data=ExponentialSizes()),
    "sometimes away": BSFLRates(
        num_clients=7,
        cohort_size=3,
        availability=Bernoulli(probability=0.6),
        dropout=0.2,
        deadline_seconds=0.8,
    ),
    "clusters": PauseGroups(num_clients=8, cohort_size=3, num_clusters=3),
    "contextual": ContextualWorld(num_clients=6, cohort_size=2),
}


@pytest.mark.parametrize("name", WORLDS)
def test_regret_against_brute_force_on_the_policys_own_history(name: str) -> None:
    """BSFL Eq. 6, 7 and PAUSE Eq. 10, 22 spelled out: every cohort, every round."""
    alpha, beta, gamma, eta = 3.0, 1.2, 2.0, 0.1
    rho = 0.05 if name == "clusters" else 0.0
    genie = Genie(alpha=alpha, beta=beta, gamma=gamma, schedule=Geometric(eta=eta), rho=rho)
    simulation = Simulation(Random(), WORLDS[name], seed=4, genie=genie)
    problem = simulation.world.problem
    weights = problem.data_weights()
    data = np.ones(problem.num_clients) if weights is None else weights
    count = np.zeros(problem.num_clients)
    for t in range(1, 60):
        drawn = simulation.world.realise(t)
        mu = drawn.truth.mean_speed
        x = problem.cohort_size * data / data.sum() - count / t
        worth = alpha * np.sign(x) * np.abs(x) ** beta + gamma * np.exp(-eta * count)

        def value(cohort: Any, mu: Any = mu, worth: Any = worth) -> float:
            chosen = list(cohort)
            total = mu[chosen].min() + worth[chosen].mean()
            if problem.clusters is not None:
                labels = problem.clusters[chosen].tolist()
                total -= alpha * rho * sum(labels.count(c) - 1 for c in set(labels))
            return float(total)

        row = simulation.step()
        here = np.flatnonzero(drawn.available)
        size = min(problem.cohort_size, len(here))
        best = max((value(c) for c in combinations(here, size)), default=0.0) if size else 0.0
        assert row.regret == pytest.approx(best - value(row.clients) if size else 0.0, abs=1e-12)
        count[row.clients] += 1


def test_reward_is_realised_speed_plus_generalisation() -> None:
    """BSFL Eq. 5 in round 1, where all terms g are m/K."""
    simulation = Simulation(Random(), BSFLRates(), seed=2, genie=Genie(alpha=2.0, beta=1.0))
    latency = simulation.world.realise(1).latency_seconds
    row = simulation.step()
    assert row.reward == pytest.approx(0.1 / latency[row.clients].max() + 2.0 * 5 / 20)
    assert row.seconds == latency[row.clients].max()


def test_the_genie_has_no_regret() -> None:
    simulation = Simulation(Genie(), BSFLGroups(), seed=1, genie=Genie())
    assert sum(simulation.step().regret for _ in range(100)) == pytest.approx(0.0, abs=1e-12)


def test_everyone_can_be_judged_too() -> None:
    """Round 1, all terms g equal: the fifth-fastest mean speed against the slowest."""
    simulation = Simulation(AllClients(), BSFLRates(), seed=1, genie=Genie())
    speed = np.sort(simulation.world.realise(1).truth.mean_speed)
    assert simulation.step().regret == pytest.approx(speed[-5] - speed[0])


def test_a_checkpoint_without_a_judge_fits_no_judged_simulation() -> None:
    plain = Simulation(BSFL(), BSFLRates(), seed=1)
    judged = Simulation(BSFL(), BSFLRates(), seed=1, genie=Genie())
    with pytest.raises(StateError, match="without a judge"):
        judged.load(plain.checkpoint(), source="memory")
    with pytest.raises(StateError, match="with a judge"):
        plain.load(judged.checkpoint(), source="memory")


def test_all_policies_face_the_same_luck() -> None:
    drawn = []
    policies: list[Policy[Any]] = [BSFL(), Random()]
    for policy in policies:
        simulation = Simulation(policy, BSFLRates(dropout=0.1, deadline_seconds=1.0), seed=5)
        for _ in range(10):
            simulation.step()
        drawn.append(simulation.world.realise(11).latency_seconds.tolist())
    assert drawn[0] == drawn[1]


@pytest.mark.filterwarnings("ignore::fedmuster.core.errors.FedmusterWarning")  # linucb
@pytest.mark.parametrize("name", POLICIES)
def test_a_checkpoint_continues_bit_for_bit(name: str) -> None:
    policy: Policy[Any] = POLICIES[name]()
    world = BSFLRates(availability=Bernoulli(probability=0.7))

    def played(simulation: Simulation[Any], rounds: int) -> list[tuple[float, float, bytes]]:
        rows = [simulation.step() for _ in range(rounds)]
        return [(row.seconds, row.regret, row.clients.tobytes()) for row in rows]

    whole = Simulation(policy, world, seed=3, genie=Genie())
    played(whole, 20)
    resumed = Simulation(policy, world, seed=3, genie=Genie())
    resumed.load(whole.checkpoint(), source="memory")
    assert played(resumed, 20) == played(whole, 20)


def test_rounds_in_which_nobody_is_there() -> None:
    world = BSFLRates(num_clients=2, cohort_size=2, availability=Bernoulli(probability=0.1))
    simulation = Simulation(BSFL(), world, seed=0, genie=Genie())
    rows = [simulation.step() for _ in range(30)]
    empty = [row for row in rows if row.num_available == 0]
    assert empty
    assert all(len(row.clients) == 0 and row.regret == 0 and row.seconds == 0 for row in empty)


def test_without_a_judge_there_is_no_regret() -> None:
    row = Simulation(BSFL(), BSFLRates(), seed=0).step()
    assert np.isnan(row.regret)

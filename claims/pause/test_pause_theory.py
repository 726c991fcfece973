"""What the claims on PAUSE are computed with, by hand and against the policy itself."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.random import Generator

from claims.claim import play
from claims.growth import share_used
from claims.pause import exact_search as pause_search
from claims.pause.exact_search import agrees_with_brute_force, search, small_instances
from claims.pause.networks import KAPPA, LARGE, SMALL, Network
from claims.pause.theorem_3 import Theorem3, bound_use, smallest_difference
from fedmuster.core.records import IntArray, Truth
from fedmuster.core.streams import stream
from fedmuster.experiments.run import execute
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Simulation
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.instance import Instance


@pytest.mark.parametrize("network", [SMALL, LARGE, LARGE.with_rho(0.0)], ids=str)
def test_the_problems_are_those_that_the_policy_solves(network: Network) -> None:
    """The cohort that PAUSE chose in its run is a best one of the problem of that round."""
    rounds = range(1, 2 * network.rounds_to_see_all + 30)
    simulation = Simulation(network.policy, network.world, seed=3)
    problems = list(network.problems(seed=3, rounds=rounds))
    assert len(problems) == len(rounds)
    for round_, instance in zip(rounds, problems, strict=True):
        row = simulation.step()
        assert row.round == round_
        best = Exact().solve(instance, stream(round_, "test"))
        assert worth(instance, row.clients) == pytest.approx(worth(instance, best), abs=1e-9)


def worth(instance: Instance, cohort: IntArray) -> float:
    """The energy; of cohorts of which nobody was seen, what decides between them."""
    slowest, rest = instance.parts(cohort)
    return 1e6 + rest if np.isinf(slowest) else slowest + rest


def test_everybody_is_seen_when_the_network_says_so() -> None:
    (before, after) = SMALL.problems(seed=0, rounds=[6, 7])
    assert SMALL.rounds_to_see_all == 6
    assert np.isinf(before.bottleneck).any()
    assert np.isfinite(after.bottleneck).all()


def test_small_instances_have_ties_unseen_clients_and_clusters() -> None:
    instances = small_instances(40)
    assert len(instances) == 40
    assert any(np.isinf(instance.bottleneck).any() for instance in instances)
    assert all(instance.penalty > 0 for instance in instances)
    assert all(agrees_with_brute_force(instance, stream(0, "test")) for instance in instances)


def test_a_wrong_solver_does_not_agree_with_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    class FirstCome:
        def solve(self, instance: Instance, rng: Generator) -> IntArray:
            return np.arange(instance.size)

    monkeypatch.setattr(pause_search, "Exact", FirstCome)
    agreed = [agrees_with_brute_force(i, stream(0, "test")) for i in small_instances(40)]
    assert sum(agreed) < 30


def test_a_search_knows_how_far_annealing_got() -> None:
    network = replace(LARGE, num_clients=40, cohort_size=4, num_clusters=5)
    found = search(network, seeds=2, rounds=[15, 30], steps=3_000)
    assert found.steps == 3_000
    assert found.gaps[1.0].shape == (4, 3_001)
    assert found.never_beaten
    for kappa in (1.0, KAPPA):
        assert (np.diff(found.gaps[kappa], axis=1) <= 0).all()
        assert 0 <= found.share(kappa, 3_000) < found.share(kappa, 0) < 3
        assert found.optimal(kappa, 0) <= found.optimal(kappa, 3_000)
    assert found.gap(KAPPA, 500) == pytest.approx(np.mean(found.gaps[KAPPA][:, 500]))
    timed = replace(found, exact_seconds=0.5, annealing_seconds={500: 2.0, 3_000: 7.0})
    assert (timed.ratio(500), timed.ratio(3_000)) == (4.0, 14.0)
    assert timed.steps_in_exact_time == pytest.approx(250)  # at 2 ms each
    beaten = replace(found, gaps={kappa: gaps - 1.0 for kappa, gaps in found.gaps.items()})
    assert not beaten.never_beaten


def test_theorem_3_by_hand() -> None:
    """Lemma 1 for R2: 0.6 of speed, alpha (2 + 4 rho), gamma (PAUSE Eq. 16, 17, 22)."""
    truth = Truth(
        mean_latency_seconds=np.array([0.5, 0.1, 0.3]), mean_speed=np.array([0.2, 0.8, 0.3])
    )
    network = replace(SMALL, num_clients=3, policy=replace(SMALL.policy, rho=0.5))
    theorem = Theorem3.of(network, truth)
    assert theorem.delta == pytest.approx(0.2)
    assert theorem.largest_gap == pytest.approx(0.6 + 100 * (2 + 0.5 * 4) + 5)
    plain = Theorem3.of(network.with_rho(0.0), truth)
    assert plain.largest_gap == pytest.approx(0.6 + 100 * 2 + 5)
    by_hand = 3 * (405.6 + 0.2) * (4 * 6 * math.log(50) / 0.04 + 1 + 2 * math.pi**2 / 3)
    assert theorem.bound(np.array([50.0])) == pytest.approx([by_hand])


def test_the_use_of_theorem_3_is_that_of_the_worst_round() -> None:
    theorem = Theorem3(num_clients=2, cohort_size=1, delta=1.0, largest_gap=3.0)
    gaps = np.array([0.0, 3.0, 0.0, 0.0])
    second = 2 * 4.0 * (8 * math.log(2) + 1 + 2 * math.pi**2 / 3)
    assert share_used(gaps, theorem.bound) == pytest.approx(3.0 / second)
    assert share_used(np.full(10_000, 3.0), theorem.bound) > 1


def test_where_the_bound_begins_to_say_something() -> None:
    theorem = Theorem3(num_clients=30, cohort_size=5, delta=0.01, largest_gap=10.0)
    first = theorem.first_informative_round
    assert float(theorem.bound(np.array(1.01 * first))) < 1.01 * first * 10.0
    assert float(theorem.bound(np.array(0.99 * first))) > 0.99 * first * 10.0


def test_the_smallest_difference_needs_no_order() -> None:
    assert smallest_difference(np.array([5.0, 1.0, 3.5, 1.25])) == 0.25


def test_regret_of_a_run_that_nobody_judged_follows_from_its_cohorts(tmp_path: Path) -> None:
    experiment = Experiment(
        policies={"pause": SMALL.policy},
        world=SMALL.world,
        rounds=60,
        seeds=(3,),
        reward=SMALL.reward,
    )
    comparison = play(experiment, tmp_path / "runs", _run)
    (run,) = comparison.runs["pause"]
    theorem = Theorem3.of(SMALL, SMALL.world.start(3).realise(1).truth)
    assert bound_use(run, SMALL) == share_used(run.columns["regret"], theorem.bound) > 0


def _run(cells: list[Path]) -> None:
    for cell in cells:
        execute(cell)

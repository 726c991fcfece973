"""What was explored, counted by hand and against the policy's own estimator; the bounds."""

import math
from pathlib import Path

import numpy as np
import pytest

from claims.cocs.exploration import Exploration, Pairs, offers, recount, selections
from claims.cocs.network import RegretBound, order
from claims.growth import share_used
from fedmuster import COCS
from fedmuster.core.records import BoolArray
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.run import execute
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import lay_out
from fedmuster.policies.cocs.hypercubes import Control, EqualCubes, SuccessRates, ZoomingCubes
from fedmuster.worlds import EdgeNetwork

SMALL = EdgeNetwork(num_clients=6, num_edges=2, budget=9.0)
ROUNDS = 60
VARIANTS = {
    "pairs": COCS(cubes=EqualCubes(cubes_per_axis=2)),
    "few": COCS(cubes=EqualCubes(cubes_per_axis=2), exploration=0.05),
    "clients": COCS(pool="clients", cubes=EqualCubes(cubes_per_axis=3)),
    "edges": COCS(pool="edges", exponent=0.2),
    "zooming": COCS(pool="network", cubes=ZoomingCubes(depth=2)),
}


def by_the_estimator(policy: COCS, chosen: list[Pairs], asked: list[Pairs]) -> list[BoolArray]:
    """Which of the asked pairs are under-explored before each round."""
    rates = SuccessRates(cubes=policy.cubes, pool=policy.pool)
    state = rates.init(SMALL.start(0).problem)
    control = Control(exponent=policy.exponent, factor=policy.exploration)
    found = []
    for number, (taken, pairs) in enumerate(zip(chosen, asked, strict=True), start=1):
        known = rates.estimate(state, *pairs, round_=number, control=control)
        found.append(known.under_explored)
        rates.observe(state, *taken, np.ones(len(taken.clients), dtype=np.bool_))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cocs")
    experiment = Experiment(policies=VARIANTS, world=SMALL, rounds=ROUNDS, seeds=(3,), regret=False)
    for cell in lay_out(folder / "runs", experiment):
        execute(cell)
    return folder / "runs"


@pytest.mark.parametrize("name", VARIANTS)
def test_the_recount_agrees_with_the_estimator(name: str, folder: Path) -> None:
    journal = JournalReader(folder / name / "seed-3")
    possible, chosen = offers(SMALL, seed=3, rounds=ROUNDS), selections(journal)
    found = recount(VARIANTS[name], SMALL, possible, chosen)
    under = by_the_estimator(VARIANTS[name], chosen, possible)
    assert found.possible.tolist() == [len(pairs.clients) for pairs in possible]
    assert found.under_explored.tolist() == [np.count_nonzero(own) for own in under]
    own = by_the_estimator(VARIANTS[name], chosen, chosen)
    assert found.to_explore.tolist() == [np.count_nonzero(one) for one in own]
    assert found.chosen.tolist() == [len(cohort) for cohort in journal.cohorts]
    assert 0 < found.exploring <= 1


@pytest.mark.parametrize("name", VARIANTS)
def test_selections_are_among_the_offers(name: str, folder: Path) -> None:
    chosen = selections(JournalReader(folder / name / "seed-3"))
    for offered, taken in zip(offers(SMALL, seed=3, rounds=ROUNDS), chosen, strict=True):
        context = {
            (client, edge): tuple(numbers)
            for client, edge, numbers in zip(
                *map(np.ndarray.tolist, offered[:2]), offered.context.tolist(), strict=True
            )
        }
        for client, edge, numbers in zip(
            *map(np.ndarray.tolist, taken[:2]), taken.context.tolist(), strict=True
        ):
            assert context[client, edge] == tuple(numbers)


def pairs(*rows: tuple[int, int, float, float]) -> Pairs:
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    return Pairs(table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2:])


def test_counts_by_hand() -> None:
    """K(1) = 0, K(2) = 0.91, K(3) = 1.70: one observation is enough in round 2, not in round 3."""
    policy = COCS(cubes=EqualCubes(cubes_per_axis=2))
    here, elsewhere = (0, 0, 0.1, 0.1), (0, 0, 0.9, 0.1)
    possible = [pairs(here), pairs(here, elsewhere), pairs(here, elsewhere), pairs(here)]
    chosen = [pairs(here), pairs(here), pairs(elsewhere), pairs()]
    found = recount(policy, SMALL, possible, chosen)
    assert found.under_explored.tolist() == [1, 1, 1, 1]
    assert found.to_explore.tolist() == [1, 0, 1, 0]
    assert found.first_exploitation is None
    assert found.spent_on_it == pytest.approx(2 / 3)


def test_the_first_exploitation_has_somebody_to_exploit() -> None:
    numbers = np.array([1, 0, 2, 3])
    found = Exploration(
        possible=numbers,
        under_explored=np.array([1, 0, 1, 0]),
        chosen=numbers,
        to_explore=np.zeros(4, dtype=np.int64),
    )
    assert found.first_exploitation == 4
    assert found.exploring == 0.5


# Theorem 2


def test_the_bound_in_numbers() -> None:
    """N = 50, M = 3, B = 3.5, c^min = 0.5 x 2 = 1, so at most three clients an edge."""
    bound = RegretBound.of(EdgeNetwork())
    share = 50 * 3 * 3.5
    decisions = 50 + 50 * 49 / 2 + 50 * 49 * 48 / 6
    expected = (
        4 * 50 * share * (math.log(1000) * 1000**0.8 + 1000**0.4)
        + share * decisions * math.pi**2 / 3
        + share * 2 / 0.8 * 1000**0.8
    )
    assert float(bound(np.array(1000.0))) == pytest.approx(expected)
    assert bound.exponent == 0.8


def test_from_when_on_it_says_something() -> None:
    bound = RegretBound.of(EdgeNetwork())
    first = bound.first_informative_round
    assert float(bound(np.array(first))) == pytest.approx(first * 3.5)
    assert float(bound(np.array(first / 2))) > first / 2 * 3.5


def test_how_much_of_it_is_used() -> None:
    bound = RegretBound.of(EdgeNetwork())
    whole = np.diff(bound(np.arange(1.0, 11.0)), prepend=0.0)
    assert share_used(0.5 * whole, bound) == pytest.approx(0.5)


def test_the_order_grows_as_told() -> None:
    rounds = np.array([1e3, 1e3 * (1 + 1e-6)])
    slope = np.diff(np.log(order(rounds, 0.8))) / np.diff(np.log(rounds))
    assert slope == pytest.approx(0.8 + 1 / math.log(1e3), abs=1e-4)

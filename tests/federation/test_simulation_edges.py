"""The round loop where there are edge servers, in a world small enough for brute force."""

import math
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import Generator

from fedmuster import BSFL, Random
from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import PolicyError
from fedmuster.core.records import IntArray, Truth
from fedmuster.federation import EdgeRow, RoundRow, Simulation
from fedmuster.worlds import BSFLRates
from fedmuster.worlds.round_time import RoundTime
from fedmuster.worlds.setting import Setting
from fedmuster.worlds.world import RoundDraw, WorldRound, WorldRun

K, M = 5, 2
EMPTY_ROUND, POOR_ROUND = 4, 7
LINEAR, ROOT = EdgeUtility(), EdgeUtility(utility="square-root")


@dataclass(frozen=True, kw_only=True, slots=True)
class TinyNetwork(Setting):
    """Five clients, two edges. Round 4 covers nobody, round 7 pays for nobody."""

    name: ClassVar[str] = "tiny-network"
    hierarchical: ClassVar[bool] = True

    cohort_size: int = K
    deadline_seconds: float | None = 2.0
    at_least: int = 0
    somewhere: bool = True

    def start(self, seed: int) -> WorldRun:
        return self.begin(
            seed,
            self._clients,
            tau_min_seconds=0.1,
            groups=np.zeros(K, dtype=np.int64),
            num_features=2,
            num_edges=M,
            time=RoundTime(at_least=self.at_least, edge_seconds=0.125),
            columns={"edge_position_km": np.zeros((M, 2))},
        )

    def _clients(self, round_number: int, rng: Generator) -> RoundDraw:
        context = rng.random((K, M, 2))
        odds = context.mean(axis=2)
        succeeds = rng.random((K, M)) < odds
        budget = rng.choice([0.5, 1.0, np.inf], size=M)
        if round_number == POOR_ROUND:
            budget = np.zeros(M)
        return RoundDraw(
            latency_seconds=np.where(succeeds, 0.5 + odds, 2.5 + odds),
            expectation=lambda: Truth(
                mean_latency_seconds=np.ones(K),
                mean_speed=np.ones(K),
                success=odds,
                succeeds=succeeds,
            ),
            features=context,
            signals={"of pair": context[:, :, 0]},
            edges=EdgeView(
                coverage=(rng.random((K, M)) < 0.7) & (round_number != EMPTY_ROUND),
                cost=rng.integers(1, 6, (K, M)) / 10,
                budget=budget,
            ),
            position_km=rng.normal(size=(K, 2)) if self.somewhere else None,
        )


def simulation(**more: Any) -> Simulation[Any]:
    utility = more.pop("utility", LINEAR)
    return Simulation(Random(), TinyNetwork(**more), seed=6, genie=utility)


def pairs_of(row: RoundRow) -> tuple[IntArray, IntArray]:
    assert row.network is not None
    return row.clients, row.network.edges


def most_expected(drawn: WorldRound) -> float:
    """The best sum of odds, by trying all 3^5 placements."""
    edges, odds = drawn.edges, drawn.truth.success
    assert edges is not None
    assert odds is not None
    best = 0.0
    for at in product((None, *range(M)), repeat=K):
        pairs = [(k, m) for k, m in enumerate(at) if m is not None]
        spent = [math.fsum(edges.cost[k, m] for k, m in pairs if m == e) for e in range(M)]
        if all(edges.coverage[pair] for pair in pairs) and np.all(spent <= edges.budget):
            best = max(best, math.fsum(odds[pair] for pair in pairs))
    return best


@pytest.mark.parametrize("utility", [LINEAR, ROOT], ids=lambda u: u.utility)
def test_reward_and_regret_are_those_of_the_paper(utility: EdgeUtility) -> None:
    """Eq. 8, 19 and 11, round by round."""
    played = simulation(utility=utility)
    regret = 0.0
    for t in range(1, 31):
        drawn = played.world.realise(t)
        row = played.step()
        pairs = pairs_of(row)
        assert drawn.truth.success is not None
        assert drawn.truth.succeeds is not None
        participants = np.count_nonzero(drawn.truth.succeeds[pairs])
        chosen, most = math.fsum(drawn.truth.success[pairs]), most_expected(drawn)
        if utility is LINEAR:
            assert row.reward == participants / M
            assert row.regret == pytest.approx((most - chosen) / M, abs=1e-12)
        else:
            assert row.reward == math.sqrt(participants / M)
            gap = math.sqrt(most / M) - math.sqrt(chosen / M)
            assert row.regret == pytest.approx(gap, abs=1e-12)
        assert row.regret >= 0.0
        regret += row.regret
    assert regret > 1.0  # choosing at random is not the best


def test_rows_hold_what_happened_at_the_edges() -> None:
    played = simulation()
    seen = 0
    for t in range(1, 31):
        drawn = played.world.realise(t)
        row = played.step()
        network, (clients, edges) = row.network, pairs_of(row)
        assert network is not None
        assert drawn.edges is not None
        assert drawn.features is not None
        assert drawn.position_km is not None
        assert drawn.truth.succeeds is not None
        assert network.edges.dtype == np.int64
        assert network.in_time.dtype == np.bool_
        np.testing.assert_array_equal(network.in_time, drawn.truth.succeeds[clients, edges])
        np.testing.assert_array_equal(network.context, drawn.features[clients, edges])
        np.testing.assert_array_equal(network.cost, drawn.edges.cost[clients, edges])
        np.testing.assert_array_equal(network.budget, drawn.edges.budget)
        np.testing.assert_array_equal(network.position_km, drawn.position_km[clients])
        assert drawn.edges.coverage[clients, edges].all()
        for edge, budget in enumerate(network.budget):
            assert math.fsum(network.cost[edges == edge]) <= budget
        assert row.num_available == np.count_nonzero(drawn.edges.covered)
        assert row.num_completed == np.count_nonzero(network.in_time)
        seen += len(clients)
    assert seen > 60


@pytest.mark.parametrize("number", [EMPTY_ROUND, POOR_ROUND])
def test_rounds_in_which_nobody_can_be_had_are_rounds_too(number: int) -> None:
    played = simulation()
    rows = [played.step() for _ in range(number)]
    row = rows[-1]
    assert row.network is not None
    # The edges keep their rhythm: such a round takes as long as its deadline of 2 s.
    assert (len(row.clients), row.reward, row.regret, row.seconds) == (0, 0.0, 0.0, 2.0)
    assert row.network.context.shape == (0, 2)
    assert (row.num_available == 0) == (number == EMPTY_ROUND)
    assert len(played.step().clients) > 0


def test_a_round_lasts_as_long_as_its_slowest_edge() -> None:
    played = simulation()
    for _ in range(12):
        drawn = played.world.realise(played.selector.round)
        row = played.step()
        pairs = pairs_of(row)
        if len(row.clients):
            slowest = min(float(drawn.latency_seconds[pairs].max()), 2.0)
            assert row.seconds == slowest + 0.125


def test_who_was_waited_for_completed_but_was_not_in_time() -> None:
    """Z = 5: every edge waits for all, whoever is late."""
    played = simulation(at_least=K)
    late = 0
    for _ in range(20):
        row = played.step()
        assert row.network is not None
        assert row.num_completed == len(row.clients)
        assert row.reward == np.count_nonzero(row.network.in_time) / M
        late += int(np.count_nonzero(~row.network.in_time))
        if not row.network.in_time.all():
            assert row.seconds > 2.5
    assert late > 5


def test_clients_that_are_nowhere_have_no_position() -> None:
    network = simulation(somewhere=False).step().network
    assert network is not None
    assert network.position_km is None


def test_flat_federated_learning_has_no_network() -> None:
    assert Simulation(Random(), BSFLRates(), seed=1).step().network is None


def test_a_flat_policy_is_told_to_be_lifted() -> None:
    played = Simulation(BSFL(), TinyNetwork(), seed=1)
    with pytest.raises(PolicyError):
        played.step()


def image(row: RoundRow) -> tuple[Any, ...]:
    network = row.network
    assert isinstance(network, EdgeRow)
    columns = [getattr(network, item.name) for item in fields(network)]
    bits = [None if column is None else column.tobytes() for column in columns]
    return (row.round, row.seconds, row.reward, row.regret, row.clients.tobytes(), *bits)


@pytest.mark.parametrize("stop", [1, EMPTY_ROUND, 9])
def test_a_checkpoint_continues_bit_for_bit(stop: int) -> None:
    whole = simulation()
    rows = [image(whole.step()) for _ in range(20)]
    first, second = simulation(), simulation()
    assert [image(first.step()) for _ in range(stop)] == rows[:stop]
    second.load(first.checkpoint(), source="memory")
    assert [image(second.step()) for _ in range(20 - stop)] == rows[stop:]


def test_all_policies_face_the_same_luck_at_all_edges() -> None:
    one, other = simulation(), Simulation(Random(by_data=True), TinyNetwork(), seed=6)
    for _ in range(5):
        one.step()
        other.step()
    left, right = (s.world.realise(6) for s in (one, other))
    np.testing.assert_array_equal(left.latency_seconds, right.latency_seconds)
    assert left.edges is not None
    assert right.edges is not None
    np.testing.assert_array_equal(left.edges.coverage, right.edges.coverage)
    np.testing.assert_array_equal(left.edges.budget, right.edges.budget)

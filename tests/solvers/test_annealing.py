"""Annealing against its definitions: neighbours, energies, acceptance, and brute force.

Statistical tests use fixed seeds and the significance below, so they pass or fail for good.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, pairwise, permutations
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import Generator
from scipy.stats import chi2

from fedmuster.core.config import from_table, to_table
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.records import IntArray
from fedmuster.solvers.annealing import (
    NEIGHBOURHOODS,
    Annealing,
    Landscape,
    Members,
    NeighbourhoodName,
    Ranking,
    Walk,
)
from fedmuster.solvers.bottleneck_problem import BottleneckProblem, BruteForce

SIGNIFICANCE = 1e-3
NAMES: tuple[NeighbourhoodName, ...] = ("swap", "alsa", "pause")

every_neighbourhood = pytest.mark.parametrize("name", NAMES)
Ranks = frozenset[int]


def random_instance(
    rng: Generator, clients: int, size: int, *, kind: str = "plain"
) -> BottleneckProblem:
    """``kind``: plain, tied (few distinct values), unseen (some u infinite) or clustered."""
    u, w = rng.normal(size=clients), rng.normal(size=clients)
    if kind == "tied":
        u, w = rng.integers(3, size=clients) / 2, rng.integers(3, size=clients) / 2
    if kind == "unseen":
        u[rng.random(clients) < 0.5] = np.inf
    if kind == "clustered":
        labels = rng.integers(3, size=clients)
        return BottleneckProblem(bottleneck=u, weight=w, size=size, clusters=labels, penalty=0.4)
    return BottleneckProblem(bottleneck=u, weight=w, size=size)


def all_sets(instance: BottleneckProblem) -> Iterator[IntArray]:
    for members in combinations(range(len(instance.weight)), instance.size):
        yield np.array(members)


def worth(instance: BottleneckProblem, positions: IntArray) -> tuple[float, float]:
    """The energy and, as infinite energies tie, the additive part that then decides."""
    bottleneck, additive = instance.parts(positions)
    return instance.energy(positions), additive if np.isinf(bottleneck) else 0.0


def assert_optimal(instance: BottleneckProblem, positions: IntArray) -> None:
    best = max(worth(instance, s) for s in all_sets(instance))
    assert worth(instance, positions) == pytest.approx(best, abs=1e-12)


# The neighbours, word for word from the papers.


class Orders(NamedTuple):
    """The place of each client in the orders of u and w."""

    u: list[int]
    w: list[int]

    def lowest_u(self, ranks: Ranks) -> int:
        return min(ranks, key=self.u.__getitem__)

    def lowest_w(self, ranks: Ranks) -> int:
        return min(ranks, key=self.w.__getitem__)


def differ_in_one(ranks: Ranks, clients: int) -> Iterator[Ranks]:
    for other in map(frozenset, combinations(range(clients), len(ranks))):
        if len(ranks & other) == len(ranks) - 1:
            yield other


def swap_by_definition(s: Ranks, orders: Orders) -> set[Ranks]:
    return set(differ_in_one(s, len(orders.u)))  # BSFL Eq. 18


def alsa_by_definition(s: Ranks, orders: Orders) -> set[Ranks]:
    return {
        other
        for other in differ_in_one(s, len(orders.u))
        if s - other <= {orders.lowest_u(s), orders.lowest_w(s)}
        or other - s <= {orders.lowest_u(other), orders.lowest_w(other)}  # BSFL Eq. 19
    }


def pause_by_definition(s: Ranks, orders: Orders) -> set[Ranks]:
    u = orders.u
    outsiders = set(range(len(u))) - s
    a, *rest = sorted(s, key=u.__getitem__)
    found = {s - {a} | {x} for x in outsiders}  # N1
    found |= {s - {k} | {x} for k in rest for x in outsiders if u[x] < u[a]}  # N2a
    if rest:
        found |= {s - {a} | {x} for x in outsiders if u[x] < u[rest[0]]}  # N2b
    return found


def pause_by_requirements(s: Ranks, orders: Orders) -> set[Ranks]:
    return {
        other
        for other in differ_in_one(s, len(orders.u))  # PAUSE section IV.A, R1
        if s - other == {orders.lowest_u(s)} or other - s == {orders.lowest_u(other)}  # R2
    }


DEFINITIONS = {"swap": swap_by_definition, "alsa": alsa_by_definition, "pause": pause_by_definition}
GRAPHS = [
    (clients, size, kind)
    for clients, size in ((2, 1), (5, 1), (6, 2), (7, 3), (6, 4), (6, 5))
    for kind in ("plain", "tied", "unseen")
]


def test_the_two_definitions_of_the_pause_graph_agree() -> None:
    orders = Orders(u=[3, 0, 6, 1, 5, 2, 4], w=list(range(7)))
    for s in map(frozenset, combinations(range(7), 3)):
        assert pause_by_definition(s, orders) == pause_by_requirements(s, orders)


@every_neighbourhood
@pytest.mark.parametrize(("clients", "size", "kind"), GRAPHS)
def test_neighbours_are_drawn_uniformly_from_the_papers_set(
    name: NeighbourhoodName, clients: int, size: int, kind: str
) -> None:
    rng = np.random.default_rng([clients, size])
    ranking = Ranking.of(random_instance(rng, clients, size, kind=kind), rng)
    orders = Orders(u=list(range(clients)), w=list(ranking.weight_rank))
    draws_per_neighbour, statistic, freedom = 60, 0.0, 0
    graph: dict[Ranks, set[Ranks]] = {}
    for ranks in combinations(range(clients), size):
        expected = DEFINITIONS[name](frozenset(ranks), orders)
        members = Members(ranking, ranks)
        drawn: Counter[Ranks] = Counter()
        for _ in range(draws_per_neighbour * len(expected)):
            leaver, joiner = NEIGHBOURHOODS[name](members, rng.random)
            assert leaver in ranks
            assert joiner not in ranks
            drawn[frozenset(ranks) - {leaver} | {joiner}] += 1
        graph[frozenset(ranks)] = set(drawn)
        assert set(drawn) == expected
        excess = sum((n - draws_per_neighbour) ** 2 for n in drawn.values())
        statistic += excess / draws_per_neighbour
        freedom += len(expected) - 1
    if freedom:
        assert chi2.sf(statistic, freedom) > SIGNIFICANCE
    assert_undirected_and_connected(graph)


def assert_undirected_and_connected(graph: dict[Ranks, set[Ranks]]) -> None:
    """Conditions (i) and (iii) of the convergence proof (BSFL appendix B)."""
    assert all(s in graph[other] for s, others in graph.items() for other in others)
    reached, frontier = set[Ranks](), {next(iter(graph))}
    while frontier:
        reached |= frontier
        frontier = set().union(*(graph[s] for s in frontier)) - reached
    assert reached == set(graph)


def test_ties_are_ordered_at_random() -> None:
    instance = BottleneckProblem(bottleneck=np.zeros(3), weight=np.zeros(3), size=1)
    seen: Counter[tuple[int, ...]] = Counter()
    for seed in range(600):
        seen[tuple(Ranking.of(instance, np.random.default_rng(seed)).positions.tolist())] += 1
    statistic = sum((seen[order] - 100) ** 2 / 100 for order in permutations(range(3)))
    assert chi2.sf(statistic, 5) > SIGNIFICANCE


# Energies.

values = st.sampled_from([-1.5, -0.3, 0.0, 0.25, 0.25, 1.0, 7.0])


@st.composite
def instances(draw: st.DrawFn) -> BottleneckProblem:
    clients = draw(st.integers(1, 7))

    def column(of: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(of, min_size=clients, max_size=clients))

    return BottleneckProblem(
        bottleneck=np.array(column(values | st.just(np.inf)), dtype=np.float64),
        weight=np.array(column(values), dtype=np.float64),
        size=draw(st.integers(1, clients)),
        clusters=np.array(column(st.integers(0, 2)), dtype=np.int64),
        penalty=draw(st.sampled_from([0.0, 0.4, 3.0])),
    )


@settings(derandomize=True)
@given(instance=instances(), name=st.sampled_from(NAMES), seed=st.integers(0, 99))
def test_energies_kept_up_to_date_equal_those_of_the_instance(
    instance: BottleneckProblem, name: NeighbourhoodName, seed: int
) -> None:
    walk = Walk(Annealing(neighbourhood=name), instance, np.random.default_rng(seed))
    ranking, best = walk.members.ranking, (-np.inf, -np.inf)
    for step in range(1, 40):
        ranks = walk.members.by_bottleneck
        positions = ranking.positions[ranks]
        assert len(set(ranks)) == instance.size
        assert ranks == sorted(ranks)
        assert walk.members.by_weight == sorted(ranking.weight_rank[rank] for rank in ranks)
        assert walk.value() == pytest.approx(instance.energy(positions), abs=1e-9)
        assert walk.additive == pytest.approx(instance.parts(positions)[1], abs=1e-9)
        best = max(best, worth(instance, positions))
        assert worth(instance, walk.best_positions()) == pytest.approx(best, abs=1e-9)
        walk.step(step)


@settings(derandomize=True)
@given(instance=instances(), seed=st.integers(0, 99))
def test_finite_energies_keep_the_order_and_the_spread_bounds_them(
    instance: BottleneckProblem, seed: int
) -> None:
    ranking = Ranking.of(instance, np.random.default_rng(seed))
    landscape = Landscape.of(instance, ranking)
    rank = np.argsort(ranking.positions)
    by_value = sorted(
        (
            instance.energy(s),
            instance.parts(s)[1],
            landscape.bottleneck[rank[s].min()] + instance.parts(s)[1],
        )
        for s in all_sets(instance)
    )
    finite = [energy for _, _, energy in by_value]
    assert max(finite) - min(finite) <= landscape.spread + 1e-9
    for (low, low_rest, before), (high, high_rest, after) in pairwise(by_value):
        if low < high or (np.isinf(low) and low_rest < high_rest - 1e-9):
            assert before < after  # also across the step from finite to infinite
        if np.isfinite(high):
            assert after == pytest.approx(high, abs=1e-12)


@pytest.mark.parametrize("top", [5.0, np.inf])
def test_spread_by_hand(top: float) -> None:
    # The second largest u less the smallest: 2. Weights: (2 + 3)/2 - (0 + 1)/2 = 2. Penalty: 0.5.
    instance = BottleneckProblem(
        bottleneck=np.array([1.0, top, 0.0, 2.0]),
        weight=np.arange(4.0),
        size=2,
        clusters=np.zeros(4, dtype=np.int64),
        penalty=0.5,
    )
    ranking = Ranking.of(instance, np.random.default_rng(0))
    assert Landscape.of(instance, ranking).spread == 4.5


# Acceptance.


@every_neighbourhood
@pytest.mark.parametrize("kappa", [1.0, 2.5])
def test_worse_sets_are_accepted_with_the_stated_probability(
    name: NeighbourhoodName, kappa: float
) -> None:
    # One client of three: all graphs are complete, and the spread C is 1, so a fall by d at step i
    # is accepted with probability exp(-d kappa log(i + 1)) = (i + 1)^(-kappa d).
    energies = (0.0, 0.3, 1.0)
    instance = BottleneckProblem(bottleneck=np.array(energies), weight=np.zeros(3), size=1)
    config = Annealing(neighbourhood=name, steps=5, kappa=kappa)
    moves: Counter[tuple[int, float, float]] = Counter()
    for seed in range(1000 if kappa == 1.0 else 2500):
        path = config.trace(instance, np.random.default_rng(seed)).current.tolist()
        moves.update((step, *move) for step, move in enumerate(pairwise(path), start=1))
    statistic, freedom = 0.0, 0
    for step in range(1, config.steps + 1):
        for here in energies:
            visits = sum(moves[step, here, there] for there in energies)
            chance = {
                there: 0.5 * (step + 1) ** (-kappa * max(0.0, here - there))
                for there in energies
                if there != here
            }
            chance[here] = 1 - sum(chance.values())
            cells = {there: visits * p for there, p in chance.items() if p > 1e-12}
            assert min(cells.values()) > 5  # chi-square holds
            statistic += sum((moves[step, here, to] - n) ** 2 / n for to, n in cells.items())
            freedom += len(cells) - 1
            assert sum(moves[step, here, there] for there in cells) == visits
    assert chi2.sf(statistic, freedom) > SIGNIFICANCE


# Whole runs.


@every_neighbourhood
@pytest.mark.parametrize("kind", ["plain", "tied", "unseen", "clustered"])
def test_finds_the_optimum_of_small_instances(name: NeighbourhoodName, kind: str) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        instance = random_instance(rng, 8, int(rng.integers(1, 8)), kind=kind)
        assert_optimal(instance, Annealing(neighbourhood=name, steps=1500).solve(instance, rng))


@every_neighbourhood
@pytest.mark.parametrize("num_unseen", [1, 2, 3, 6])
def test_unseen_clients(name: NeighbourhoodName, num_unseen: int) -> None:
    rng = np.random.default_rng(num_unseen)
    u = rng.random(6)
    u[rng.permutation(6)[:num_unseen]] = np.inf
    instance = BottleneckProblem(bottleneck=u, weight=rng.random(6), size=2)
    trace = Annealing(neighbourhood=name, steps=500).trace(instance, rng)
    assert_optimal(instance, trace.positions)
    assert np.isinf(trace.best[-1]) == (num_unseen >= 2)
    assert not np.isnan(trace.current).any()


@every_neighbourhood
@pytest.mark.parametrize(("clients", "size"), [(1, 1), (4, 4), (4, 1), (4, 3)])
def test_smallest_and_largest_cohorts(name: NeighbourhoodName, clients: int, size: int) -> None:
    rng = np.random.default_rng(5)
    instance = random_instance(rng, clients, size)
    trace = Annealing(neighbourhood=name, steps=300).trace(instance, rng)
    assert trace.current.shape == trace.best.shape == (301,)
    assert_optimal(instance, trace.positions)


@every_neighbourhood
def test_solve_and_trace_take_the_same_walk_and_repeat(name: NeighbourhoodName) -> None:
    instance = random_instance(np.random.default_rng(0), 200, 10, kind="clustered")
    config = Annealing(neighbourhood=name, steps=400)
    first, second = (config.trace(instance, np.random.default_rng(3)) for _ in range(2))
    positions = config.solve(instance, np.random.default_rng(3))
    assert positions.dtype == np.int64
    assert np.all(np.diff(positions) > 0)
    np.testing.assert_array_equal(positions, first.positions)
    np.testing.assert_array_equal(first.current, second.current)
    np.testing.assert_array_equal(first.best, np.maximum.accumulate(first.current))
    assert first.best[-1] == pytest.approx(instance.energy(positions), abs=1e-9)
    other = config.trace(instance, np.random.default_rng(4))
    assert not np.array_equal(other.current, first.current)


def test_equal_clients_are_chosen_equally_often() -> None:
    instance = BottleneckProblem(bottleneck=np.full(6, np.inf), weight=np.zeros(6), size=2)
    chosen = np.zeros(6)
    for seed in range(900):
        chosen[Annealing(steps=5).solve(instance, np.random.default_rng(seed))] += 1
    # Two of six without replacement: the counts vary (K - m)/(K - 1) times as much as with it.
    statistic = ((chosen - 300) ** 2 / 300).sum() * (6 - 1) / (6 - 2)
    assert chi2.sf(statistic, 5) > SIGNIFICANCE


def test_leaves_the_instance_alone() -> None:
    u, w = np.array([np.inf, 0.5, np.inf, 0.1]), np.arange(4.0)
    for array in (u, w):
        array.setflags(write=False)
    Annealing(steps=50).solve(
        BottleneckProblem(bottleneck=u, weight=w, size=2), np.random.default_rng(0)
    )
    np.testing.assert_array_equal(u, [np.inf, 0.5, np.inf, 0.1])


def test_config_survives_a_table() -> None:
    config = Annealing(neighbourhood="pause", steps=7, kappa=30.0)
    table = to_table(config)
    assert table.pop("name") == "annealing"
    assert from_table(Annealing, table) == config


@pytest.mark.parametrize(
    ("key", "value"),
    [("neighbourhood", "ring"), ("steps", 0), ("kappa", 0.0), ("kappa", np.nan), ("kappa", np.inf)],
)
def test_refuses_bad_hyper_parameters(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key):
        from_table(Annealing, {key: value})


@settings(derandomize=True)
@given(instance=instances(), name=st.sampled_from(NAMES), seed=st.integers(0, 99))
def test_never_above_brute_force_and_what_is_claimed_is_reached(
    instance: BottleneckProblem, name: NeighbourhoodName, seed: int
) -> None:
    found = Annealing(neighbourhood=name, steps=30).solve(instance, np.random.default_rng(seed))
    best = BruteForce().solve(instance, np.random.default_rng(seed))
    assert len(np.unique(found)) == instance.size
    reached, most = worth(instance, found), worth(instance, best)
    assert reached <= most or reached == pytest.approx(most, abs=1e-9)


@pytest.mark.parametrize(
    ("u", "w"), [(np.nan, 0.0), (-np.inf, 0.0), (0.0, np.nan), (0.0, np.inf), (0.0, -np.inf)]
)
def test_values_that_cannot_be_ordered_are_refused(u: float, w: float) -> None:
    bottleneck, weight = np.array([1.0, u, 2.0]), np.array([1.0, w, 2.0])
    instance = BottleneckProblem(bottleneck=bottleneck, weight=weight, size=2)
    with pytest.raises(DataError, match="at position 1"):
        Annealing(steps=5).solve(instance, np.random.default_rng(0))

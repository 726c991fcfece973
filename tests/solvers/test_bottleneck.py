"""Exact against brute force, against a plain sweep, and against favouritism."""

from collections import Counter
from collections.abc import Callable, Collection
from heapq import heapify, heappushpop
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, chisquare

from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.streams import stream
from fedmuster.solvers import bottleneck as pruning
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.bottleneck_problem import BottleneckProblem, BruteForce
from fedmuster.solvers.frontier import Field, Frontier, sweep
from fedmuster.solvers.top_k import top_k

SIGNIFICANCE = 1e-3


@pytest.fixture(params=["swept", "pruned"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways through the solver, on instances of any size."""
    kind: str = request.param
    if kind == "pruned":
        monkeypatch.setattr(pruning, "FEW", 0)
        monkeypatch.setattr(pruning, "COHORTS_IN_SAMPLE", 1)
        monkeypatch.setattr(pruning, "_CHUNK", 2)
    else:
        monkeypatch.setattr(pruning, "FEW", 10**9)
    return kind


@st.composite
def instances(draw: st.DrawFn) -> BottleneckProblem:
    """Small integers, so that ties are everywhere; infinities; all kinds of clusters."""
    num_clients = draw(st.integers(1, 9))
    size = draw(st.integers(1, num_clients))

    def numbers(choices: list[float]) -> FloatArray:
        values = st.lists(st.sampled_from(choices), min_size=num_clients, max_size=num_clients)
        return np.array(draw(values), dtype=np.float64)

    whole = [float(number) for number in range(-3, 4)]
    unseen = draw(st.sampled_from([[], [np.inf], [np.inf] * 6]))
    clusters: IntArray | None = None
    penalty = 0.0
    kind = draw(st.sampled_from(["none", "one", "own", "random", "wild", "negative"]))
    if kind != "none":
        penalty = draw(st.sampled_from([0.0, 0.25, 1.0, 50.0]))
        labels = {
            "one": [7.0],
            "own": [0.0],
            "random": [0.0, 1.0, 2.0],
            "wild": [0.0, 1e9],
            "negative": [-1.0, 0.0],
        }[kind]
        clusters = numbers(labels).astype(np.int64)
        if kind == "own":
            clusters += np.arange(num_clients)
    return BottleneckProblem(
        bottleneck=numbers(whole + unseen),
        weight=numbers(whole),
        size=size,
        clusters=clusters,
        penalty=penalty,
    )


def assert_as_good(instance: BottleneckProblem, positions: IntArray, reference: IntArray) -> None:
    slowest, rest = instance.parts(positions)
    best_slowest, best_rest = instance.parts(reference)
    if np.isinf(best_slowest):
        assert np.isinf(slowest)
        assert rest == pytest.approx(best_rest, abs=1e-9)
    else:
        assert slowest + rest == pytest.approx(best_slowest + best_rest, abs=1e-9)


def assert_cohort(instance: BottleneckProblem, positions: IntArray) -> None:
    assert positions.dtype == np.int64
    assert len(positions) == instance.size
    assert (np.diff(positions) > 0).all()
    assert positions[0] >= 0
    assert positions[-1] < len(instance.weight)


@pytest.mark.parametrize("few", [10**9, 0])
@given(instance=instances(), seed=st.integers(0, 9))
def test_as_good_as_brute_force(few: int, instance: BottleneckProblem, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning, "FEW", few)
        patch.setattr(pruning, "COHORTS_IN_SAMPLE", 1)
        patch.setattr(pruning, "_CHUNK", 2)
        positions = Exact().solve(instance, stream(seed, "exact"))
    assert_cohort(instance, positions)
    reference = BruteForce().solve(instance, stream(seed, "brute"))
    assert_cohort(instance, reference)
    assert_as_good(instance, positions, reference)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_as_good_as_brute_force_with_real_numbers(size: int) -> None:
    for seed in range(60):
        rng = stream(seed, "layout")
        num_clients = int(rng.integers(10, 25))
        clusters = rng.integers(0, 6, num_clients) if seed % 2 else None
        instance = BottleneckProblem(
            bottleneck=rng.normal(size=num_clients) * rng.choice([0.1, 1, 10]),
            weight=rng.normal(size=num_clients),
            size=size,
            clusters=clusters,
            penalty=0.0 if clusters is None else float(rng.exponential(0.3)),
        )
        positions = Exact().solve(instance, rng)
        assert_cohort(instance, positions)
        assert_as_good(instance, positions, BruteForce().solve(instance, rng))


def plain_sweep(instance: BottleneckProblem) -> float:
    """The optimum without a penalty, by sorting everyone: an independent reference."""
    order = np.argsort(-instance.bottleneck, kind="stable")
    u, w = instance.bottleneck[order].tolist(), instance.weight[order].tolist()
    heap = w[: instance.size]
    heapify(heap)
    total = sum(heap)
    best = u[instance.size - 1] + total / instance.size
    for level, weight in zip(u[instance.size :], w[instance.size :], strict=True):
        total += weight - heappushpop(heap, weight)
        best = max(best, level + total / instance.size)
    return float(best)


def plain_clustered(instance: BottleneckProblem) -> float:
    """The optimum with a penalty, every threshold from scratch: an independent reference."""
    assert instance.clusters is not None
    order = np.lexsort((-instance.weight, instance.clusters))
    u, w, labels = instance.bottleneck[order], instance.weight[order], instance.clusters[order]
    best = -np.inf
    for threshold in np.unique(u):
        above = np.flatnonzero(u >= threshold)
        if len(above) >= instance.size:
            further = np.diff(labels[above], prepend=-1) == 0
            values = w[above] - instance.size * instance.penalty * further
            top = np.partition(values, -instance.size)[-instance.size :]
            best = max(best, float(threshold + top.sum() / instance.size))
    return best


def counts_state(num_clients: int, size: int, rng: np.random.Generator) -> BottleneckProblem:
    """w a function of a few counts: massive ties."""
    counts = rng.geometric(0.3, num_clients)
    u = rng.random(num_clients) + np.sqrt(2.0 / counts)
    return BottleneckProblem(bottleneck=u, weight=-counts.astype(np.float64), size=size)


def coarse_state(num_clients: int, size: int, rng: np.random.Generator) -> BottleneckProblem:
    u = rng.integers(0, 40, num_clients) / 4
    return BottleneckProblem(bottleneck=u, weight=rng.integers(-9, 9, num_clients) / 2, size=size)


def uneven_state(num_clients: int, size: int, rng: np.random.Generator) -> BottleneckProblem:
    u = rng.lognormal(0, 1, num_clients)
    u[rng.choice(num_clients, size - 1, replace=False)] = np.inf
    return BottleneckProblem(bottleneck=u, weight=rng.gumbel(size=num_clients), size=size)


def independent_state(num_clients: int, size: int, rng: np.random.Generator) -> BottleneckProblem:
    return BottleneckProblem(
        bottleneck=rng.random(num_clients), weight=rng.random(num_clients), size=size
    )


def rare_best_state(num_clients: int, size: int, rng: np.random.Generator) -> BottleneckProblem:
    weight = rng.integers(0, 2, num_clients).astype(np.float64)
    weight[: size // 2] = 10.0
    return BottleneckProblem(bottleneck=rng.random(num_clients), weight=weight, size=size)


def arc_state(num_clients: int, size: int, rng: np.random.Generator) -> BottleneckProblem:
    angle = rng.random(num_clients) * np.pi / 2
    return BottleneckProblem(bottleneck=np.sin(angle), weight=np.cos(angle), size=size)


def opposed_state(num_clients: int, size: int, rng: np.random.Generator) -> BottleneckProblem:
    u = np.arange(num_clients) / 7 + rng.random()
    return BottleneckProblem(bottleneck=u, weight=-u, size=size)


def huge_scale_state(num_clients: int, size: int, rng: np.random.Generator) -> BottleneckProblem:
    """Levels that differ by little at a large offset, where bounds round."""
    u = 1e6 + 1e-3 * rng.random(num_clients)
    return BottleneckProblem(bottleneck=u, weight=1e-3 * rng.random(num_clients) - 1e6, size=size)


State = Callable[[int, int, np.random.Generator], BottleneckProblem]
STATES: list[State] = [
    counts_state,
    coarse_state,
    uneven_state,
    independent_state,
    rare_best_state,
    arc_state,
    opposed_state,
    huge_scale_state,
]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("num_clients", "size"), [(3_000, 1), (3_000, 40), (12_000, 25), (50_000, 100)]
)
@pytest.mark.parametrize("chunk", [1_000, 1 << 15])
def test_as_good_as_a_plain_sweep(
    state: State, num_clients: int, size: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "_CHUNK", chunk)
    for seed in range(3):
        instance = state(num_clients, size, stream(seed, "layout"))
        positions = Exact().solve(instance, stream(seed, "exact"))
        assert_cohort(instance, positions)
        scale = 1.0 + float(np.abs(instance.weight).max())
        assert instance.energy(positions) == pytest.approx(plain_sweep(instance), abs=1e-13 * scale)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("num_clusters", [1, 4, 60, 3_000])
@pytest.mark.parametrize("penalty", [0.01, 3.0])
def test_as_good_as_a_plain_clustered_sweep(
    state: State, num_clusters: int, penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "FEW", 100)
    monkeypatch.setattr(pruning, "_CHUNK", 300)
    rng = stream(num_clusters, "layout")
    plain = state(1_500, 20, rng)
    instance = BottleneckProblem(
        bottleneck=plain.bottleneck,
        weight=plain.weight,
        size=20,
        clusters=rng.integers(0, num_clusters, 1_500),
        penalty=penalty,
    )
    positions = Exact().solve(instance, rng)
    assert_cohort(instance, positions)
    scale = 1.0 + float(np.abs(instance.weight).max())
    assert instance.energy(positions) == pytest.approx(plain_clustered(instance), abs=1e-13 * scale)


@pytest.mark.usefixtures("path")
def test_finds_a_threshold_far_above_the_sample() -> None:
    # Every third client is sampled; the best one is not, and its u is above all of the sample.
    u = np.array([1.0, 100, 0.5, 0, 0.5, 0.5, 0, 0.5, 0.5])
    w = np.array([0.0, 0, 4, 5, 4, 4, 5, 4, 4])
    assert Exact().solve(
        BottleneckProblem(bottleneck=u, weight=w, size=1), stream(0, "x")
    ).tolist() == [1]


def test_pruning_drops_nearly_everyone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Massive ties in w must not make the last sweep long."""
    swept: list[int] = []

    def counting(field: Field) -> Frontier:
        swept.append(len(field.weight))
        return sweep(field)

    monkeypatch.setattr(pruning, "sweep", counting)
    for state in (counts_state, coarse_state, uneven_state, independent_state, rare_best_state):
        Exact().solve(state(50_000, 10, stream(1, "layout")), stream(1, "exact"))
    assert max(swept) < 10_000


def test_everyone_unseen_is_decided_by_the_additive_part() -> None:
    weight = np.array([0.0, 3.0, 2.9, 1.0, 5.0])
    u = np.array([np.inf, np.inf, np.inf, np.inf, 9.0])
    plain = BottleneckProblem(bottleneck=u, weight=weight, size=2)
    assert Exact().solve(plain, stream(0, "x")).tolist() == [1, 2]
    clustered = BottleneckProblem(
        bottleneck=u, weight=weight, size=2, clusters=np.array([0, 1, 1, 2, 3]), penalty=2.0
    )
    assert Exact().solve(clustered, stream(0, "x")).tolist() == [1, 3]


def frequencies(
    instance: BottleneckProblem, solver: Exact | BruteForce, rounds: int
) -> Counter[tuple[int, ...]]:
    rng = stream(3, "fairness")
    return Counter(tuple(solver.solve(instance, rng).tolist()) for _ in range(rounds))


def assert_uniform(seen: Counter[tuple[int, ...]], expected: Collection[tuple[int, ...]]) -> None:
    assert set(seen) <= set(expected)
    assert chisquare([seen[cohort] for cohort in sorted(expected)]).pvalue > SIGNIFICANCE


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("level", [0.0, 1.0, np.inf])
def test_equal_clients_are_chosen_equally_often(level: float) -> None:
    weight = np.zeros(9) if level == 0 else np.ones(9)  # with all 0 the bins of u have no width
    instance = BottleneckProblem(bottleneck=np.full(9, level), weight=weight, size=2)
    assert_uniform(frequencies(instance, Exact(), 15 * comb(9, 2)), set(combinations(range(9), 2)))


def test_brute_force_is_fair_too() -> None:
    instance = BottleneckProblem(bottleneck=np.ones(6), weight=np.ones(6), size=2)
    assert_uniform(frequencies(instance, BruteForce(), 300), set(combinations(range(6), 2)))


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("level", [1.0, np.inf])
def test_equal_clients_of_a_cluster_are_chosen_equally_often(level: float) -> None:
    instance = BottleneckProblem(
        bottleneck=np.full(9, level),
        weight=np.ones(9),
        size=2,
        clusters=np.array([0, 0, 0, 0, 1, 1, 1, 1, 1]),
        penalty=0.5,
    )
    pairs = {(first, second) for first in range(4) for second in range(4, 9)}
    assert_uniform(frequencies(instance, Exact(), 300), pairs)


@pytest.mark.usefixtures("path")
def test_tied_thresholds_are_chosen_equally_often() -> None:
    # Each of the first three alone has energy 4; the others have less.
    u, w = np.array([4.0, 3, 2, 1, 0, 0, 0, 0, 0]), np.array([0.0, 1, 2, 2, 2, 2, 2, 2, 2])
    instance = BottleneckProblem(bottleneck=u, weight=w, size=1)
    assert_uniform(frequencies(instance, Exact(), 300), {(0,), (1,), (2,)})


@pytest.mark.parametrize("clustered", [False, True])
def test_ties_favour_no_low_ids_when_pruned(clustered: bool) -> None:
    num_clients, size, tied = 4_000, 10, 60
    rng = stream(8, "layout")
    u, w = rng.random(num_clients), -rng.random(num_clients)
    group = np.sort(rng.choice(num_clients, tied, replace=False))
    u[group], w[group] = 1.0, 1.0
    instance = BottleneckProblem(
        bottleneck=u,
        weight=w,
        size=size,
        clusters=np.zeros(num_clients, dtype=np.int64) if clustered else None,
        penalty=0.1 if clustered else 0.0,
    )
    rounds = 600
    chosen = np.concatenate([Exact().solve(instance, rng) for _ in range(rounds)])
    assert np.isin(chosen, group).all()
    share = size / tied
    counts = np.bincount(chosen, minlength=num_clients)[group]
    # Sampling without replacement: counts are negatively correlated, hence the factor.
    statistic = ((counts - rounds * share) ** 2).sum() / (rounds * share * (1 - share))
    assert chi2.sf(statistic * (tied - 1) / tied, tied - 1) > SIGNIFICANCE


@pytest.mark.parametrize("solver", [Exact(), BruteForce()])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bottleneck", np.nan),
        ("bottleneck", -np.inf),
        ("weight", np.nan),
        ("weight", np.inf),
        ("weight", -np.inf),
    ],
)
@pytest.mark.parametrize("num_clients", [3, 200_000])
def test_refuses_what_cannot_be_ordered(
    solver: Exact | BruteForce, name: str, value: float, num_clients: int
) -> None:
    values = {"bottleneck": np.ones(num_clients), "weight": np.ones(num_clients)}
    values["bottleneck"][0] = np.inf
    values[name][num_clients - 2] = value
    instance = BottleneckProblem(bottleneck=values["bottleneck"], weight=values["weight"], size=2)
    with pytest.raises(DataError, match=f"{name} holds {value} at position {num_clients - 2}"):
        solver.solve(instance, stream(0, "x"))


def test_brute_force_refuses_too_many_sets() -> None:
    instance = BottleneckProblem(bottleneck=np.ones(60), weight=np.ones(60), size=10)
    with pytest.raises(DataError, match="use Exact"):
        BruteForce().solve(instance, stream(0, "x"))


def test_does_not_change_its_instance() -> None:
    instance = uneven_state(5_000, 20, stream(0, "layout"))
    u, w = instance.bottleneck.copy(), instance.weight.copy()
    Exact().solve(instance, stream(0, "x"))
    assert np.array_equal(instance.bottleneck, u)
    assert np.array_equal(instance.weight, w)


@pytest.mark.parametrize("num_unseen", [20, 21, 3_000, 5_000])
def test_equal_unseen_clients_are_drawn_as_top_k_draws_them(num_unseen: int) -> None:
    """Without a list of their weights, but with the same random numbers."""
    u, w = np.ones(5_000), stream(0, "weights").random(5_000)
    unseen = np.sort(stream(0, "unseen").choice(5_000, num_unseen, replace=False))
    u[unseen], w[unseen] = np.inf, 0.25
    instance = BottleneckProblem(bottleneck=u, weight=w, size=20)
    rng, reference = stream(0, "x"), stream(0, "x")
    chosen = Exact().solve(instance, rng)
    assert chosen.tolist() == unseen[top_k(w[unseen], 20, reference)].tolist()
    assert rng.random() == reference.random()

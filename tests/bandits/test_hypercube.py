"""Equal hypercubes: by hand, against plain Python, and on a known law."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.core import state as states
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray, IntArray, Problem
from fedmuster.policies.cocs.hypercubes import (
    Control,
    EqualCubes,
    Estimate,
    Pool,
    RatesState,
    SuccessRates,
    ZoomingCubes,
)


def network(clients: int, edges: int, features: int) -> Problem:
    return Problem(num_clients=clients, cohort_size=clients, num_edges=edges, num_features=features)


def one(rates: SuccessRates, state: RatesState, pair: tuple[int, int], at: list[float]) -> Estimate:
    client, edge = np.array([pair[0]]), np.array([pair[1]])
    return rates.estimate(state, client, edge, np.array([at]), round_=10, control=Control())


def test_control_function_by_hand() -> None:
    assert Control().z == pytest.approx(2 / 5)
    assert Control().needed(1) == 0.0
    # 10^0.4 ln 10 = 2.5118864 · 2.3025851
    assert Control().needed(10) == pytest.approx(5.7838321, rel=1e-7)
    # 1000^0.4 ln 1000 = 15.8489319 · 6.9077553
    assert Control(factor=0.5).needed(1000) == pytest.approx(109.4805441 / 2, rel=1e-7)
    # alpha = 1/2: z = 1 / 3.5; 128^(2/7) = 2^2
    assert Control(holder_alpha=0.5).needed(128) == pytest.approx(4 * math.log(128), rel=1e-12)
    # Theorem 4 as printed, alpha = 1: 32^0.8 = 2^4
    assert Control(exponent=0.8).needed(32) == pytest.approx(16 * math.log(32), rel=1e-12)


def test_halvings_are_exact_at_powers_of_two() -> None:
    # h = t^(1/5): 2 from round 32 on, 4 from 1024, 8 from 32768.
    rounds = [1, 31, 32, 1023, 1024, 32767, 32768]
    assert [Control().halvings(t) for t in rounds] == [0, 0, 1, 1, 2, 2, 3]


def test_cubes_at_their_borders() -> None:
    cubes = EqualCubes(cubes_per_axis=4)
    context = np.array([[0.0], [0.2499], [0.25], [0.75], [1.0], [-3.0], [1.7], [1e300]])
    assert cubes.cubes_of(context)[:, 0].tolist() == [0, 0, 1, 3, 3, 0, 3, 3]
    assert (cubes.num_cubes(1), cubes.num_cubes(3)) == (4, 64)


def test_without_context_there_is_one_cube() -> None:
    for cubes in (EqualCubes(), ZoomingCubes()):
        assert cubes.num_cubes(0) == 1
        assert cubes.cubes_of(np.zeros((3, 0))).tolist() == [[0], [0], [0]]


@given(
    per_axis=st.integers(1, 9),
    context=st.lists(st.tuples(*[st.floats(-0.5, 1.5)] * 3), min_size=1, max_size=8),
)
def test_cubes_as_plain_python_has_them(
    per_axis: int, context: list[tuple[float, float, float]]
) -> None:
    cubes = EqualCubes(cubes_per_axis=per_axis)
    for row, cube in zip(context, cubes.cubes_of(np.array(context))[:, 0], strict=True):
        expected = 0
        for number in row:
            inside = min(max(number, 0.0), 1.0)
            expected = expected * per_axis + min(int(inside * per_axis), per_axis - 1)
        assert cube == expected < cubes.num_cubes(3)


def test_a_history_by_hand() -> None:
    """Two clients, two edges, 2 × 2 cubes: counters count every selection, X the successes."""
    rates = SuccessRates(cubes=EqualCubes(cubes_per_axis=2), pool="pairs")
    state = rates.init(network(2, 2, 2))
    low, high = [0.1, 0.3], [0.7, 0.9]
    for client, edge, context, success in [
        (0, 0, low, True),
        (0, 0, low, False),
        (0, 0, [0.4, 0.4], True),  # another context of the same cube
        (0, 0, high, False),
        (0, 1, low, False),
        (1, 1, high, True),
    ]:
        rates.observe(
            state, np.array([client]), np.array([edge]), np.array([context]), np.array([success])
        )
    seen = {
        (pair, name): (float(known.probability[0]), int(known.observations[0]))
        for pair in product(range(2), range(2))
        for name, context in (("low", low), ("high", high), ("mixed", [0.1, 0.9]))
        for known in [one(rates, state, pair, context)]
        if known.observations[0]
    }
    assert seen == {
        ((0, 0), "low"): (2 / 3, 3),
        ((0, 0), "high"): (0.0, 1),
        ((0, 1), "low"): (0.0, 1),
        ((1, 1), "high"): (1.0, 1),
    }


def test_under_explored_up_to_and_including_the_threshold() -> None:
    """K(10) = 5.78, and K(1) = 0, so that in round 1 no observation is exactly too few."""
    rates = SuccessRates(cubes=EqualCubes(), pool="pairs")
    state = rates.init(network(1, 1, 2))
    here = np.array([0]), np.array([0]), np.array([[0.5, 0.5]])
    for count in range(9):
        known = rates.estimate(state, *here, round_=10, control=Control())
        assert known.under_explored.tolist() == [count <= 5]
        first = rates.estimate(state, *here, round_=1, control=Control())  # ln 1 = 0
        assert first.under_explored.tolist() == [count == 0]
        rates.observe(state, *here, np.array([False]))


@pytest.mark.parametrize("pool", ["pairs", "clients", "edges", "network"])
@pytest.mark.parametrize("cubes", [EqualCubes(cubes_per_axis=3)])
def test_pools_keep_apart_what_they_say(pool: Pool, cubes: EqualCubes) -> None:
    rng = np.random.default_rng(5)
    rates = SuccessRates(cubes=cubes, pool=pool)
    clients, edges = 4, 3
    state = rates.init(network(clients, edges, 1))
    records: dict[tuple[int, int, int], list[bool]] = {}

    def owner(client: int, edge: int, number: float) -> tuple[int, int, int]:
        row = client if pool in ("pairs", "clients") else -1
        column = edge if pool in ("pairs", "edges") else -1
        return row, column, min(int(3 * number), 2)

    for _ in range(40):
        who = rng.permutation(clients)[:3]  # a cohort: each once, several in one pooled cube
        where = rng.integers(edges, size=3)
        context, success = rng.random((3, 1)), rng.random(3) < 0.6
        rates.observe(state, who, where, context, success)
        for c, e, x, y in zip(who, where, context[:, 0], success, strict=True):
            records.setdefault(owner(int(c), int(e), float(x)), []).append(bool(y))
    for client, edge, number in product(range(clients), range(edges), (0.1, 0.5, 0.9)):
        known = one(rates, state, (client, edge), [number])
        record = records.get(owner(client, edge, number), [])
        assert known.observations.tolist() == [len(record)]
        assert known.probability[0] == pytest.approx(sum(record) / max(len(record), 1))


@pytest.mark.parametrize("pool", ["pairs", "clients", "edges", "network"])
def test_who_joins_is_unseen_and_nothing_is_forgotten(pool: Pool) -> None:
    rates = SuccessRates(cubes=ZoomingCubes(depth=2), pool=pool)
    state = rates.init(network(3, 2, 2))
    context = np.array([[0.1, 0.2], [0.9, 0.2], [0.6, 0.6]])
    everyone, edges = np.arange(3), np.array([0, 1, 1])
    rates.observe(state, everyone, edges, context, np.array([True, True, False]))
    grown = states.grow(state, rates.init(network(5, 2, 2)))
    for client, edge, here in zip(everyone, edges, context, strict=True):
        before = one(rates, state, (int(client), int(edge)), here.tolist())
        after = one(rates, grown, (int(client), int(edge)), here.tolist())
        assert [part.tolist() for part in before] == [part.tolist() for part in after]
    newcomer = one(rates, grown, (4, 0), context[0].tolist())
    known_by_others = pool in ("edges", "network")
    assert bool(newcomer.observations[0] > 0) == known_by_others
    assert grown.count.shape[0] == (1 if known_by_others else 5)


def test_too_many_cubes_are_refused() -> None:
    rates = SuccessRates(cubes=EqualCubes(cubes_per_axis=5), pool="pairs")
    with pytest.raises(ConfigError, match=r"9765625.*10.*150"):
        rates.init(network(50, 3, 10))
    SuccessRates(cubes=EqualCubes(cubes_per_axis=2), pool="network").init(network(50, 3, 10))


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True])
def test_cubes_per_axis_is_a_positive_integer(wrong: int) -> None:
    with pytest.raises(ConfigError, match="cubes_per_axis"):
        EqualCubes(cubes_per_axis=wrong)


def squares(numbers: IntArray) -> FloatArray:
    return np.stack(np.meshgrid(numbers, numbers, indexing="ij"), axis=-1).reshape(-1, 2) / 5.0


def test_shares_converge_to_the_mean_of_the_law_in_each_cube() -> None:
    """p(x, y) = xy: in a cube the mean is the product of its centre's coordinates.

    Hoeffding for 25 cubes, each wrong with probability 1e-4 / 25.
    """
    rng = np.random.default_rng(0)
    rates = SuccessRates(cubes=EqualCubes(), pool="pairs")
    state = rates.init(network(1, 1, 2))
    number = 50_000
    context = rng.random((number, 2))
    nobody = np.zeros(number, dtype=np.int64)
    rates.observe(state, nobody, nobody, context, rng.random(number) < context.prod(axis=1))
    centres = squares(np.arange(5)) + 0.1
    zeros = np.zeros(25, dtype=np.int64)
    known = rates.estimate(state, zeros, zeros, centres, round_=100, control=Control())
    radius = np.sqrt(math.log(2 * 25 / 1e-4) / (2 * known.observations))
    assert known.observations.sum() == number
    assert radius.max() < 0.07
    assert (np.abs(known.probability - centres.prod(axis=1)) <= radius).all()

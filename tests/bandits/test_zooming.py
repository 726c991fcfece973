"""The adaptive partition: by hand, against a plain tree, and where success has a steep edge."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray, Problem
from fedmuster.policies.cocs.hypercubes import (
    Control,
    Cubes,
    EqualCubes,
    Estimate,
    RatesState,
    SuccessRates,
    ZoomingCubes,
)


def begin(cubes: Cubes, features: int = 2) -> tuple[SuccessRates, RatesState]:
    rates = SuccessRates(cubes=cubes, pool="network")
    return rates, rates.init(Problem(num_clients=1, cohort_size=1, num_features=features))


def teach(rates: SuccessRates, state: RatesState, context: FloatArray, success: FloatArray) -> None:
    zeros = np.zeros(len(context), dtype=np.int64)
    rates.observe(state, zeros, zeros, context, success > 0)


def ask(
    rates: SuccessRates, state: RatesState, context: FloatArray, round_: int, control: Control
) -> Estimate:
    zeros = np.zeros(len(context), dtype=np.int64)
    return rates.estimate(state, zeros, zeros, context, round_=round_, control=control)


@dataclass
class Node:
    """A cube as one would write it without arrays."""

    low: list[float]
    side: float = 1.0
    level: int = 0
    count: int = 0
    successes: int = 0
    children: dict[tuple[bool, ...], "Node"] = field(default_factory=dict)

    def child(self, point: list[float]) -> "Node":
        half = self.side / 2
        upper = tuple(x >= low + half for x, low in zip(point, self.low, strict=True))
        if upper not in self.children:
            corner = [low + half * up for low, up in zip(self.low, upper, strict=True)]
            self.children[upper] = Node(corner, half, self.level + 1)
        return self.children[upper]

    def path(self, point: list[float], depth: int) -> list["Node"]:
        nodes = [self]
        while nodes[-1].level < depth:
            nodes.append(nodes[-1].child(point))
        return nodes


@pytest.mark.parametrize("control", [Control(), Control(holder_alpha=0.6, factor=0.3)])
@pytest.mark.parametrize("features", [1, 2, 3])
def test_a_plain_tree_agrees(features: int, control: Control) -> None:
    depth = 3
    rng = np.random.default_rng(features)
    rates, state = begin(ZoomingCubes(depth=depth), features)
    tree = Node([0.0] * features)
    levels_in_force = set()
    for t in range(1, 1200):
        points = rng.beta(1, 3, size=(2, features))  # most in one corner, so that depths differ
        known = ask(rates, state, points, t, control)
        for row, point in enumerate(points.tolist()):
            path = tree.path(point, depth)
            in_force = path[0]
            for node in path:  # down, as long as the standard error is within the cube's width
                if (
                    node.count
                    and 1 / (2 * math.sqrt(node.count)) <= node.side**control.holder_alpha
                ):
                    in_force = node
                else:
                    break
            axis_cubes = t ** (control.z / (2 * control.holder_alpha))
            judge = max(node for node in range(depth + 1) if 2**node <= axis_cubes * (1 + 1e-12))
            needed = control.factor * 2 ** (2 * control.holder_alpha * judge) * math.log(t)
            assert known.observations[row] == in_force.count
            assert known.probability[row] == in_force.successes / max(in_force.count, 1)
            assert bool(known.under_explored[row]) == (path[judge].count <= needed)
            levels_in_force.add(in_force.level)
        success = (rng.random(2) < 0.5).astype(np.float64)
        teach(rates, state, points, success)
        for point, took_part in zip(points.tolist(), success, strict=True):
            for node in tree.path(point, depth):
                node.count += 1
                node.successes += int(took_part)
    assert levels_in_force == set(range(depth + 1))


def test_zooming_by_hand() -> None:
    """One feature, alpha = 1: cubes of level 0, 1, 2, 3 come into force with 1, 1, 4, 16."""
    rates, state = begin(ZoomingCubes(depth=3), features=1)

    def known(at: float) -> tuple[float, int]:
        answer = ask(rates, state, np.array([[at]]), 20, Control())
        return float(answer.probability[0]), int(answer.observations[0])

    assert known(0.1) == (0.0, 0)
    teach(rates, state, np.array([[0.30]]), np.array([1.0]))
    assert known(0.9) == (1.0, 1)  # the root, for nothing was seen in [1/2, 1]
    teach(rates, state, np.array([[0.05], [0.06], [0.07]]), np.zeros(3))
    assert known(0.1) == (0.25, 4)  # [0, 1/2]; [0, 1/4] has three
    teach(rates, state, np.array([[0.20]]), np.array([1.0]))
    assert known(0.1) == (0.25, 4)  # [0, 1/4] now has four, of which one took part
    assert known(0.3) == (0.4, 5)  # [0, 1/2]
    assert known(0.9) == (0.4, 5)  # the root still
    teach(rates, state, np.full((13, 1), 0.01), np.ones(13))
    assert known(0.01) == (13 / 16, 16)  # [0, 1/8] has its 16
    assert known(0.15) == (14 / 17, 17)  # [1/8, 1/4] has not


def test_what_is_forced() -> None:
    """The depth that everybody must be explored to is 0, 1, 2 from round 1, 32, 1024."""
    cubes = ZoomingCubes(depth=4)
    for t, level, needed in [
        (1, 0, 0.0),
        (20, 0, math.log(20)),
        (32, 1, 4 * math.log(32)),
        (1024, 2, 16 * math.log(1024)),
    ]:
        demand = cubes.demand(Control(), t, 2)
        assert demand.level == level
        assert demand.needed == pytest.approx(needed, rel=1e-12)
        assert demand.needed <= Control().needed(t) * (1 + 1e-12)
    assert Control().needed(1024) == pytest.approx(16 * math.log(1024))  # no more than the paper
    assert cubes.demand(Control(), 32, 2).least.tolist() == [0.25, 1.0, 4.0, 16.0, 64.0]
    assert ZoomingCubes(depth=1).demand(Control(), 10**6, 2).level == 1
    assert cubes.demand(Control(), 10**6, 0).level == 0


@given(depth=st.integers(0, 4), points=st.lists(st.tuples(*[st.floats(0, 1)] * 2), min_size=1))
def test_cubes_lie_within_each_other(depth: int, points: list[tuple[float, float]]) -> None:
    cubes = ZoomingCubes(depth=depth)
    context = np.array(points)
    path = cubes.cubes_of(context)
    assert path.shape == (len(points), depth + 1)
    assert path.max() < cubes.num_cubes(2) == sum(4**level for level in range(depth + 1))
    for level in range(depth + 1):
        first = sum(4**above for above in range(level))
        alone = EqualCubes(cubes_per_axis=2**level).cubes_of(context)[:, 0]
        assert (path[:, level] - first == alone).all()


def test_every_level_counts_everything_and_nothing_grows() -> None:
    rng = np.random.default_rng(2)
    rates, state = begin(ZoomingCubes(depth=3))
    shape = state.count.shape
    for _ in range(5):
        teach(rates, state, rng.random((100, 2)), rng.random(100) - 0.5)
    starts = np.array([0, 1, 5, 21])
    assert np.add.reduceat(state.count[0, 0], starts).tolist() == [500] * 4
    assert len(set(np.add.reduceat(state.successes[0, 0], starts).tolist())) == 1
    assert state.count.shape == shape == (1, 1, 85)


@pytest.mark.parametrize("wrong", [-1, 21, 1.5])
def test_depth_is_checked(wrong: int) -> None:
    with pytest.raises(ConfigError, match="depth"):
        ZoomingCubes(depth=wrong)


def mean_squared_error(cubes: Cubes, observations: int, seed: int) -> float:
    """Of the estimates, where success jumps from 5 % to 95 % at a place that chance decides."""
    rng = np.random.default_rng(seed)
    edge = rng.uniform(0.1, 0.9)

    def law(context: FloatArray) -> FloatArray:
        return np.where(context[:, 0] > edge, 0.95, 0.05)

    rates, state = begin(cubes)
    context = rng.random((observations, 2))
    teach(rates, state, context, law(context) - rng.random(observations))
    asked = rng.random((1000, 2))
    known = ask(rates, state, asked, observations // 5, Control())
    return float(np.mean((known.probability - law(asked)) ** 2))


STUDENT_39 = 3.3128
"""The 99.9 % quantile with 39 degrees of freedom."""


@pytest.mark.parametrize("observations", [20, 50, 5_000, 20_000])
def test_it_knows_a_steep_edge_better_than_equal_cubes(observations: int) -> None:
    """Few observations, or very many: paired one-sided t-test over 40 places, p < 0.001.

    In between, at some 200 to 1,000 observations, 25 equal cubes happen to be the right ones, and
    are as good or a little better.
    """
    gains = np.array(
        [
            mean_squared_error(EqualCubes(), observations, seed)
            - mean_squared_error(ZoomingCubes(depth=5), observations, seed)
            for seed in range(40)
        ]
    )
    assert gains.mean() > STUDENT_39 * gains.std(ddof=1) / math.sqrt(len(gains))


def test_it_converges_to_the_law() -> None:
    """p(x, y) = xy, seen 200,000 times: within the width of the smallest cubes and some noise."""
    rng = np.random.default_rng(3)
    rates, state = begin(ZoomingCubes(depth=4))
    context = rng.random((200_000, 2))
    teach(rates, state, context, context.prod(axis=1) - rng.random(len(context)))
    asked = rng.random((2000, 2))
    error = ask(rates, state, asked, 1000, Control()).probability - asked.prod(axis=1)
    # A cube of 1/16 has about 780 observations: a standard error of at most 0.018; within it xy
    # lies within 1/16 of its mean. Five standard errors, for 256 cubes.
    assert np.abs(error).max() <= 1 / 16 + 5 * 0.018
    assert np.sqrt(np.mean(error**2)) < 0.03

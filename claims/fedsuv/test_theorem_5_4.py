"""Theorem 5.4 by hand, information gains by brute force, and FedSUV's diagonals by a plain loop."""

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest

from claims.by_hand import run_by_hand
from claims.fedsuv.theorem_5_4 import (
    MOST,
    Ideal,
    Theorem54,
    fixed,
    gains_for,
    information_gains,
    theorem_for,
)
from claims.fedsuv.uncertainty import Course, widths_of
from fedmuster.core.records import FloatArray
from fedmuster.core.streams import stream
from fedmuster.policies.fedsuv.kernel import Kernel
from fedmuster.report.edge_rows import Scores
from fedmuster.worlds import ValidityUtilityWorld

WORLD = ValidityUtilityWorld(num_clients=40, num_attributes=2)


def test_equation_15_by_hand() -> None:
    theorem = Theorem54(num_clients=50, dimension=3, delta=0.1, noise=0.01)
    alpha = 1 + math.sqrt(math.log(40) / 2)
    beta = 2 * math.log(50 * math.pi**2 * 4 / 0.3)
    c_t, c = 2 * math.log(1 + 2 / 3), 2 / math.log(101)
    by_hand = math.sqrt(3 * alpha**2 * c_t / 2 + beta * 4.5 * c / 2)
    assert theorem.bound(np.array([2.3, 4.5]))[1] == pytest.approx(by_hand)


def test_gains_are_those_of_greedy_points_and_near_the_best() -> None:
    points = stream(1, "test").normal(size=(6, 2))
    kernel = Kernel("squared-exponential", np.array([1.0, 0.7]), 1.0)
    gains = information_gains(kernel, points, noise=0.3, rounds=3)

    def gain(rows: tuple[int, ...]) -> float:
        covariance = kernel(points[list(rows)], points[list(rows)])
        return 0.5 * float(np.linalg.slogdet(np.eye(len(rows)) + covariance / 0.3)[1])

    greedy: tuple[int, ...] = ()
    for found in gains:
        greedy = max(((*greedy, i) for i in range(6)), key=gain)
        assert found == pytest.approx(gain(greedy))
    best = max(map(gain, combinations_with_replacement(range(6), 3)))
    assert best / MOST**2 <= gains[-1] <= best + 1e-12


def test_the_gains_are_of_the_policys_own_kernel() -> None:
    problem = WORLD.start(0).problem
    gains = gains_for(fixed(WORLD), problem, rounds=5)
    assert gains[0] == pytest.approx(0.5 * math.log(1 + 1 / 0.01))
    assert theorem_for(fixed(WORLD), problem).dimension == 3


def test_diagonals_are_those_of_a_plain_loop() -> None:
    """Ridge and Gaussian process from their textbook formulas, boxes one by one."""
    rounds = 12
    ideal = Ideal.of(WORLD, seed=3)
    run = WORLD.start(3)
    assert run.problem.attributes is not None
    z = run.problem.attributes
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    x = np.column_stack([np.ones(40), z])
    x /= np.sqrt(np.square(x).sum(axis=1).max())  # no longer than 1, and lambda = 1
    apart = np.square(z[:, None] - z[None]).sum(axis=2) / 2  # length scale: the root of d
    prior = np.exp(-apart / 2)
    alpha = 1 + math.sqrt(math.log(4 / 0.1) / 2)
    chosen: list[int] = []
    values: list[float] = []
    low, high = np.full((2, 40), -np.inf), np.full((2, 40), np.inf)
    expected = []
    for t in range(1, rounds + 1):
        ridge = np.linalg.inv(np.eye(3) + x[chosen].T @ x[chosen])
        validity = x @ ridge @ x[chosen].sum(axis=0)
        gain = prior[:, chosen] @ np.linalg.inv(
            prior[np.ix_(chosen, chosen)] + 0.01 * np.eye(t - 1)
        )
        utility = gain @ np.array(values)
        variance = 1 - (gain * prior[:, chosen]).sum(axis=1)
        beta = 2 * math.log(40 * math.pi**2 * t**2 / 0.3)
        radii = np.stack([alpha * np.sqrt(((x @ ridge) * x).sum(axis=1)), np.sqrt(beta * variance)])
        low = np.maximum(low, np.stack([validity, utility]) - radii)
        high = np.minimum(high, np.stack([validity, utility]) + radii)
        diagonals = np.hypot(*(high - low))
        who = int(np.argmax(diagonals))
        expected.append(diagonals[who])
        luck = stream(3, "world", t).standard_normal()
        chosen.append(who)
        values.append(float(np.clip(run.columns["utility"][who] + 0.1 * luck, -1, 1)))
    np.testing.assert_allclose(ideal.widths(rounds), expected, rtol=1e-7)


def test_the_factor_is_needed_and_enough() -> None:
    ideal = Ideal.of(WORLD, seed=1)
    bound = theorem_for(ideal.policy, ideal.problem).bound(
        gains_for(ideal.policy, ideal.problem, rounds=25)
    )
    share = ideal.widths(25) / bound
    assert share[0] > MOST  # nothing observed, and above whatever gamma_1 may be
    assert share.max() <= 2.0


def course(*widths: list[float]) -> Course:
    return Course(
        title="a test",
        widths=np.array(widths),
        bound=np.full((len(widths), len(widths[0])), 2.0),
        answered=1.0,
    )


def test_a_bound_is_broken_in_a_round_if_it_is_in_any_seed() -> None:
    found = course([math.inf, 3.0, 1.0, 1.0], [math.inf, 1.0, 2.5, 0.5])
    assert found.broken() == [2, 3]
    assert found.broken(1.3) == [2]
    assert found.broken(2.0) == []
    assert found.use() == pytest.approx(1.5)
    assert found.rises == 1


def test_only_candidates_count() -> None:
    nan = np.nan

    def rows(*values: list[float]) -> FloatArray:
        return np.array(values)

    scores = Scores(
        rounds=np.array([1, 2]),
        clients=np.array([0, 1]),
        values={
            "validity_low": rows([nan, nan], [0.0, 0.0]),
            "validity_high": rows([nan, nan], [3.0, 30.0]),
            "utility_low": rows([nan, nan], [-2.0, 0.0]),
            "utility_high": rows([nan, nan], [2.0, 30.0]),
            "left_by": rows([0.0, 0.0], [0.0, 2.0]),
        },
    )
    run = run_by_hand("fedsuv", 0, [[0], [0]], {}, scores=scores)
    assert widths_of(run).tolist() == [math.inf, 5.0]

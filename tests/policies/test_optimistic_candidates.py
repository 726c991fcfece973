"""What BSFL and PAUSE choose when they compute indices block by block: what they choose anyway."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator

from fedmuster.bandits.means import DiscountedMean, SpreadState, WindowedMean
from fedmuster.bandits.speed import SpeedEstimator
from fedmuster.core.arrays import IntArray, blocks
from fedmuster.core.errors import DataError
from fedmuster.core.records import Problem, RoundView
from fedmuster.core.streams import stream
from fedmuster.policies import bottleneck_policy, optimistic_candidates
from fedmuster.policies.bottleneck_policy import BanditState, BottleneckPolicy
from fedmuster.policies.bsfl import BSFL
from fedmuster.policies.pause import PAUSE
from fedmuster.solvers import bottleneck
from fedmuster.solvers import bottleneck_candidates as candidates

POLICIES: list[BottleneckPolicy] = [
    BSFL(alpha=3.0, beta=1.2),
    BSFL(alpha=0.0, tau_min_seconds=0.01),
    BSFL(estimator=WindowedMean(window=3), scale=0.1),
    BSFL(estimator=DiscountedMean(discount=0.9)),
    BSFL(bonus="variance"),
    BSFL(bonus="minimax", estimator=DiscountedMean()),
    BSFL(scale=0.0),
    PAUSE(),
    PAUSE(zeta=3.0, rho=0.01),
]

Counts = Callable[[int, int, Generator], IntArray]


def _just(counts: IntArray, unseen: int, rng: Generator) -> IntArray:
    """Exactly this number of clients is unseen."""
    counts[rng.choice(len(counts), unseen, replace=False)] = 0
    return counts


COUNTS: dict[str, Counts] = {
    "nobody seen": lambda k, m, rng: np.zeros(k, dtype=np.int64),
    "half seen": lambda k, m, rng: rng.integers(0, 2, k),
    "few counts": lambda k, m, rng: rng.integers(1, 4, k),
    "many counts": lambda k, m, rng: 1 + rng.poisson(200, k),
    "more than clients": lambda k, m, rng: k + rng.integers(0, 2 * k, k),
    "one less unseen than a cohort": lambda k, m, rng: _just(rng.geometric(0.3, k), m - 1, rng),
    "a cohort unseen": lambda k, m, rng: _just(rng.geometric(0.3, k), m, rng),
}
MEANS: dict[str, Callable[[int, Generator], Any]] = {
    "random": lambda k, rng: rng.random(k),
    "tied": lambda k, rng: rng.integers(0, 3, k) / 4,
    "equal": lambda k, rng: 0.5,
    "far apart": lambda k, rng: 10.0 ** rng.integers(-9, 9, k),
}


def round_after(counts: IntArray, size: int) -> int:
    """The first round in which clients may have taken part this often."""
    return max(2, int(counts.sum()) // size)


def played(
    policy: BottleneckPolicy, problem: Problem, counts: IntArray, means: Any, rng: Generator
) -> BanditState:
    """A state after these participations; the means of the unseen are 0."""
    state = policy.init(problem)
    inverse = state.speed.inverse
    inverse.count[:] = counts
    inverse.mean[:] = np.where(counts > 0, means, 0.0)
    if isinstance(policy.bandit.speed.estimator, DiscountedMean):
        inverse.memory[:, 0] = np.minimum(counts, 1.0 + rng.random(len(counts)))
        inverse.memory[:, 1] = round_after(counts, problem.cohort_size) - rng.integers(1, 5)
    if isinstance(inverse, SpreadState):
        inverse.variance[:] = rng.random(len(counts)) * (counts > 1)
    state.speed.fastest_seconds[...] = 0.5
    return state


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, samples and chunks of a few clients, so that few clients need many."""
    monkeypatch.setattr(optimistic_candidates, "_BLOCK", 37)
    monkeypatch.setattr(candidates, "blocks", partial(blocks, size=11))
    monkeypatch.setattr(bottleneck, "FEW", 20)
    monkeypatch.setattr(bottleneck, "COHORTS_IN_SAMPLE", 1)
    monkeypatch.setattr(bottleneck, "_CHUNK", 13)


def chosen(
    policy: BottleneckPolicy, state: BanditState, view: RoundView, seed: int, *, many: int
) -> tuple[list[int], float]:
    """The cohort, and the next random number."""
    rng = stream(seed, "choice")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bottleneck_policy, "MANY", many)
        return policy.select(state, view, rng).clients.tolist(), float(rng.random())


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("means", MEANS)
def test_blocks_choose_the_same_bit_for_bit(
    policy: BottleneckPolicy, counts: str, means: str
) -> None:
    for seed in range(8):
        rng = stream(seed, f"{counts}, {means}")
        num_clients, size = int(rng.integers(150, 400)), int(rng.integers(1, 8))
        problem = Problem(
            num_clients=num_clients,
            cohort_size=size,
            num_samples=rng.integers(1, 90, num_clients) if seed % 2 else None,
            clusters=rng.integers(0, 5, num_clients),
        )
        state = played(
            policy,
            problem,
            COUNTS[counts](num_clients, size, rng),
            MEANS[means](num_clients, rng),
            rng,
        )
        view = RoundView(
            round=round_after(state.speed.inverse.count, size),
            cohort_size=size,
            available=rng.random(num_clients) < (1.0 if seed % 4 < 2 else 0.8),
            privacy_left=rng.random(num_clients) if seed % 8 > 5 else None,
        )
        plain = chosen(policy, state, view, seed, many=10**9)
        assert chosen(policy, state, view, seed, many=0) == plain


def test_blocks_choose_the_same_of_many_clients() -> None:
    """Blocks, samples and chunks as they are."""
    for make in COUNTS.values():
        rng = stream(0, "many")
        policy, problem = BSFL(alpha=3.0, beta=1.2), Problem(num_clients=150_000, cohort_size=20)
        state = played(policy, problem, make(150_000, 20, rng), rng.random(150_000), rng)
        view = RoundView(round=9, cohort_size=20, available=np.ones(150_000, dtype=np.bool_))
        plain = chosen(policy, state, view, 0, many=10**9)
        assert chosen(policy, state, view, 0, many=0) == plain


@pytest.mark.parametrize("tau_min", [1e-9, 0.3, 1.0, 1e6])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e8])
def test_nobody_falls_below_the_own_bound(tau_min: float, scale: float) -> None:
    """Levels are bounds themselves, where rounding shows."""
    rng = stream(1, "levels")
    speed = SpeedEstimator(estimator=WindowedMean(), tau_min_seconds=tau_min, scale=scale)
    state = speed.init(2_000)
    state.inverse.count[:] = rng.integers(0, 40, 2_000)
    state.inverse.mean[:] = 10.0 ** rng.uniform(-9, 9, 2_000)
    bounds = speed.upper_bounds(state, round_=900, cohort_size=10, most=40)
    u = bounds(slice(None))
    for level in [*u[:300].tolist(), np.inf]:
        below = bounds.below(level)(slice(None))
        assert not below[u >= level].any()
        if level == np.inf:
            assert below[u < level].all()


@pytest.mark.usefixtures("small_blocks")
def test_refuses_a_mean_that_is_no_number() -> None:
    rng = stream(2, "nan")
    policy, problem = BSFL(), Problem(num_clients=300, cohort_size=5)
    state = played(policy, problem, rng.integers(1, 9, 300), rng.random(300), rng)
    view = RoundView(round=9, cohort_size=5, available=np.ones(300, dtype=np.bool_))
    for position in (0, 100, 299):
        broken = state.speed.inverse.mean.copy()
        state.speed.inverse.mean[position] = np.nan
        with pytest.raises(DataError, match=f"bottleneck holds nan at position {position}"):
            chosen(policy, state, view, 0, many=0)
        state.speed.inverse.mean[:] = broken

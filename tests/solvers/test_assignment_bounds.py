"""What prices, bids and searches prove, against trying everything on tiny networks."""

from collections.abc import Iterator
from itertools import product
from math import sqrt

import numpy as np
import pytest

from fedmuster.core.streams import stream
from fedmuster.solvers.assignment import AssignmentProblem, FLGreedy
from fedmuster.solvers.assignment.exact import Program
from fedmuster.solvers.assignment.knapsacks import Core
from fedmuster.solvers.assignment.lagrangian import Bidding
from fedmuster.solvers.assignment.prices import Incumbent, charge, lowest_bound
from fedmuster.solvers.assignment.problem import Offers

EVERYBODY = 7


def tiny(seed: int, size: int = EVERYBODY) -> tuple[AssignmentProblem, Offers]:
    """Seven clients, three edges, at least one of which covers each client."""
    rng = stream(seed, "tiny")
    reach = rng.random((EVERYBODY, 3)) < 0.5
    reach[np.arange(EVERYBODY), rng.integers(3, size=EVERYBODY)] = True
    clients, edges = np.nonzero(reach)
    problem = AssignmentProblem(
        clients=clients,
        edges=edges,
        value=rng.random(len(clients)),
        cost=rng.uniform(0.5, 2.0, len(clients)),
        budget=rng.uniform(1.0, 4.0, 3),
        size=size,
    )
    return problem, Offers.of(problem, rng)


def optimum(problem: AssignmentProblem, offers: Offers) -> float:
    """In units of the offers."""

    def totals() -> Iterator[float]:
        mine = [np.flatnonzero(offers.client == k).tolist() for k in range(offers.num_clients)]
        for choice in product(*([None, *pairs] for pairs in mine)):
            chosen = np.array([pair for pair in choice if pair is not None], dtype=np.int64)
            used = np.bincount(offers.edge[chosen], offers.share[chosen], 3)
            if (used <= 1.0).all() and len(chosen) <= problem.size:
                yield float(offers.value[chosen].sum())

    return max(totals())


@pytest.mark.parametrize("size", [EVERYBODY, 2])
def test_no_prices_bound_too_low(size: int) -> None:
    for seed in range(10):
        problem, offers = tiny(seed, size)
        best = optimum(problem, offers)
        for edges in stream(seed, "prices").exponential(1.0, (20, 3)):
            assert charge(offers, edges).bound >= best - 1e-12
        lowest = lowest_bound(offers, best, 100)
        assert best - 1e-12 <= lowest.bound <= charge(offers, np.zeros(3)).bound


def test_a_place_has_the_best_price_there_is() -> None:
    """Without budgets the bound is the sum of the largest values."""
    _, offers = tiny(0, 3)
    values = np.maximum.reduceat(offers.value, offers.first)
    assert np.isclose(charge(offers, np.zeros(3)).bound, np.sort(values)[-3:].sum())


@pytest.mark.parametrize("size", [EVERYBODY, 2])
def test_bids_never_bound_too_low(size: int) -> None:
    for seed in range(10):
        problem, offers = tiny(seed, size)
        best = optimum(problem, offers)
        bidding = Bidding(offers, lowest_bound(offers, 0.5 * best, 50), 100)
        bounds = []
        for _ in range(12):
            bids = bidding.bids()
            bounds.append(bids.bound)
            assert len(np.unique(offers.client[bids.pairs])) == len(bids.pairs)
            if not bidding.step(bids, best):
                # Nobody is wanted twice, nobody asks for anything in vain.
                assert len(bids.pairs) > size or np.isclose(bids.bound, best)
                break
        assert min(bounds) >= best - 1e-12
        assert min(bounds) < bounds[0] or len(bounds) == 1 or np.isclose(bounds[0], best)


@pytest.mark.parametrize("size", [EVERYBODY, 2])
def test_a_wide_search_misses_nothing(size: int) -> None:
    for seed in range(15):
        problem, offers = tiny(seed, size)
        best = optimum(problem, offers)
        prices = lowest_bound(offers, 0.9 * best, 50)
        for beat in (0.0, 0.5 * best, best - 1e-3):
            fits = Incumbent(problem, offers).fits
            found, ceiling = Core(offers, prices, beat).search(10**6, fits)
            assert found is not None
            assert np.isclose(offers.value[found].sum(), best)
            assert ceiling == -np.inf
        nothing = Core(offers, prices, best + 1e-9).search(10**6, lambda _: True)
        assert nothing.pairs is None


def test_a_search_hands_on_what_it_is_told_does_not_fit() -> None:
    problem, offers = tiny(1)
    prices, best = lowest_bound(offers, 1.0, 50), optimum(problem, offers)
    second = Core(offers, prices, 0.0).search(
        10**6, lambda pairs: float(offers.value[pairs].sum()) < best - 1e-9
    )
    assert second.pairs is not None
    assert 0 < offers.value[second.pairs].sum() < best


@pytest.mark.parametrize("utility", ["linear", "square-root"])
@pytest.mark.parametrize("epsilon", [0.05, 0.3, 2.0])
def test_runs_of_fl_greedy_keep_the_guarantee_by_themselves(utility: str, epsilon: float) -> None:
    """Lemma 3, before what is left of the budgets is given away, too."""
    solver = FLGreedy(utility="linear" if utility == "linear" else "square-root", epsilon=epsilon)
    power = 1.0 if utility == "linear" else 0.5
    for seed in range(12):
        problem, offers = tiny(seed)
        totals = [float(offers.value[pairs].sum()) for pairs in solver.runs(offers)]
        assert max(totals) ** power >= solver.guarantee(3) * optimum(problem, offers) ** power
        assert max(totals) > totals[0]  # the best single pair


def test_fl_greedy_by_hand() -> None:
    """One edge, linear: 1 / ((1 + 0.25) (2 + 2)), and what a run takes at the lowest density."""
    problem = AssignmentProblem(
        clients=np.arange(4),
        edges=np.zeros(4, dtype=np.int64),
        value=np.array([1.0, 0.9, 0.5, 0.1]),
        cost=np.array([6.0, 5.0, 4.0, 4.0]),
        budget=np.array([10.0]),
        size=4,
    )
    solver = FLGreedy(utility="linear", epsilon=0.25)
    assert solver.guarantee(1) == 0.2
    offers = Offers.of(problem, stream(0, "x"))
    single, first, *_ = solver.runs(offers)
    assert offers.origin[single].tolist() == [0]
    # The density is 1/2: all but the last are dense enough; 1.0 first, 0.9 does not fit, 0.5 does.
    assert offers.origin[first].tolist() == [0, 2]
    # In the end (1.0 + 0.5) is the best of all densities, though 0.9 + 0.5 fits as well.
    assert sqrt(problem.total(solver.solve(problem, stream(0, "x")).pairs)) == sqrt(1.5)


def test_highs_may_not_overspend() -> None:
    """0.1 + 0.2 is more than 0.3, by less than HiGHS can see."""
    problem = AssignmentProblem(
        clients=np.arange(4),
        edges=np.zeros(4, dtype=np.int64),
        value=np.array([1.0, 0.9, 0.75, 0.85]),
        cost=np.array([0.2, 0.1, 0.05, 0.2]),
        budget=np.array([0.3]),
        size=4,
    )
    offers = Offers.of(problem, stream(0, "x"))
    program = Program(problem, offers, charge(offers, np.zeros(1)), 0.0)
    chosen, _ = program.solve(None)
    assert chosen is not None
    assert sorted(offers.origin[chosen].tolist()) == [0, 1]
    assert program.forbid_overspending(chosen)
    chosen, _ = program.solve(None)
    assert chosen is not None
    # Neither 3 and 1, which cost the same.
    assert sorted(offers.origin[chosen].tolist()) == [0, 2]
    assert not program.forbid_overspending(chosen)

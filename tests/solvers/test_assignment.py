"""The assignment solvers against trying everything."""

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from math import fsum, inf, isclose, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedmuster.core.config import from_table, named, to_table
from fedmuster.core.errors import ConfigError, MissingExtraError
from fedmuster.core.streams import stream
from fedmuster.solvers.assignment import (
    AssignmentProblem,
    AssignmentSolver,
    ExactAssignment,
    FLGreedy,
    LagrangianAssignment,
)

OPTIMAL = (LagrangianAssignment(), ExactAssignment())
ALL: tuple[AssignmentSolver, ...] = (*OPTIMAL, FLGreedy(), FLGreedy(utility="linear"))


def problem_of(
    pairs: list[tuple[int, int, float, float]], budget: list[float], size: int | None = None
) -> AssignmentProblem:
    """From (client, edge, value, cost)."""
    clients, edges, value, cost = (np.array(column) for column in zip(*pairs, strict=True))
    return AssignmentProblem(
        clients=clients.astype(np.int64),
        edges=edges.astype(np.int64),
        value=value.astype(np.float64),
        cost=cost.astype(np.float64),
        budget=np.array(budget),
        size=len(pairs) if size is None else size,
    )


def everything(problem: AssignmentProblem) -> Iterator[tuple[int, ...]]:
    """All placements, by what each client may do."""
    options: dict[int, list[int | None]] = {}
    for pair, client in enumerate(problem.clients.tolist()):
        options.setdefault(client, [None]).append(pair)
    edges, cost = problem.edges.tolist(), problem.cost.tolist()
    for choice in product(*options.values()):
        chosen = tuple(pair for pair in choice if pair is not None)
        spent: dict[int, list[float]] = {}
        for pair in chosen:
            spent.setdefault(edges[pair], []).append(cost[pair])
        if len(chosen) <= problem.size and all(
            fsum(costs) <= problem.budget[edge] for edge, costs in spent.items()
        ):
            yield chosen


def optimum(problem: AssignmentProblem) -> float:
    value = problem.value.tolist()
    return max(fsum(value[pair] for pair in chosen) for chosen in everything(problem))


def network(
    clients: int,
    edges: int,
    seed: int,
    *,
    budget: float = 3.5,
    coverage: str = "overlapping",
    equal: bool = False,
) -> AssignmentProblem:
    """As the paper draws it: costs are price × MHz, values are probabilities."""
    rng = stream(seed, "network", clients, edges)
    reach = rng.random((clients, edges)) < 0.6
    if coverage == "total":
        reach[:] = True
    elif coverage == "disjoint":
        reach = np.arange(edges) == rng.integers(edges, size=clients)[:, np.newaxis]
    cost = rng.uniform(0.5, 2.0, clients) * rng.uniform(2.0, 4.0, clients)
    who, where = np.nonzero(reach)
    return AssignmentProblem(
        clients=who,
        edges=where,
        value=np.ones(len(who)) if equal else rng.random(len(who)),
        cost=cost[who],
        budget=np.full(edges, budget),
        size=clients,
    )


amounts = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7, 1.0, 1 / 3, 1e-311]) | st.floats(0.0, 2.0)
budgets = st.sampled_from([0.0, 0.1, 0.3, 0.6, 0.8, 1.0, 1.1, inf]) | st.floats(0.0, 3.0)


@st.composite
def problems(draw: st.DrawFn) -> AssignmentProblem:
    num_edges = draw(st.integers(1, 3))
    num_clients = draw(st.integers(1, 5))
    names = draw(st.permutations(range(num_clients + 3)))[:num_clients]
    value, cost = (draw(st.sampled_from([amounts, st.just(0.1), st.just(1.0)])) for _ in range(2))
    pairs = [
        (name, edge, draw(value), draw(cost))
        for name in names
        for edge in draw(st.sets(st.integers(0, num_edges - 1), min_size=1))
    ]
    budget = draw(st.lists(budgets, min_size=num_edges, max_size=num_edges))
    return problem_of(draw(st.permutations(pairs)), budget, draw(st.integers(0, num_clients + 1)))


def check(problem: AssignmentProblem, solver: AssignmentSolver, best: float) -> float:
    pairs, bound = solver.solve(problem, stream(0, "x"))
    assert pairs.dtype == np.int64
    assert (np.diff(pairs) > 0).all()
    assert problem.fits(pairs)
    total = problem.total(pairs)
    assert total <= best * (1 + 1e-12) <= bound * (1 + 2e-12)
    return total


@given(problem=problems())
def test_brute_force_finds_nothing_better(problem: AssignmentProblem) -> None:
    best = optimum(problem)
    for solver in OPTIMAL:
        assert isclose(check(problem, solver, best), best, rel_tol=1e-9, abs_tol=1e-12)
        assert isclose(solver.solve(problem, stream(1, "x")).bound, best, rel_tol=1e-9)


@given(problem=problems())
def test_fl_greedy_keeps_its_guarantee(problem: AssignmentProblem) -> None:
    """Lemma 3, for Eq. 8 and Eq. 19."""
    best = optimum(problem)
    linear, root = FLGreedy(utility="linear"), FLGreedy(epsilon=0.1)
    assert check(problem, linear, best) >= linear.guarantee(problem.num_edges) * best
    total = check(problem, root, best)
    assert sqrt(total) >= root.guarantee(problem.num_edges) * sqrt(best)


@given(problem=problems())
def test_p3_and_p2_have_the_same_maximisers(problem: AssignmentProblem) -> None:
    """Eq. 19 is the root of Eq. 8."""
    value, edges = problem.value.tolist(), problem.num_edges
    p2 = {s: fsum(value[pair] for pair in s) / edges for s in everything(problem)}
    p3 = {s: sqrt(utility) for s, utility in p2.items()}
    best = max(p2.values())
    assert {s for s in p2 if p2[s] == best} <= {s for s in p3 if p3[s] == max(p3.values())}
    assert all(isclose(p2[s], best, rel_tol=1e-15) for s in p3 if p3[s] == max(p3.values()))


@pytest.mark.parametrize("coverage", ["overlapping", "total", "disjoint"])
@pytest.mark.parametrize("budget", [2.0, 3.5, 8.0])
def test_tiny_networks_like_the_papers(coverage: str, budget: float) -> None:
    for seed in range(4):
        for equal in (False, True):
            problem = network(6, 3, seed, budget=budget, coverage=coverage, equal=equal)
            if len(problem.clients):
                best = optimum(problem)
                for solver in OPTIMAL:
                    assert isclose(check(problem, solver, best), best, rel_tol=1e-9)
                assert check(problem, FLGreedy(), best) > 0 or best == 0


@pytest.mark.parametrize("solver", ALL)
def test_budgets_are_met_exactly_or_not_at_all(solver: AssignmentSolver) -> None:
    ten = [(client, 0, 1.0, 0.1) for client in range(10)]
    assert len(solver.solve(problem_of(ten, [1.0]), stream(0, "x")).pairs) == 10
    just_below = float(np.nextafter(1.0, 0.0))
    assert len(solver.solve(problem_of(ten, [just_below]), stream(0, "x")).pairs) == 9
    # 0.1 + 0.2 is more than 0.3.
    three = [(0, 0, 1.0, 0.1), (1, 0, 1.0, 0.2)]
    assert len(solver.solve(problem_of(three, [0.3]), stream(0, "x")).pairs) == 1


@pytest.mark.parametrize("solver", ALL)
def test_nobody(solver: AssignmentSolver) -> None:
    too_dear = problem_of([(0, 0, 1.0, 2.0), (1, 1, 1.0, 2.0)], [1.0, 0.0])
    nobody_wanted = problem_of([(0, 0, 1.0, 0.0)], [1.0], size=0)
    none, nothing = np.empty(0, dtype=np.int64), np.empty(0)
    uncovered = AssignmentProblem(
        clients=none, edges=none, value=nothing, cost=nothing, budget=np.ones(2), size=3
    )
    for problem in (too_dear, nobody_wanted, uncovered):
        pairs, bound = solver.solve(problem, stream(0, "x"))
        assert len(pairs) == 0
        assert bound == 0.0


@pytest.mark.parametrize("solver", ALL)
def test_what_is_worth_nothing_fills_up(solver: AssignmentSolver) -> None:
    pairs = [(0, 0, 0.0, 1.0), (1, 0, 0.5, 1.0), (2, 1, 0.0, 0.0), (3, 1, 0.0, 5.0)]
    placement = solver.solve(problem_of(pairs, [2.0, 0.0]), stream(0, "x"))
    assert placement.pairs.tolist() == [0, 1, 2]
    assert isclose(placement.bound, 0.5) or isinstance(solver, FLGreedy)


@pytest.mark.parametrize("solver", OPTIMAL)
def test_flat_federated_learning_is_the_top_m(solver: AssignmentSolver) -> None:
    value = stream(3, "values").random(1_000)
    problem = problem_of([(k, 0, v, 1.0) for k, v in enumerate(value)], [inf], size=17)
    placement = solver.solve(problem, stream(0, "x"))
    assert sorted(value[placement.pairs]) == sorted(value)[-17:]
    assert placement.bound == problem.total(placement.pairs)


@pytest.mark.parametrize("solver", OPTIMAL)
def test_without_budgets_everybody_goes_where_it_is_worth_most(solver: AssignmentSolver) -> None:
    pairs = [(0, 0, 0.2, 9.0), (0, 1, 0.7, 9.0), (1, 0, 0.9, 9.0), (2, 1, 0.1, 9.0)]
    assert solver.solve(problem_of(pairs, [inf, 50.0], size=2), stream(0, "x")).pairs.tolist() == [
        1,
        2,
    ]


@pytest.mark.parametrize(("clients", "edges"), [(50, 3), (100, 5), (300, 10)])
@pytest.mark.parametrize("budget", [3.5, 10.0])
def test_never_worse_than_fl_greedy(clients: int, edges: int, budget: float) -> None:
    for seed in range(3):
        problem = network(clients, edges, seed, budget=budget)
        lagrangian = LagrangianAssignment().solve(problem, stream(0, "x"))
        assert problem.fits(lagrangian.pairs)
        assert lagrangian.bound >= problem.total(lagrangian.pairs)
        for utility in ("linear", "square-root"):
            greedy = FLGreedy(utility=utility).solve(problem, stream(0, "x"))
            assert problem.fits(greedy.pairs)
            assert problem.total(greedy.pairs) <= problem.total(lagrangian.pairs) * (1 + 1e-12)
            assert lagrangian.bound <= greedy.bound


@pytest.mark.parametrize("budget", [3.5, 10.0])
@pytest.mark.parametrize("coverage", ["overlapping", "total", "disjoint"])
def test_the_papers_size_is_solved_and_proved(budget: float, coverage: str) -> None:
    for seed in range(4):
        problem = network(50, 3, seed, budget=budget, coverage=coverage, equal=seed == 3)
        lagrangian = LagrangianAssignment().solve(problem, stream(0, "x"))
        total = problem.total(lagrangian.pairs)
        assert isclose(lagrangian.bound, total, rel_tol=1e-9)
        exact = ExactAssignment().solve(problem, stream(0, "x"))
        assert isclose(problem.total(exact.pairs), total, rel_tol=1e-9)


def test_a_limit_on_size_is_solved_and_proved() -> None:
    for seed in range(4):
        problem = network(40, 3, seed, budget=10.0)
        few = AssignmentProblem(
            clients=problem.clients,
            edges=problem.edges,
            value=problem.value,
            cost=problem.cost,
            budget=problem.budget,
            size=6,
        )
        totals = []
        for solver in OPTIMAL:
            placement = solver.solve(few, stream(0, "x"))
            assert few.fits(placement.pairs)
            totals.append(few.total(placement.pairs))
            assert isclose(placement.bound, totals[-1], rel_tol=1e-9)
        assert isclose(*totals, rel_tol=1e-9)


def test_a_large_network_has_a_small_certified_gap() -> None:
    problem = network(3_000, 8, 0, budget=150.0)
    pairs, bound = LagrangianAssignment().solve(problem, stream(0, "x"))
    assert problem.fits(pairs)
    assert problem.total(pairs) <= bound <= 1.005 * problem.total(pairs)


@pytest.mark.parametrize(
    "lazy",
    [
        LagrangianAssignment(steps=3, nodes=0, rounds=1, gap=0.5),
        LagrangianAssignment(nodes=100, rounds=0),
        LagrangianAssignment(nodes=0, rounds=10, gap=0.0),
        ExactAssignment(nodes=1),
    ],
)
def test_bounds_hold_where_searches_are_cut_short(lazy: AssignmentSolver) -> None:
    for seed in range(10):
        problem = network(40, 3, seed, budget=8.0, equal=seed >= 7)
        best = LagrangianAssignment().solve(problem, stream(0, "x"))
        placement = lazy.solve(problem, stream(0, "x"))
        assert problem.fits(placement.pairs)
        assert problem.total(placement.pairs) <= best.bound
        assert problem.total(best.pairs) <= placement.bound * (1 + 1e-12)


@pytest.mark.parametrize("solver", ALL)
def test_repeats_for_the_same_generator(solver: AssignmentSolver) -> None:
    problem = network(30, 3, 7, equal=True)
    first, again = (solver.solve(problem, stream(5, "x")) for _ in range(2))
    assert np.array_equal(first.pairs, again.pairs)
    assert first.bound == again.bound


@pytest.mark.parametrize("solver", OPTIMAL)
def test_the_order_of_pairs_does_not_matter(solver: AssignmentSolver) -> None:
    problem = network(30, 3, 8)
    order = stream(0, "order").permutation(len(problem.clients))
    shuffled = AssignmentProblem(
        clients=problem.clients[order],
        edges=problem.edges[order],
        value=problem.value[order],
        cost=problem.cost[order],
        budget=problem.budget,
        size=problem.size,
    )
    totals = [p.total(solver.solve(p, stream(0, "x")).pairs) for p in (problem, shuffled)]
    assert isclose(*totals, rel_tol=1e-9)


@pytest.mark.parametrize("solver", [LagrangianAssignment(), FLGreedy()])
def test_ties_favour_nobody(solver: AssignmentSolver) -> None:
    """Ten equal clients, of whom edge 0 can pay three and edge 1 one: 10 * C(9, 3) placements."""
    pairs = [(client, edge, 0.5, 1.0) for client in range(10) for edge in (0, 1)]
    problem = problem_of(pairs, [3.0, 1.0])
    rng, seen = stream(11, "ties"), Counter[int]()
    for _ in range(100):
        chosen = solver.solve(problem, rng).pairs
        assert len(chosen) == 4
        seen.update(chosen.tolist())
    for edge, places in ((0, 3), (1, 1)):
        counts = [seen[2 * client + edge] for client in range(10)]
        assert sum(counts) == 100 * places
        assert chisquare(counts).pvalue > 1e-3


def test_ties_between_edges_favour_none() -> None:
    """One client, whom either edge could take; another, to make a budget bind."""
    pairs = [(0, 0, 0.5, 1.0), (0, 1, 0.5, 1.0), (1, 0, 0.1, 2.0), (1, 1, 0.1, 2.0)]
    problem, rng = problem_of(pairs, [2.0, 2.0], size=1), stream(12, "ties")
    chosen = [int(LagrangianAssignment().solve(problem, rng).pairs[0]) for _ in range(300)]
    assert set(chosen) == {0, 1}
    assert chisquare([chosen.count(0), chosen.count(1)]).pvalue > 1e-3


@pytest.mark.parametrize("solver", [*ALL, ExactAssignment(nodes=7), LagrangianAssignment(gap=0.1)])
def test_configs_round_trip(solver: AssignmentSolver) -> None:
    kinds: dict[str, type[Any]] = {kind.name: kind for kind in (type(each) for each in ALL)}
    assert named(kinds, to_table(solver), key=("solver",), what="solver") == solver


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        (LagrangianAssignment, {"steps": 0}),
        (LagrangianAssignment, {"gap": 1.0}),
        (LagrangianAssignment, {"rounds": -1}),
        (LagrangianAssignment, {"nodes": -1}),
        (ExactAssignment, {"nodes": 0}),
        (FLGreedy, {"epsilon": 0.0}),
        (FLGreedy, {"utility": "cubic"}),
    ],
)
def test_refused_configs(kind: type[Any], table: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(table))):
        from_table(kind, table)


def test_exact_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    problem = network(20, 3, 0)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedmuster\[scipy\]'"):
        ExactAssignment().solve(problem, stream(0, "x"))


@pytest.mark.parametrize("budget", [3.5, 10.5, 0.3])
def test_what_nobody_can_use_of_a_budget_is_not_paid_for(budget: float) -> None:
    """Clients who all cost the same: the optimum is proved, whatever is left over."""
    rng = np.random.default_rng(5)
    cost = 0.1 if budget < 1 else 1.0
    problem = AssignmentProblem(
        clients=np.repeat(np.arange(50), 3),
        edges=np.tile(np.arange(3), 50),
        value=rng.random(150),
        cost=np.full(150, cost),
        budget=np.full(3, budget),
        size=50,
    )
    found = LagrangianAssignment().solve(problem, rng)
    assert problem.fits(found.pairs)
    assert len(found.pairs) == 3 * int(np.floor(budget / cost))  # 0.3 pays for two at 0.1
    assert problem.total(found.pairs) == pytest.approx(found.bound, abs=1e-9)

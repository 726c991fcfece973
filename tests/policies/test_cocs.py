"""COCS against an independent Algorithm 1 in plain Python, by hand, and in use."""

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest

from fedmuster.core.config import from_table, to_table
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import BoolArray, Feedback, FloatArray, Problem, RoundView, Selection
from fedmuster.core.selector import Selector
from fedmuster.core.streams import POLICY, stream
from fedmuster.policies.cocs.hypercubes import EqualCubes, RatesState, ZoomingCubes
from fedmuster.policies.cocs.policy import COCS
from fedmuster.solvers.assignment import ExactAssignment, FLGreedy

Pair = tuple[int, int]


def problem_of(clients: int, edges: int, features: int = 2) -> Problem:
    return Problem(num_clients=clients, cohort_size=clients, num_edges=edges, num_features=features)


def view_of(
    round_: int, network: EdgeView, context: FloatArray, available: BoolArray | None = None
) -> RoundView:
    mask = network.covered if available is None else available & network.covered
    return RoundView(
        round=round_,
        cohort_size=network.num_clients,
        available=mask,
        features=context,
        edges=network,
    )


def pairs_of(selection: Selection) -> list[Pair]:
    edges = np.zeros_like(selection.clients) if selection.edges is None else selection.edges
    return list(zip(selection.clients.tolist(), edges.tolist(), strict=True))


def answers(selection: Selection, successes: BoolArray) -> Feedback:
    return Feedback(
        round=selection.round,
        clients=selection.clients,
        latency_seconds=np.ones(len(selection.clients)),
        completed=successes,
    )


def placements(view: RoundView, pairs: list[Pair]) -> Iterator[list[Pair]]:
    """Every placement of ``pairs`` that obeys (10b), (10d) and the size."""
    network = view.network
    choices: dict[int, list[Pair | None]] = {}
    for client, edge in pairs:
        choices.setdefault(client, [None]).append((client, edge))
    for combination in product(*choices.values()):
        chosen = [pair for pair in combination if pair is not None]
        spent = [
            math.fsum(network.cost[client, edge] for client, edge in chosen if edge == m)
            for m in range(network.num_edges)
        ]
        if len(chosen) <= view.cohort_size and (np.array(spent) <= network.budget).all():
            yield chosen


class PlainCOCS:
    """Algorithm 1 with dictionaries and loops, for cubes of each pair."""

    def __init__(self, cubes_per_axis: int, exploration: float = 1.0) -> None:
        self.cubes_per_axis = cubes_per_axis
        self.exploration = exploration
        self.history: dict[tuple[int, int, tuple[int, ...]], list[bool]] = {}

    def record(self, view: RoundView, pair: Pair) -> list[bool]:
        assert view.features is not None
        cube = tuple(
            min(int(number * self.cubes_per_axis), self.cubes_per_axis - 1)
            for number in view.features[pair].tolist()
        )
        return self.history.setdefault((*pair, cube), [])

    def probability(self, view: RoundView, pair: Pair) -> float:
        record = self.record(view, pair)
        return sum(record) / len(record) if record else 0.0  # Eq. 12

    def phase(self, view: RoundView) -> tuple[list[Pair], list[Pair]]:
        """Under-explored and explored pairs."""
        needed = self.exploration * view.round**0.4 * math.log(view.round)
        under: list[Pair] = []
        explored: list[Pair] = []
        network = view.network
        for client, edge in product(range(network.num_clients), range(network.num_edges)):
            if view.available[client] and network.coverage[client, edge]:
                few = len(self.record(view, (client, edge))) <= needed  # Eq. 13
                (under if few else explored).append((client, edge))
        return under, explored

    def check(self, view: RoundView, selection: Selection) -> str:
        """Assert that it is what (14), (15) and (17), or (18) choose; which phase that was."""
        chosen = pairs_of(selection)
        under, explored = self.phase(view)
        assert chosen in list(placements(view, sorted(chosen)))  # feasible
        assert set(chosen) <= {*under, *explored}
        first = [pair for pair in chosen if pair in under]
        assert len(first) == max(map(len, placements(view, under)))  # Eq. 14, 15

        def worth(pairs: list[Pair]) -> float:
            return math.fsum(self.probability(view, pair) for pair in pairs if pair in explored)

        used = {client for client, _ in first}
        rest = [pair for pair in explored if pair[0] not in used]
        completions = (
            placement
            for placement in placements(view, sorted([*first, *rest]))
            if set(first) <= set(placement)
        )
        assert worth(chosen) == pytest.approx(max(map(worth, completions)), abs=1e-12)  # Eq. 17, 18
        return "exploit" if not under else "explore" if not explored else "both"

    def learn(self, view: RoundView, selection: Selection, successes: BoolArray) -> None:
        for pair, success in zip(pairs_of(selection), successes.tolist(), strict=True):
            self.record(view, pair).append(success)


def random_network(rng: np.random.Generator, clients: int, edges: int) -> EdgeView:
    return EdgeView(
        coverage=rng.random((clients, edges)) < 0.6,
        cost=rng.uniform(0.5, 2.0, size=clients),
        budget=rng.uniform(0.0, 4.0, size=edges),
    )


@pytest.mark.parametrize("seed", range(4))
def test_algorithm_1_in_plain_python_agrees(seed: int) -> None:
    """In the statistics of every pair, in the number explored and the value exploited."""
    clients, edges = 5, 2
    policy = COCS(cubes=EqualCubes(cubes_per_axis=2), exploration=0.1)
    plain = PlainCOCS(cubes_per_axis=2, exploration=0.1)
    state = policy.init(problem_of(clients, edges))
    rng = np.random.default_rng(seed)
    phases = set()
    for t in range(1, 101):
        context = rng.beta(1, 6, size=(clients, edges, 2))  # mostly in one cube, so that it is full
        view = view_of(t, random_network(rng, clients, edges), context, rng.random(clients) < 0.9)
        scores = policy.scores(state, view)
        for edge in range(edges):
            for client in range(clients):
                known = float(scores[f"probability[{edge}]"][client])
                count = float(scores[f"count[{edge}]"][client])
                if not view.network.coverage[client, edge]:
                    assert math.isnan(known)
                    assert math.isnan(count)
                    continue
                assert count == len(plain.record(view, (client, edge)))
                assert known == plain.probability(view, (client, edge)) or count == 0
        selection = policy.select(state, view, stream(seed, POLICY, t))
        phases.add(plain.check(view, selection))
        successes = rng.random(len(selection.clients)) < 0.2 + 0.1 * selection.clients
        plain.learn(view, selection, successes)
        policy.observe(state, selection, answers(selection, successes))
    assert phases == {"explore", "both", "exploit"}


# Four clients and two edges with a budget of 3 each; nobody's context differs from anybody's.
COVERAGE = np.array([[True, False], [True, True], [True, True], [False, True]])
COST = np.array([1.0, 2.0, 1.0, 3.0])
NETWORK = EdgeView(coverage=COVERAGE, cost=COST, budget=np.array([3.0, 3.0]))
CONTEXT = np.full((4, 2, 2), 0.5)


def taught(policy: COCS, records: Mapping[Pair, tuple[int, int]]) -> RatesState:
    """The state after each pair was chosen so often, with so many successes."""
    state = policy.init(problem_of(4, 2))
    for (client, edge), (count, successes) in records.items():
        for number in range(count):
            selection = Selection.at_edges(
                view_of(1, NETWORK, CONTEXT), np.array([client]), np.array([edge])
            )
            policy.observe(state, selection, answers(selection, np.array([number < successes])))
    return state


def chosen_in_round_10(
    records: Mapping[Pair, tuple[int, int]], network: EdgeView = NETWORK
) -> set[tuple[Pair, ...]]:
    """What is chosen when 10^0.4 ln 10 = 5.8: up to five observations are too few."""
    policy = COCS()
    state = taught(policy, records)
    view = view_of(10, network, CONTEXT)
    return {
        tuple(pairs_of(policy.select(state, view, stream(seed, POLICY, 10)))) for seed in range(12)
    }


WELL_KNOWN = {(0, 0): (8, 4), (1, 0): (8, 6), (1, 1): (8, 2), (2, 0): (8, 7), (2, 1): (8, 5)}


def test_everybody_under_explored() -> None:
    """(14): three fit, and no four: 0 and one of 1 and 2 fill edge 0, or 1 and 2 do; client 3 would
    take all of edge 1. Which of the threes is taken is the solver's choice.
    """
    assert chosen_in_round_10({}) <= {
        ((0, 0), (1, 0), (2, 1)),
        ((0, 0), (1, 1), (2, 0)),
        ((0, 0), (1, 1), (2, 1)),
        ((0, 0), (1, 0), (3, 1)),
        ((0, 0), (2, 0), (3, 1)),
        ((1, 0), (2, 0), (3, 1)),
    }


def test_under_explored_come_first_and_leave_the_rest() -> None:
    """(15): client 3 is unseen and takes edge 1; (17): at edge 0 clients 1 and 2 are worth most."""
    found = chosen_in_round_10(WELL_KNOWN)
    assert found == {((1, 0), (2, 0), (3, 1))}  # 6/8 + 7/8 instead of 4/8 + 7/8 with client 0


def test_nobody_under_explored() -> None:
    """(18): 1 at edge 0 and 2 at edge 1 are worth 4/8 + 6/8 + 5/8 with client 0: the best."""
    assert chosen_in_round_10({**WELL_KNOWN, (3, 1): (8, 1)}) == {((0, 0), (1, 0), (2, 1))}
    # With client 3 sure to answer: 6/8 + 7/8 at edge 0 and 8/8 at edge 1.
    assert chosen_in_round_10({**WELL_KNOWN, (3, 1): (8, 8)}) == {((1, 0), (2, 0), (3, 1))}


def test_five_observations_are_too_few_and_six_are_not() -> None:
    for count, expected in ((5, ((1, 0), (2, 0), (3, 1))), (6, ((0, 0), (1, 0), (2, 1)))):
        assert chosen_in_round_10({**WELL_KNOWN, (3, 1): (count, 1)}) == {expected}


def test_who_never_succeeded_is_not_paid_for() -> None:
    hopeless = dict.fromkeys(WELL_KNOWN, (8, 0))
    assert chosen_in_round_10({**hopeless, (3, 1): (8, 0)}) == {()}
    assert chosen_in_round_10({**hopeless, (2, 1): (8, 1), (3, 1): (8, 0)}) == {((2, 1),)}


def test_rounds_in_which_nothing_can_be_done() -> None:
    """Nobody affordable: unseen as client 3 is, it does not keep the others from being used."""
    poor = EdgeView(coverage=COVERAGE, cost=COST, budget=np.array([1.0, 0.9]))
    assert chosen_in_round_10(WELL_KNOWN, poor) == {((2, 0),)}
    broke = EdgeView(coverage=COVERAGE, cost=COST, budget=np.zeros(2))
    assert chosen_in_round_10({}, broke) == {()}
    alone = EdgeView(coverage=np.zeros_like(COVERAGE), cost=COST, budget=np.full(2, 9.0))
    assert chosen_in_round_10({}, alone) == {()}


def test_late_and_silent_clients_count_as_failures() -> None:
    """Client 1 is late, of 2 nothing is heard, 0 succeeds: one observation each."""
    policy = COCS()
    state = policy.init(problem_of(4, 2))
    view = view_of(1, NETWORK, CONTEXT)
    selection = Selection.at_edges(view, np.array([2, 0, 1]), np.array([1, 0, 0]))
    feedback = Feedback(
        round=1,
        clients=np.array([1, 0]),
        latency_seconds=np.array([9.0, 1.0]),
        signals={"in_time": np.array([0.0, 1.0])},
    )
    policy.observe(state, selection, feedback)
    scores = policy.scores(state, view)
    names = ("probability", "needed", "count", "counter", "cost")
    assert list(scores) == [f"{name}[{edge}]" for name in names for edge in range(2)]
    nan = math.nan
    np.testing.assert_equal(scores["probability[0]"], [1.0, 0.0, nan, nan])
    np.testing.assert_equal(scores["count[0]"], [1.0, 1.0, 0.0, nan])
    np.testing.assert_equal(scores["probability[1]"], [nan, nan, 0.0, nan])
    np.testing.assert_equal(scores["count[1]"], [nan, 0.0, 1.0, 0.0])


def test_flat_federations() -> None:
    """One edge, no budget, at most m clients: first the under-explored, then those who answer."""
    selector = Selector(COCS(), Problem(num_clients=6, cohort_size=2), rest_after=0)
    good = np.array([True, False, True, False, False, False])
    counts = np.zeros(6)
    exploited = 0
    for t in range(1, 121):
        selection = selector.select()
        scores = selector.scores()
        assert set(scores) == {"probability", "count", "counter", "needed"}
        np.testing.assert_equal(scores["count"], counts)
        np.testing.assert_equal(scores["probability"], np.where(counts > 0, good, np.nan))
        assert selection.edges is None
        assert len(selection.clients) == 2
        under = np.flatnonzero(counts <= t**0.4 * math.log(t))
        assert len(np.intersect1d(selection.clients, under)) == min(2, len(under))
        if len(under) == 0:
            exploited += 1
            assert selection.clients.tolist() == [0, 2]
        selector.observe(answers(selection, good[selection.clients]))
        counts[selection.clients] += 1
    assert exploited > 20


def test_joining_and_restoring_at_edges() -> None:
    """History is kept, newcomers are unseen, and a restored selector goes on bit by bit."""
    policy = COCS(cubes=ZoomingCubes(depth=2), exploration=0.2)
    selector = Selector(policy, problem_of(4, 2), seed=3)

    def play(target: Selector[RatesState], seed: int) -> Selection:
        luck = np.random.default_rng(seed)
        clients = target.problem.num_clients
        network = random_network(luck, clients, 2)
        selection = target.select(features=luck.random((clients, 2, 2)), edges=network)
        successes = luck.random(len(selection.clients)) < 0.6
        target.observe(answers(selection, successes))
        return selection

    for seed in range(30):
        play(selector, seed)
    before = selector.state.count.copy()
    assert before.any()
    assert selector.join(2).tolist() == [4, 5]
    assert (selector.state.count[:4] == before).all()
    assert not selector.state.count[4:].any()
    twin = Selector.from_bytes(selector.to_bytes(), policy, source="test")
    for seed in range(30, 60):
        one, other = play(selector, seed), play(twin, seed)
        assert pairs_of(one) == pairs_of(other)
    assert (selector.state.successes == twin.state.successes).all()
    assert selector.state.count[4:].any()


def test_both_utilities_can_be_written_down() -> None:
    for policy in (
        COCS(),
        COCS(solver=ExactAssignment(), exponent=0.8),
        COCS(solver=FLGreedy(utility="square-root"), pool="network"),
        COCS(cubes=ZoomingCubes(depth=3), pool="edges", exploration=0.5),
    ):
        table = to_table(policy)
        assert table.pop("name") == "cocs"
        assert from_table(COCS, table) == policy


@pytest.mark.parametrize(
    "wrong",
    [
        {"holder_alpha": 0.0},
        {"holder_alpha": math.nan},
        {"exponent": 1.0},
        {"exploration": -1.0},
        {"exploration": math.inf},
        {"pool": "everybody"},
        {"cubes": {"name": "hexagons"}},
    ],
)
def test_hyper_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        from_table(COCS, wrong)


def successes_a_round(policy: COCS, seed: int) -> float:
    """Expected, of 5 out of 20 clients, who succeed if both numbers exceed what chance decides."""
    clients, rounds = 20, 60
    bar = np.random.default_rng(seed).uniform(0.3, 0.7, size=2)
    state = policy.init(Problem(num_clients=clients, cohort_size=5, num_features=2))
    total = 0.0
    for t in range(1, rounds + 1):
        rng = np.random.default_rng((seed, t))
        context = rng.random((clients, 2))
        law = np.where((context > bar).all(axis=1), 0.95, 0.05)
        everyone = np.ones(clients, dtype=np.bool_)
        view = RoundView(round=t, cohort_size=5, available=everyone, features=context)
        selection = policy.select(state, view, stream(seed, POLICY, t))
        total += law[selection.clients].sum()
        policy.observe(
            state, selection, answers(selection, (rng.random(clients) < law)[selection.clients])
        )
    return total / rounds


def test_zooming_pays_where_success_has_a_steep_edge() -> None:
    """Paired one-sided t-test over 6 federations, p < 0.001 (5 degrees of freedom: 5.893).

    25 cubes want 21 observations each by round 60, more than the 300 that there are; the
    adaptive partition has long been exploiting then, with its large cubes.
    """
    zooming = COCS(pool="network", cubes=ZoomingCubes())
    gains = np.array(
        [
            successes_a_round(zooming, seed) - successes_a_round(COCS(pool="network"), seed)
            for seed in range(6)
        ]
    )
    assert gains.mean() > 5.893 * gains.std(ddof=1) / math.sqrt(len(gains))

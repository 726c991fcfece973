"""The Selector where there are edge servers: what it refuses, checks, saves and lets join."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import Generator

from fedmuster import BSFL, Random
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import DataError, PolicyError
from fedmuster.core.policy import CohortRule, PolicyTraits
from fedmuster.core.records import (
    Feedback,
    FloatArray,
    IntArray,
    Problem,
    RoundView,
    Selection,
    Truth,
)
from fedmuster.core.selector import Selector
from fedmuster.core.state import to_arrays

K, M, D = 6, 2, 3
REACH = np.array([[k != 5 and k != 0, k != 5 and k != 1] for k in range(K)])
"""Client 0 reaches edge 1 only, client 1 edge 0 only, client 5 nobody."""


def problem(**changed: Any) -> Problem:
    usual: dict[str, Any] = {"num_clients": K, "cohort_size": K, "num_edges": M}
    return Problem(**(usual | changed))


def network(**changed: Any) -> EdgeView:
    usual: dict[str, Any] = {"coverage": REACH, "cost": np.ones(K), "budget": np.full(M, 2.0)}
    return EdgeView(**(usual | changed))


@dataclass
class Tally:
    """How often each client was at each edge, and the sum of what was seen of it there."""

    count: IntArray
    context: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Cheapest(PolicyTraits):
    """Whoever was least often at an edge and can be paid there, edge by edge; ties at random."""

    name: ClassVar[str] = "cheapest"
    cohort_rule: ClassVar[CohortRule] = "at most"
    assigns_edges: ClassVar[bool] = True

    def init(self, problem: Problem) -> Tally:
        shape = (problem.num_clients, problem.num_edges)
        return Tally(count=np.zeros(shape, np.int64), context=np.zeros((*shape, D)))

    def select(self, state: Tally, view: RoundView, rng: Generator) -> Selection:
        free = view.available.copy()
        clients: list[int] = []
        edges: list[int] = []
        for edge, budget in enumerate(view.network.budget):
            order = np.lexsort((rng.random(len(free)), state.count[:, edge]))
            able = [k for k in order if free[k] and view.network.coverage[k, edge]]
            able = able[: int(min(budget, len(able)))]
            free[able] = False
            clients += able
            edges += [edge] * len(able)
        return Selection.at_edges(view, np.array(clients, np.int64), np.array(edges, np.int64))

    def observe(self, state: Tally, selection: Selection, feedback: Feedback) -> None:
        assert selection.edges is not None
        state.count[selection.clients, selection.edges] += 1
        if selection.features is not None:
            state.context[selection.clients, selection.edges] += selection.features


def answers(selection: Selection) -> Feedback:
    seconds = 0.1 + selection.clients / 10
    return Feedback(round=selection.round, clients=selection.clients, latency_seconds=seconds)


class TestWhatItRefuses:
    def test_a_flat_policy_and_how_to_lift_it(self) -> None:
        selector = Selector(BSFL(), problem())
        with pytest.raises(PolicyError) as said:
            selector.select(edges=network())
        assert "Lifted(policy=BSFL(" in str(said.value)
        assert '{ name = "lifted", policy = { name = "bsfl" } }' in str(said.value)

    def test_a_flat_policy_even_with_one_edge(self) -> None:
        one = network(coverage=REACH[:, :1], budget=np.array([2.0]))
        with pytest.raises(PolicyError, match="lift it"):
            Selector(BSFL(), problem(num_edges=1)).select(edges=one)

    def test_edges_that_do_not_come(self) -> None:
        selector = Selector(Random(), problem())
        with pytest.raises(DataError, match=r"num_edges.*2"):
            selector.select()
        assert selector.pending is None
        assert selector.round == 1

    @pytest.mark.parametrize(
        "edges",
        [
            network(coverage=REACH[:, :1], budget=np.ones(1)),
            network(coverage=np.ones((K, 3), bool), budget=np.ones(3)),
            network(coverage=REACH[:5], cost=np.ones(5)),
            EdgeView.flat(K),
        ],
        ids=["one edge", "three edges", "five clients", "flat"],
    )
    def test_edges_that_are_not_those_of_the_problem(self, edges: EdgeView) -> None:
        with pytest.raises(DataError, match=r"edges, expected 6 and 2 as the Problem says"):
            Selector(Random(), problem()).select(edges=edges)

    def test_one_edge_is_no_flat_problem(self) -> None:
        with pytest.raises(DataError, match=r"num_edges.*1"):
            Selector(Random(), problem(num_edges=1)).select()

    def test_edges_of_a_flat_problem(self) -> None:
        with pytest.raises(DataError, match="expected 6 and 0"):
            Selector(Random(), problem(num_edges=0)).select(edges=network())

    @pytest.mark.parametrize("count", [-1, 1.5, True])
    def test_problems_with_odd_numbers_of_edges(self, count: Any) -> None:
        with pytest.raises(DataError, match="num_edges"):
            problem(num_edges=count)

    @pytest.mark.parametrize(
        ("features", "message"),
        [
            (None, r"select needs features of shape \(6, 2, 3\)"),
            (np.ones((K, D)), r"shape \(6, 3\), expected \(6, 2, 3\) as .* and num_edges says"),
            (np.ones((K, 1, D)), r"expected \(6, 2, 3\)"),
            (np.ones((K, M)), r"expected \(6, 2, 3\)"),
            (np.ones((M, K, D)), r"expected \(6, 2, 3\)"),
            (np.full((K, M, D), np.nan), "NaN or infinite"),
            (np.full((K, M, D), np.inf), "NaN or infinite"),
            ([[["a"] * D] * M] * K, "real numbers"),
        ],
    )
    def test_features_that_are_not_of_pairs(self, features: Any, message: str) -> None:
        selector = Selector(Random(), problem(num_features=D))
        with pytest.raises(DataError, match=message):
            selector.select(edges=network(), features=features)


class TestWhatAPolicySees:
    def seen(self, **told: Any) -> RoundView:
        views: list[RoundView] = []

        @dataclass(frozen=True, kw_only=True, slots=True)
        class Spy(Cheapest):
            oracle: ClassVar[bool] = told.pop("oracle", False)

            def select(self, state: Any, view: RoundView, rng: Generator) -> Selection:
                views.append(view)
                return Cheapest.select(self, state, view, rng)

        Selector(Spy(), problem(num_features=D)).select(**told)
        return views[0]

    def test_whom_nobody_covers_is_not_available(self) -> None:
        mine = np.ones(K, bool)
        mine[2] = False
        view = self.seen(edges=network(), features=np.ones((K, M, D)), available=mine)
        assert view.available.tolist() == [True, True, False, True, True, False]
        assert view.num_available == 4
        assert mine.tolist() == [True, True, False, True, True, True]  # the caller's own stays
        everyone = self.seen(edges=network(), features=np.ones((K, M, D)))
        assert everyone.available.tolist() == REACH.any(axis=1).tolist()

    def test_the_edges_as_they_were_told(self) -> None:
        features, edges = np.random.default_rng(1).random((K, M, D)), network()
        view = self.seen(edges=edges, features=features)
        assert view.edges is edges
        np.testing.assert_array_equal(view.features, features)

    @pytest.mark.parametrize("oracle", [False, True])
    def test_the_odds_reach_oracles_only(self, oracle: bool) -> None:
        odds = np.full((K, M), 0.5)
        truth = Truth(
            mean_latency_seconds=np.ones(K),
            mean_speed=np.ones(K),
            success=odds,
            succeeds=odds > 0.3,
        )
        view = self.seen(edges=network(), features=np.ones((K, M, D)), truth=truth, oracle=oracle)
        assert view.truth is (truth if oracle else None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fixed(Cheapest):
    """Places whomever it was made with."""

    choice: Callable[[RoundView], Selection]

    def select(self, state: Any, view: RoundView, rng: Generator) -> Selection:
        return self.choice(view)


@pytest.mark.parametrize(
    ("clients", "edges", "message"),
    [
        ([0, 1, 2], None, "its edges are None"),
        ([0, 1, 2], [1, 0], "for each of its clients"),
        ([0, 1, 2], [1, 0, 2], "there are 2, counted from 0"),
        ([0, 1, 2], [0, 0, 0], "client 0 at edge 0, which does not cover it"),
        ([1, 2, 3], [0, 0, 0], r"cost 3.0 at edge 0, whose budget is 2.0"),
        ([2, 2], [0, 1], "none twice"),
        ([4, 5], [0, 0], r"\[5\], who are not available"),
    ],
)
def test_a_policy_that_places_wrongly_is_stopped(
    clients: list[int], edges: list[int] | None, message: str
) -> None:
    at = None if edges is None else np.array(edges)
    policy = Fixed(choice=lambda v: Selection(round=v.round, clients=np.array(clients), edges=at))
    selector = Selector(policy, problem())
    with pytest.raises(PolicyError, match=f"(?s)policy cheapest: .*{message}"):
        selector.select(edges=network())
    assert selector.pending is None  # nothing is open that could be observed


def test_a_budget_is_not_exceeded_by_the_last_bit() -> None:
    """Three tenths, rounded once, are the number after 0.3."""
    policy = Fixed(
        choice=lambda v: Selection(round=v.round, clients=np.arange(1, 4), edges=np.zeros(3, int))
    )
    enough = network(cost=np.full(K, 0.1), budget=np.full(M, np.nextafter(0.3, 1.0)))
    assert len(Selector(policy, problem()).select(edges=enough).clients) == 3
    said = "its clients cost 0.30000000000000004 at edge 0, whose budget is 0.3"
    with pytest.raises(PolicyError, match=said):
        Selector(policy, problem()).select(edges=replace(enough, budget=np.full(M, 0.3)))


def test_the_placement_cannot_be_changed_by_the_caller() -> None:
    chosen = Selector(Random(), problem()).select(edges=network())
    assert chosen.edges is not None
    for column in (chosen.clients, chosen.edges):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


def pending_columns(selector: Selector[Any]) -> dict[str, Any]:
    assert selector.pending is not None
    columns = {name: getattr(selector.pending, name) for name in ("clients", "edges", "features")}
    return {name: None if c is None else (c.dtype, c.tolist()) for name, c in columns.items()}


class TestSaveAndRestore:
    @pytest.mark.parametrize("open_round", [False, True])
    def test_continues_bit_for_bit(self, tmp_path: Path, open_round: bool) -> None:
        contexts = np.random.default_rng(2).random((9, K, M, D))
        selector = Selector(Cheapest(), problem(num_features=D), seed=4)
        for t in range(5):
            selector.observe(answers(selector.select(edges=network(), features=contexts[t])))
        if open_round:
            selector.select(edges=network(), features=contexts[5])
        selector.save(tmp_path / "selector.npz")
        restored = Selector.restore(tmp_path / "selector.npz", Cheapest())
        assert restored.problem.num_edges == M
        for t in range(5, 9):
            if t > 5 or not open_round:
                for one in (selector, restored):
                    one.select(edges=network(), features=contexts[t])
            assert pending_columns(selector) == pending_columns(restored)
            for one in (selector, restored):
                assert one.pending is not None
                one.observe(answers(one.pending))
        for name, array in to_arrays(selector.state).items():
            assert array.tobytes() == to_arrays(restored.state)[name].tobytes(), name

    def test_an_open_round_knows_its_edges(self, tmp_path: Path) -> None:
        selector = Selector(Cheapest(), problem(num_features=D))
        selector.select(edges=network(), features=np.random.default_rng(3).random((K, M, D)))
        selector.save(tmp_path / "selector.npz")
        restored = Selector.restore(tmp_path / "selector.npz", Cheapest())
        assert pending_columns(restored) == pending_columns(selector)
        assert restored.pending is not None
        assert restored.pending.edges is not None

    def test_an_open_flat_round_has_none(self, tmp_path: Path) -> None:
        selector = Selector(Random(), Problem(num_clients=K, cohort_size=2))
        selector.select()
        selector.save(tmp_path / "selector.npz")
        restored = Selector.restore(tmp_path / "selector.npz", Random())
        assert restored.pending is not None
        assert restored.pending.edges is None


class TestJoining:
    def test_while_edges_are_open(self) -> None:
        selector = Selector(Cheapest(), problem(num_features=D))
        first = selector.select(edges=network(), features=np.ones((K, M, D)))
        assert selector.join(2).tolist() == [K, K + 1]
        assert selector.problem.num_edges == M
        assert selector.state.count.shape == (K + 2, M)
        selector.observe(answers(first))
        assert first.edges is not None
        expected = np.zeros((K + 2, M), np.int64)
        expected[first.clients, first.edges] = 1
        np.testing.assert_array_equal(selector.state.count, expected)
        with pytest.raises(DataError, match=r"6 clients and 2 edges, expected 8 and 2"):
            selector.select(edges=network(), features=np.ones((K + 2, M, D)))
        grown = EdgeView(
            coverage=np.vstack([REACH, np.ones((2, M), bool)]),
            cost=np.ones(K + 2),
            budget=np.full(M, 2.0),
        )
        with pytest.raises(DataError, match=r"shape \(6, 2, 3\), expected \(8, 2, 3\)"):
            selector.select(edges=grown, features=np.ones((K, M, D)))
        selector.select(edges=grown, features=np.ones((K + 2, M, D)))

    def test_a_saved_open_round_survives_joining(self, tmp_path: Path) -> None:
        selector = Selector(Cheapest(), problem())
        selector.select(edges=network())
        selector.join(1)
        selector.save(tmp_path / "selector.npz")
        restored = Selector.restore(tmp_path / "selector.npz", Cheapest())
        assert pending_columns(restored) == pending_columns(selector)
        assert (restored.problem.num_clients, restored.problem.first_round) == (K + 1, 2)


def test_a_round_that_nobody_can_be_paid_in_opens_and_closes() -> None:
    """Nobody covered, nobody affordable: an empty placement, empty feedback, the next round."""
    for nobody in (
        network(coverage=np.zeros_like(REACH)),
        network(budget=np.zeros(M)),
        network(budget=np.full(M, 0.99)),
    ):
        selector = Selector(Random(), problem())
        chosen = selector.select(edges=nobody)
        assert chosen.edges is not None
        assert len(chosen.clients) == len(chosen.edges) == 0
        selector.observe(answers(chosen))
        assert selector.round == 2
        assert len(selector.select(edges=network()).clients) > 0

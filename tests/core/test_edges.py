"""What an operator sees of its edge servers, and which placements of clients are valid."""

import re
from dataclasses import dataclass
from math import fsum
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.random import Generator

from fedmuster.core.checking import cohort_fault
from fedmuster.core.edges import EdgeView
from fedmuster.core.errors import DataError
from fedmuster.core.policy import CohortRule, PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView, Selection
from fedmuster.core.state import NoState

REACH = np.array([[True, False], [True, True], [False, True], [False, False]])


def network(**changed: Any) -> EdgeView:
    usual: dict[str, Any] = {
        "coverage": REACH,
        "cost": [1.0, 2.0, 0.0, 4.0],
        "budget": [3.0, np.inf],
    }
    return EdgeView(**(usual | changed))


class TestEdgeView:
    def test_a_cost_for_each_client_is_the_same_at_all_edges(self) -> None:
        edges = network()
        np.testing.assert_array_equal(edges.cost, [[1, 1], [2, 2], [0, 0], [4, 4]])
        assert edges.cost.dtype == edges.budget.dtype == np.float64
        np.testing.assert_array_equal(edges.cost, network(cost=np.array([1, 2, 0, 4])).cost)

    def test_a_cost_for_each_pair_is_kept(self) -> None:
        cost = np.arange(8.0).reshape(4, 2)
        np.testing.assert_array_equal(network(cost=cost).cost, cost)

    def test_as_many_clients_as_edges_leave_no_doubt(self) -> None:
        """[2] costs of 2 clients at 2 edges are of clients, not of edges."""
        edges = network(coverage=REACH[:2], cost=[1.0, 2.0])
        np.testing.assert_array_equal(edges.cost, [[1, 1], [2, 2]])

    def test_what_it_counts(self) -> None:
        edges = network()
        assert (edges.num_clients, edges.num_edges) == (4, 2)
        assert edges.covered.tolist() == [True, True, True, False]
        assert network(coverage=np.zeros((0, 2), bool), cost=np.zeros(0)).num_clients == 0

    def test_flat_federated_learning_is_one_edge_that_has_everything(self) -> None:
        edges = EdgeView.flat(3)
        assert (edges.num_clients, edges.num_edges) == (3, 1)
        assert edges.coverage.all()
        assert edges.budget.tolist() == [np.inf]
        assert edges.spent(np.arange(3), np.zeros(3, np.int64)).tolist() == [0.0]

    @pytest.mark.parametrize(
        "coverage",
        [REACH.astype(float), REACH.astype(int), REACH[:, 0], np.ones((4, 0), bool), REACH[None]],
        ids=["floats", "integers", "one axis", "no edge", "three axes"],
    )
    def test_bad_coverage(self, coverage: Any) -> None:
        with pytest.raises(DataError, match=r"EdgeView: coverage is .*, expected bool\(K, M\)"):
            network(coverage=coverage)

    @pytest.mark.parametrize(
        "budget",
        [[3.0], [3.0, 1.0, 1.0], 3.0, [3.0, np.nan], [-1e-9, 3.0], [3.0, -np.inf], [[3.0, 3.0]]],
        ids=str,
    )
    def test_bad_budgets(self, budget: Any) -> None:
        with pytest.raises(DataError, match=r"EdgeView.*2"):
            network(budget=budget)

    @pytest.mark.parametrize(
        "cost",
        [
            [1.0, 2.0],
            np.ones((2, 4)),
            np.ones((4, 1)),
            np.ones((4, 3)),
            1.0,
            [1.0, 2.0, np.nan, 4.0],
            [1.0, 2.0, np.inf, 4.0],
            [1.0, 2.0, 1e308, 4.0],
            [1.0, 2.0, -1e-300, 4.0],
        ],
        ids=lambda cost: str(np.shape(cost)),
    )
    def test_bad_costs(self, cost: Any) -> None:
        with pytest.raises(DataError, match=r"EdgeView: cost (of client 2 is|has shape)"):
            network(cost=cost)

    @pytest.mark.parametrize("name", ["cost", "budget"])
    @pytest.mark.parametrize("values", [["a", "b"], [[1.0], [1.0, 2.0]], [1j, 2j], [{}, {}]])
    def test_what_is_no_number(self, name: str, values: Any) -> None:
        with pytest.raises(DataError, match=f"EdgeView: {name}"):
            network(**{name: values})

    def test_what_was_seen_stays_as_it_was_seen(self) -> None:
        told = {"coverage": REACH.copy(), "cost": np.ones(4), "budget": np.ones(2)}
        edges = network(**told)
        for array in told.values():
            array[:] = 0
        assert edges.coverage.tolist() == REACH.tolist()
        assert edges.cost.min() == edges.budget.min() == 1.0
        for array in (edges.coverage, edges.cost, edges.budget):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0

    def test_nobody_covered_is_no_mistake(self) -> None:
        edges = network(coverage=np.zeros_like(REACH), budget=np.zeros(2))
        assert not edges.covered.any()

    def test_spending_is_rounded_once_whatever_the_order(self) -> None:
        rng = np.random.default_rng(4)
        for _ in range(50):
            cost = rng.uniform(0, 1, (30, 3)) * 10.0 ** rng.integers(-8, 8, (30, 3))
            edges = EdgeView(coverage=np.ones((30, 3), bool), cost=cost, budget=np.ones(3))
            clients, at = rng.permutation(30)[:20], rng.integers(3, size=20)
            exact = [fsum(cost[k, m] for k, m in zip(clients, at, strict=True) if m == edge)
                     for edge in range(3)]  # fmt: skip
            assert edges.spent(clients, at).tolist() == exact
            assert edges.spent(clients[::-1], at[::-1]).tolist() == exact


class TestViewAndSelection:
    def test_a_flat_view_is_a_network_of_one_edge(self) -> None:
        features = np.arange(6.0).reshape(3, 2)
        view = RoundView(round=1, cohort_size=2, available=np.ones(3, bool), features=features)
        assert view.network.num_edges == 1
        assert view.pair_features is not None
        np.testing.assert_array_equal(view.pair_features, features[:, None, :])
        chosen = Selection.at_edges(view, np.array([2, 0]), np.array([0, 0]))
        assert chosen.edges is None
        assert chosen.clients.tolist() == [0, 2]
        np.testing.assert_array_equal(chosen.features, features[[0, 2]])
        np.testing.assert_array_equal(chosen.rows_of(np.array([5.0, 6.0, 7.0])), [5, 7])

    def test_a_placement_knows_the_context_of_its_pairs(self) -> None:
        features = np.arange(16.0).reshape(4, 2, 2)
        view = RoundView(
            round=3, cohort_size=4, available=network().covered, features=features, edges=network()
        )
        assert view.pair_features is features
        assert view.network is view.edges
        chosen = Selection.at_edges(view, np.array([2, 0, 1]), np.array([1, 0, 1]))
        assert chosen.edges is not None
        assert (chosen.clients.tolist(), chosen.edges.tolist()) == ([0, 1, 2], [0, 1, 1])
        np.testing.assert_array_equal(chosen.features, features[[0, 1, 2], [0, 1, 1]])
        np.testing.assert_array_equal(chosen.rows_of(features[:, :, 0]), [0, 6, 10])

    def test_nobody_can_be_placed(self) -> None:
        view = RoundView(round=1, cohort_size=4, available=np.ones(4, bool), edges=network())
        nobody: IntArray = np.array([], np.int64)
        chosen = Selection.at_edges(view, nobody, nobody)
        assert chosen.edges is not None
        assert len(chosen.clients) == len(chosen.edges) == 0
        assert chosen.features is None
        assert cohort_fault(Anybody(), view, chosen) is None


@dataclass(frozen=True, kw_only=True, slots=True)
class Anybody(PolicyTraits):
    """Never asked: only its traits matter."""

    name: ClassVar[str] = "anybody"
    cohort_rule: ClassVar[CohortRule] = "exact"
    assigns_edges: ClassVar[bool] = True

    def init(self, problem: Problem) -> NoState:
        return NoState()

    def select(self, state: NoState, view: RoundView, rng: Generator) -> Selection:
        raise NotImplementedError

    def observe(self, state: NoState, selection: Selection, feedback: Feedback) -> None:
        raise NotImplementedError


def fault(edges: EdgeView, clients: list[int], at: Any, **more: Any) -> str | None:
    """What is wrong with these clients at these edges, if everybody covered is available."""
    view = RoundView(
        round=1, cohort_size=more.pop("cohort_size", 4), available=edges.covered, edges=edges
    )
    placed = np.array(at, dtype=np.int64) if isinstance(at, list) else at
    selection = Selection(round=1, clients=np.array(clients, dtype=np.int64), edges=placed, **more)
    return cohort_fault(Anybody(), view, selection)


def priced(cost: FloatArray | list[float], budget: float) -> EdgeView:
    clients = len(cost)
    return EdgeView(
        coverage=np.ones((clients, 1), bool), cost=np.array(cost), budget=np.array([budget])
    )


class TestPlacements:
    def test_a_good_one(self) -> None:
        assert fault(network(), [0, 1, 2], [0, 0, 1]) is None
        assert fault(network(), [0, 1], [0, 1]) is None  # budgets may leave somebody over

    @pytest.mark.parametrize(
        ("clients", "at", "message"),
        [
            ([0, 1], None, "its edges are None"),
            ([0, 1], [0], "one, as int64, for each"),
            ([0, 1], np.array([0, 1], np.int32), "dtype=int32"),
            ([0, 1], np.array([0.0, 1.0]), "as int64"),
            ([0, 1], np.array([[0], [1]]), "as int64"),
            ([0, 1], (0, 1), "as int64"),
            ([0, 1], [0, 2], "there are 2, counted from 0"),
            ([0, 1], [-1, 1], "there are 2, counted from 0"),
            ([0, 1], [1, 1], "client 0 at edge 1, which does not cover it"),
            ([1, 2], [0, 0], "client 2 at edge 0, which does not cover it"),
            ([1, 3], [0, 0], r"\[3\], who are not available"),
            ([1, 1], [0, 1], "none twice"),
        ],
    )
    def test_bad_ones(self, clients: list[int], at: Any, message: str) -> None:
        found = fault(network(), clients, at)
        assert found is not None
        assert re.search(message, found), found

    def test_edges_where_there_are_none(self) -> None:
        view = RoundView(round=1, cohort_size=2, available=np.ones(2, bool))
        chosen = Selection(round=1, clients=np.arange(2), edges=np.zeros(2, np.int64))
        assert cohort_fault(Anybody(), view, chosen) == "it assigned edges where there are none"

    def test_the_cohort_size_holds_beside_the_budgets(self) -> None:
        assert fault(network(), [0, 1, 2], [0, 0, 1], cohort_size=3) is None
        found = fault(network(), [0, 1, 2], [0, 0, 1], cohort_size=2)
        assert found is not None
        assert "3 clients" in found

    def test_edge_servers_know_no_order_and_no_quota(self) -> None:
        for more in ({"order": np.arange(2)}, {"quota": 1}):
            found = fault(network(), [0, 1], [0, 0], **more)
            assert found == "it has an order or a quota, which edge servers do not know"

    def test_a_budget_that_is_met_exactly_is_kept(self) -> None:
        assert fault(priced([1.0, 2.0], 3.0), [0, 1], [0, 0]) is None
        assert fault(priced([0.5, 0.25, 0.25], 1.0), [0, 1, 2], [0, 0, 0]) is None

    def test_tenths_do_not_add_up(self) -> None:
        """0.1 + 0.2 is 0.30000000000000004, which is more than 0.3: by a bit, but more."""
        found = fault(priced([0.1, 0.2], 0.3), [0, 1], [0, 0])
        assert found is not None
        assert "0.30000000000000004" in found
        assert fault(priced([0.1, 0.2], 0.1 + 0.2), [0, 1], [0, 0]) is None

    def test_the_sum_is_rounded_once(self) -> None:
        """Ten tenths are one if rounded once, and less if rounded at every step."""
        ten = [0.1] * 10
        clients, at = list(range(10)), [0] * 10
        assert fault(priced(ten, 1.0), clients, at, cohort_size=10) is None
        assert sum(ten) < 1.0
        found = fault(priced(ten, np.nextafter(1.0, 0)), clients, at, cohort_size=10)
        assert found is not None
        # A large cost must not swallow small ones, nor their order matter.
        large = [2.0**53, 1.0, 1.0]
        assert sum(large) == 2.0**53
        assert fault(priced(large, 2.0**53), [0, 1, 2], [0, 0, 0]) is not None
        assert fault(priced(large, 2.0**53 + 2), [0, 1, 2], [0, 0, 0]) is None

    @pytest.mark.parametrize("excess", [1e-12, 1e-15])
    def test_no_excess_is_small_enough(self, excess: float) -> None:
        assert fault(priced([1.0, 2.0 + excess], 3.0), [0, 1], [0, 0]) is not None

    def test_what_is_free_can_be_had_without_a_budget(self) -> None:
        assert fault(priced([0.0, 0.0, 5e-324], 0.0), [0, 1], [0, 0]) is None
        assert fault(priced([0.0, 0.0, 5e-324], 0.0), [0, 2], [0, 0]) is not None

    def test_infinite_budgets_pay_for_everything(self) -> None:
        assert fault(priced([1e290] * 4, np.inf), [0, 1, 2, 3], [0] * 4) is None

    def test_every_edge_has_a_purse_of_its_own(self) -> None:
        everywhere = network(coverage=np.ones((4, 2), bool), cost=np.ones(4), budget=[1.0, 2.0])
        assert fault(everywhere, [0, 1, 2], [1, 0, 1]) is None
        found = fault(everywhere, [0, 1, 2], [0, 0, 1])
        assert found is not None
        assert "at edge 0" in found

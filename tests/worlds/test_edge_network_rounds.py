"""The edge network round by round, with a selector; its configs through TOML and refused."""

import tomllib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import tomli_w
from numpy.random import Generator

from fedmuster.core.config import named, to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import CohortRule, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.selector import Selector
from fedmuster.worlds import WORLDS, Bernoulli, EdgeNetwork, Radio, RandomWaypoint, Redrawn


@pytest.mark.parametrize(
    "world",
    [
        EdgeNetwork(dropout=0.1, availability=Bernoulli(probability=0.7)),
        EdgeNetwork(mobility=RandomWaypoint()),
        EdgeNetwork(num_clients=1, num_edges=1),
        EdgeNetwork(num_clients=1, num_edges=7, spacing_km=0.0),
        EdgeNetwork(bandwidth_mhz=(1.0, 1.0), compute_mhz=(3.0, 3.0)),
    ],
    ids=["dropout", "random-waypoint", "K = M = 1", "K = 1", "constants"],
)
def test_rounds_repeat_in_any_order(world: EdgeNetwork) -> None:
    first, run = world.start(1), world.start(1)
    forward = [first.realise(t) for t in range(1, 7)]
    for t in (6, 2, 1):
        one, other = run.realise(t), forward[t - 1]
        assert one.edges is not None
        assert other.edges is not None
        for a, b in (
            (one.latency_seconds, other.latency_seconds),
            (one.features, other.features),
            (one.available, other.available),
            (one.position_km, other.position_km),
            (one.edges.cost, other.edges.cost),
            (one.truth.success, other.truth.success),
            (one.truth.mean_speed, other.truth.mean_speed),
        ):
            assert a is not None
            np.testing.assert_array_equal(a, b)
            assert not np.isnan(np.asarray(a, dtype=np.float64)).any()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cheapest(PolicyTraits):
    """At each edge in turn, the cheapest clients that it covers and can pay."""

    name: ClassVar[str] = "cheapest"
    cohort_rule: ClassVar[CohortRule] = "at most"
    assigns_edges: ClassVar[bool] = True

    def init(self, problem: Problem) -> None: ...

    def select(self, state: None, view: RoundView, rng: Generator) -> Selection:
        network, free = view.network, view.available.copy()
        clients, edges = [], []
        for edge, left in enumerate(network.budget):
            for client in np.argsort(network.cost[:, edge]):
                if free[client] and network.coverage[client, edge]:
                    left -= network.cost[client, edge]
                    if left < 0:
                        break
                    free[client] = False
                    clients.append(int(client))
                    edges.append(edge)
        return Selection.at_edges(
            view, np.array(clients, dtype=np.int64), np.array(edges, dtype=np.int64)
        )

    def observe(self, state: None, selection: Selection, feedback: Feedback) -> None: ...


@pytest.mark.parametrize("mobility", [Redrawn(), RandomWaypoint()])
def test_twenty_rounds_with_a_selector(mobility: Any) -> None:
    world = EdgeNetwork(mobility=mobility)
    run = world.start(1)
    selector = Selector(_Cheapest(), run.problem, seed=1)
    in_time = 0.0
    for t in range(1, 21):
        drawn = run.realise(t)
        selection = selector.select(
            available=drawn.available, features=drawn.features, edges=drawn.edges
        )
        assert selection.edges is not None
        feedback = drawn.play(selection).feedback
        latency = drawn.latency_seconds[selection.clients, selection.edges]
        punctual = latency <= 3.0
        np.testing.assert_array_equal(
            feedback.signals["in_time"][feedback.answered] > 0, punctual[feedback.answered]
        )
        assert feedback.answered[punctual].all()
        for edge in np.unique(selection.edges):  # Z = 1: somebody is waited for, within reason
            here = selection.edges == edge
            assert feedback.answered[here].any() == (latency[here].min() <= 10 * 3.0)
        last = latency[feedback.answered].max()
        assert feedback.lasted_seconds >= last + world.edge_seconds - 1e-12
        in_time += punctual.sum()
        selector.observe(feedback)
    assert 2.0 < in_time / 20 < 5.5


def test_a_client_is_placed_by_its_edge() -> None:
    drawn = EdgeNetwork(spacing_km=0.0).start(1).realise(1)
    clients = np.array([3, 8])
    selection = Selection(round=1, clients=clients, edges=np.array([2, 0]))
    feedback = drawn.play(selection).feedback
    for row, (client, edge) in enumerate(((3, 2), (8, 0))):
        if feedback.answered[row]:
            assert feedback.latency_seconds[row] == drawn.latency_seconds[client, edge]
            seconds = drawn.signals["upload_seconds"][client, edge]
            assert feedback.signals["upload_seconds"][row] == seconds


@pytest.mark.parametrize(
    "world",
    [
        EdgeNetwork(),
        EdgeNetwork.cifar(),
        EdgeNetwork(
            num_clients=7, cohort_size=3, mobility=RandomWaypoint(pause_seconds=(1.0, 2.0))
        ),
        EdgeNetwork(mobility=Redrawn(uniform="distance"), radio=Radio(shadowing_db=0.0)),
        EdgeNetwork(budget=float("inf"), at_least=0),
    ],
    ids=repr,
)
def test_edge_networks_survive_toml(world: EdgeNetwork) -> None:
    text = tomli_w.dumps(to_table(world))
    assert named(WORLDS, tomllib.loads(text), key=(), what="world") == world


def test_toml_of_an_edge_network_as_one_would_write_it() -> None:
    text = """
    name = "edge-network"
    num_clients = 500
    num_edges = 10
    mobility = { name = "random-waypoint", speed_m_per_second = [1, 2], pause_seconds = [0, 5] }
    radio = { shadowing_db = 6 }
    """
    walk = RandomWaypoint(speed_m_per_second=(1.0, 2.0), pause_seconds=(0.0, 5.0))
    expected = EdgeNetwork(
        num_clients=500, num_edges=10, mobility=walk, radio=Radio(shadowing_db=6.0)
    )
    assert named(WORLDS, tomllib.loads(text), key=(), what="world") == expected
    assert expected.start(1).problem.cohort_size == 500  # no limit beside the budgets


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_clients": 0}, "num_clients = 0"),
        ({"num_clients": 2.5}, "num_clients"),
        ({"num_edges": 0}, "num_edges"),
        ({"num_edges": 1001}, "num_edges"),
        ({"cohort_size": -1}, "cohort_size"),
        ({"deadline_seconds": None}, "without a deadline"),
        ({"over_selection": 1.3}, "over_selection"),
        ({"radius_km": 0.0}, "radius_km"),
        ({"spacing_km": -0.1}, "spacing_km"),
        ({"bandwidth_mhz": (1.0, 0.3)}, "bandwidth_mhz"),
        ({"compute_mhz": (0.0, 1.0)}, "compute_mhz"),
        ({"price_per_mhz": (0.5, float("inf"))}, "price_per_mhz"),
        ({"budget": -1.0}, "budget"),
        ({"budget": float("nan")}, "budget"),
        ({"at_least": -1}, "at_least"),
        ({"edge_seconds": float("inf")}, "edge_seconds"),
        ({"upload_mbit": 0.0}, "upload_mbit"),
        ({"workload": -1.0}, "workload"),
        ({"full_bits_per_hz": 0.0}, "full_bits_per_hz"),
    ],
)
def test_edge_networks_refuse(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EdgeNetwork(**fields)

"""Edges as groups of nodes."""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from fedmuster import COCS
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Problem
from fedmuster.core.selector import Selector
from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.muster_settings import EdgeGroups
from fedmuster.flower.node_roster import Roster
from fedmuster.flower.wire import Facts


def _roster(edges: Mapping[str, tuple[str, ...]]) -> Roster:
    """The roster of a federation whose nodes name these edges."""

    def answer(message: Message, context: Context) -> Message:
        name = str(context.node_config["client-id"])
        content = RecordDict()
        Facts(client_id=name, edges=edges[name]).into(content)
        return Message(content, reply_to=message)

    nodes = [Node(1 + n, {"client-id": name}) for n, name in enumerate(edges)]
    roster = Roster()
    roster.meet(InProcessGrid(answer, nodes), wait_seconds=5.0)
    return roster


def test_nodes_are_where_they_say() -> None:
    roster = _roster({"a": ("north",), "b": ("south", "north"), "c": ("south",)})
    view = EdgeGroups(names=("north", "south"), budget=(1, 2.5), cost=0.5).view(roster)
    assert view.coverage.tolist() == [[True, False], [True, True], [False, True]]
    assert view.budget.tolist() == [1.0, 2.5]
    assert view.cost.tolist() == [[0.5, 0.5]] * 3


def test_the_server_knows_better() -> None:
    roster = _roster({"a": ("north",), "b": ("north",)})
    groups = EdgeGroups(names=("north", "south"), budget=3, members={"a": ("south",)})
    assert groups.view(roster).coverage.tolist() == [[False, True], [True, False]]


def test_unknown_edges_are_told_once_with_what_to_write(caplog: pytest.LogCaptureFixture) -> None:
    roster = _roster({"a": ("north",), "b": ("nroth",), "c": ()})
    groups = EdgeGroups(names=("north", "south"), budget=3)
    with caplog.at_level(logging.INFO, "flwr"):
        for _ in range(3):
            view = groups.view(roster)
    assert view.covered.tolist() == [True, False, False]
    unknown, none = (r.message for r in caplog.records if r.levelno == logging.WARNING)
    assert "b names 'nroth', which is no edge here, and is never chosen" in unknown
    assert "--node-config 'edge=\"north\"' (there are: north, south)" in unknown
    assert "c names no edge, and is never chosen" in none


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"names": ()}, "names"),
        ({"names": ("a", "a")}, "names"),
        ({"names": "north"}, "names"),
        ({"budget": -1}, "budget"),
        ({"budget": (1.0,)}, "budget"),
        ({"budget": float("nan")}, "budget"),
        ({"budget": "3"}, "budget"),
        ({"cost": float("inf")}, "cost"),
        ({"cost": True}, "cost"),
        ({"members": {"x": ("east",)}}, "members"),
        ({"members": {"x": "a"}}, "members"),
    ],
)
def test_misconfiguration_is_refused(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=f"EdgeGroups: {field} = ") as caught:
        EdgeGroups(**_settings(**wrong))
    assert caught.value.key == (field,)


def _settings(**changed: Any) -> dict[str, Any]:
    return {"names": ("a", "b"), "budget": 2.0, **changed}


def test_unlimited_edges_and_equal_groups() -> None:
    groups = EdgeGroups(names=("a",), budget=float("inf"))
    assert groups.budgets.tolist() == [np.inf]
    assert groups == EdgeGroups(names=("a",), budget=float("inf"))


def test_a_hierarchical_policy_chooses_within_the_groups() -> None:
    names = {f"n{n}": ("north" if n % 2 else "south",) for n in range(8)}
    view = EdgeGroups(names=("north", "south"), budget=2).view(_roster(names))
    policy: Any = COCS()
    problem = Problem(num_clients=8, cohort_size=8, num_edges=2, num_features=1)
    selection = Selector(policy, problem).select(edges=view, features=np.full((8, 2, 1), 0.5))
    assert selection.edges is not None
    assert np.bincount(selection.edges).tolist() == [2, 2]
    assert view.coverage[selection.clients, selection.edges].all()

"""Who is who, while nodes come, go, restart and claim to be others."""

import logging
import time
from collections.abc import Iterable

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo

from fedmuster.core.errors import StateError
from fedmuster.flower import node_roster as rosters
from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.node_roster import Meeting, Roster
from fedmuster.flower.reporting_mod import ReportingMod
from fedmuster.flower.wire import RECORD, Facts


class Federation(InProcessGrid):
    """Nodes as a SuperLink describes them, some of them with a key that was named for them."""

    def __init__(self, app: ClientApp, nodes: Iterable[Node] = ()) -> None:
        super().__init__(app, list(nodes))
        self.names: dict[int, str] = {}
        self.asked: list[int] = []
        self.loses_messages = False
        self.sends_in_seconds = 0.0

    def start(self, node_id: int, key: bytes, *, plain: bool = True, **config: str) -> None:
        self.add(Node(node_id, {k.replace("_", "-"): v for k, v in config.items()}, key))
        self.names.pop(node_id, None)
        if not plain:
            self.names[node_id] = f"registered {node_id}"

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [
            NodeInfo(
                node_id=info.node_id,
                status="online",
                public_key=info.public_key,
                name=self.names.get(info.node_id),
            )
            for info in super().get_nodes()
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        time.sleep(self.sends_in_seconds)
        self.asked += [message.metadata.dst_node_id for message in messages]
        if self.loses_messages:
            for message in messages:
                message.metadata.__dict__["_message_id"] = f"lost {message.metadata.dst_node_id}"
            return [message.metadata.message_id for message in messages]
        return super().push_messages(messages)


def _app(*, reporting: bool = True) -> ClientApp:
    app = ClientApp(mods=[ReportingMod()] if reporting else [])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        raise AssertionError("there is no model in a question")

    return app


def meet(roster: Roster, grid: InProcessGrid, wait_seconds: float = 5.0) -> Meeting:
    return roster.meet(grid, wait_seconds=wait_seconds)


def test_clients_are_known_by_their_client_ids_in_natural_order() -> None:
    grid = Federation(_app())
    for node, partition in ((70, "10"), (71, "9"), (72, "1")):
        grid.start(node, b"key %d" % node, partition_id=partition)
    roster = Roster()
    assert meet(roster, grid) == Meeting({0: 72, 1: 71, 2: 70}, (0, 1, 2))
    assert roster.identities == ["partition-1", "partition-9", "partition-10"]
    assert meet(roster, grid) == Meeting({0: 72, 1: 71, 2: 70}, ())
    assert sorted(grid.asked) == [70, 71, 72]  # once


def test_a_plain_node_that_restarts_keeps_its_history_by_its_client_id() -> None:
    grid = Federation(_app())
    grid.start(1, b"key of its first start", client_id="a")
    grid.start(2, b"other", client_id="b")
    roster = Roster()
    meet(roster, grid)
    grid.remove(1)
    assert meet(roster, grid).nodes == {1: 2}
    grid.start(3, b"key of its second start", client_id="a")
    assert meet(roster, grid) == Meeting({0: 3, 1: 2}, ())


def test_of_two_nodes_with_one_client_id_the_second_waits(caplog: pytest.LogCaptureFixture) -> None:
    grid = Federation(_app())
    grid.start(1, b"1", client_id="a")
    roster = Roster()
    meet(roster, grid)
    grid.start(2, b"2", client_id="a")
    with caplog.at_level(logging.INFO, "flwr"):
        for _ in range(3):
            assert meet(roster, grid) == Meeting({0: 1}, ())
        assert caplog.text.count("node 2 says it is 'a', who is online already") == 1
        grid.remove(1)
        assert meet(roster, grid) == Meeting({0: 2}, ())
    both = Federation(_app())
    both.start(8, b"8", client_id="a")
    both.start(7, b"7", client_id="a")
    assert meet(Roster(), both) == Meeting({0: 7}, (0,))


def test_a_registered_key_is_the_identity_whatever_the_node_says() -> None:
    grid = Federation(_app())
    grid.start(1, b"victim", plain=False, client_id="hospital")
    roster = Roster()
    meet(roster, grid)
    (victim,) = roster.identities
    assert victim.startswith("key-")
    assert roster.facts == [Facts(client_id="hospital")]
    grid.remove(1)
    grid.start(2, b"thief", plain=False, client_id="hospital")
    grid.start(3, b"second thief", plain=False, client_id=victim)
    assert sorted(meet(roster, grid).nodes) == [1, 2]
    grid.start(1, b"victim", plain=False, client_id="another name by now")
    assert meet(roster, grid).nodes[0] == 1


def test_a_plain_node_cannot_claim_a_key(caplog: pytest.LogCaptureFixture) -> None:
    grid = Federation(_app())
    grid.start(1, b"victim", plain=False)
    roster = Roster()
    meet(roster, grid)
    grid.remove(1)
    grid.start(2, b"thief", client_id=roster.identities[0])
    with caplog.at_level(logging.INFO, "flwr"):
        assert meet(roster, grid).nodes == {1: 2}
    assert "which it is not" in caplog.text


def test_a_plain_node_cannot_claim_the_key_of_another_plain_node() -> None:
    grid = Federation(_app())
    grid.start(1, b"victim without a client id")
    grid.start(2, b"")
    roster = Roster()
    meet(roster, grid)
    victims = list(roster.identities)
    for node in (1, 2):
        grid.remove(node)
    for node, victim in enumerate(victims, start=3):
        grid.start(node, b"thief %d" % node, client_id=victim)
    assert set(meet(roster, grid).nodes) == {2, 3}


def test_where_nodes_are_authenticated_every_key_is_a_registered_one() -> None:
    grid = Federation(_app())
    grid.start(1, b"victim", client_id="a")
    roster = Roster(authenticated=True)
    meet(roster, grid)
    assert roster.identities[0].startswith("key-")
    roster = Roster.from_bytes(roster.to_bytes(), authenticated=True)
    grid.remove(1)
    grid.start(2, b"thief", client_id="a")
    assert meet(roster, grid).nodes == {1: 2}


def test_an_id_first_used_with_a_registered_key_stays_with_it() -> None:
    """Also if the node looked plain when it came first."""
    grid = Federation(_app())
    grid.start(1, b"victim", client_id="a")
    roster = Roster()
    meet(roster, grid)
    roster = Roster.from_bytes(roster.to_bytes())
    grid.remove(1)
    grid.start(1, b"victim", plain=False, client_id="a")
    assert meet(roster, grid).nodes == {0: 1}
    assert roster.identities == ["a"]
    grid.remove(1)
    grid.start(2, b"thief", plain=False, client_id="a")
    assert meet(roster, grid).nodes == {1: 2}


def test_an_app_without_the_mod_is_known_by_its_key_or_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid = Federation(_app(reporting=False))
    grid.start(1, b"", client_id="a")
    grid.start(2, b"plain", client_id="b")
    grid.start(3, b"registered", plain=False)
    roster = Roster()
    with caplog.at_level(logging.INFO, "flwr"):
        assert len(meet(roster, grid).nodes) == 3
        meet(roster, grid)
    names = set(roster.identities)
    assert "node-1" in names
    assert len([name for name in names if name.startswith("key-")]) == 2
    (told,) = [r.message for r in caplog.records if "would be new clients" in r.message]
    assert "node-1" in told
    client_at = {node: client for client, node in meet(roster, grid).nodes.items()}
    assert roster.identities[client_at[3]] not in told
    assert roster.identities[client_at[2]] in told
    assert len(grid.asked) == 3


def test_a_silent_node_costs_its_time_once() -> None:
    grid = Federation(_app())
    for node in range(1, 5):
        grid.start(node, b"key %d" % node, client_id=f"client {node}")
    for one in grid.nodes:
        one.silent = one.node_id > 1
    roster = Roster()
    start = time.monotonic()
    assert meet(roster, grid, wait_seconds=0.5).nodes == {0: 1}
    assert time.monotonic() - start < 30
    start = time.monotonic()
    assert meet(roster, grid, wait_seconds=60.0).nodes == {0: 1}
    assert time.monotonic() - start < 30


def test_who_waits_for_long_is_told_once_for_whom(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Federation(_app())
    for node in (1, 2, 3):
        grid.start(node, b"key %d" % node, client_id=str(node))
    for one in grid.nodes:
        one.silent = one.node_id > 1
    with caplog.at_level(logging.INFO, "flwr"):
        meet(Roster(), grid, wait_seconds=0.05)
        assert "have not said" not in caplog.text  # yet: it was short
        monkeypatch.setattr(rosters, "_PATIENT_SECONDS", 0.01)
        meet(Roster(), grid, wait_seconds=0.25)
    assert caplog.text.count("2 of 3 nodes have not said yet who they are") == 1


@pytest.mark.parametrize("kind", ["evaluate", "query"])
def test_an_app_whose_training_functions_have_names_is_asked_in_another_way(kind: str) -> None:
    def no_model(message: Message, context: Context) -> Message:
        raise AssertionError("there is no model in a question")

    app = ClientApp(mods=[ReportingMod()])
    app.train("special")(no_model)
    (app.evaluate if kind == "evaluate" else app.query)()(no_model)
    grid = Federation(app)
    for node in (1, 2):
        grid.start(node, b"", client_id=f"client {node}")
    roster = Roster()
    assert meet(roster, grid) == Meeting({0: 1, 1: 2}, (0, 1))
    assert roster.identities == ["client 1", "client 2"]
    asked = list(grid.asked)
    meet(roster, grid)
    assert grid.asked == asked  # it has answered


def test_an_app_that_can_be_asked_in_no_way_is_known_by_its_node() -> None:
    app = ClientApp(mods=[ReportingMod()])

    @app.train("special")
    def train(message: Message, context: Context) -> Message:
        raise AssertionError("nobody asks for that")

    grid = Federation(app)
    grid.start(1, b"", client_id="a")
    roster = Roster()
    assert meet(roster, grid).nodes == {0: 1}
    assert roster.identities == ["node-1"]
    meet(roster, grid)
    assert grid.asked == [1, 1, 1]  # in three ways, and no more


def test_a_slow_answer_counts_in_the_next_meeting() -> None:
    grid = Federation(_app())
    for node in (1, 2, 3):
        grid.start(node, b"key %d" % node, client_id=f"client {node}")
    roster = Roster()
    meet(roster, grid)
    grid.start(4, b"new", client_id="late")
    grid.nodes[-1].delay_seconds = 0.3
    grid.sends_in_seconds = 0.2
    assert meet(roster, grid, wait_seconds=60.0).newcomers == ()  # nobody waits for one of four
    time.sleep(0.35)
    assert meet(roster, grid).newcomers == (3,)
    assert roster.identities[3] == "late"


def test_a_restarted_server_knows_everybody_and_old_indices_stay() -> None:
    grid = Federation(_app())
    grid.start(1, b"1", client_id="b", edge="north, south")
    grid.start(2, b"2", plain=False, client_id="x")
    roster = Roster()
    meet(roster, grid)
    identities = list(roster.identities)
    restored = Roster.from_bytes(roster.to_bytes())
    assert restored.identities == identities
    assert restored.facts == roster.facts
    grid.start(3, b"3", client_id="a")
    meeting = meet(restored, grid)
    assert {identities[client]: node for client, node in meeting.nodes.items() if client < 2} == {
        "b": 1,
        next(name for name in identities if name != "b"): 2,
    }
    assert restored.identities == [*identities, "a"]
    assert meeting.newcomers == (2,)


def test_a_restarted_server_does_not_count_on_nodes_that_do_not_answer_it() -> None:
    """They may be busy with what the dead one sent, or gone though still listed: they are known by
    their keys, but would not answer a round either."""
    grid = Federation(_app())
    for number in (1, 2, 3):
        grid.start(number, b"%d" % number, client_id=f"client {number}")
    roster = Roster()
    meet(roster, grid)
    restored = Roster.from_bytes(roster.to_bytes())
    grid.nodes[0].delay_seconds = 0.3
    assert meet(restored, grid).nodes == {1: 2, 2: 3}
    assert restored.silent == {0}
    time.sleep(0.35)
    assert meet(restored, grid).nodes == {0: 1, 1: 2, 2: 3}
    assert restored.silent == set()


def test_nobody_takes_the_place_of_a_node_that_is_busy_when_the_server_restarts() -> None:
    grid = Federation(_app())
    for number in (1, 2, 3):
        grid.start(number, b"%d" % number, client_id=f"client {number}")
    roster = Roster()
    meet(roster, grid)
    restored = Roster.from_bytes(roster.to_bytes())
    grid.nodes[0].delay_seconds = 0.3
    grid.start(9, b"impostor", client_id="client 1")
    assert meet(restored, grid).nodes == {1: 2, 2: 3}
    time.sleep(0.35)
    assert meet(restored, grid).nodes == {0: 1, 1: 2, 2: 3}
    assert restored.identities == roster.identities


def test_the_image_is_always_new() -> None:
    grid = Federation(_app(reporting=False))
    roster = Roster()
    for number in range(1, 4):
        grid.start(number, b"")
        meet(roster, grid)
        assert len(Roster.from_bytes(roster.to_bytes()).identities) == number
    grid = Federation(_app())
    grid.start(1, b"first start", client_id="a")
    roster = Roster()
    meet(roster, grid)
    roster.to_bytes()
    grid.remove(1)
    grid.start(2, b"second start", client_id="a")
    meet(roster, grid)
    grid.start(2, b"second start", client_id="z")  # which counts less than the key
    assert meet(Roster.from_bytes(roster.to_bytes()), grid).nodes == {0: 2}


def test_with_new_node_ids_and_keys_client_ids_find_their_indices_again() -> None:
    grid = Federation(_app())
    for node in range(20):
        grid.start(1 + node, b"key %d" % node, partition_id=str(node))
    roster = Roster()
    meet(roster, grid)
    restored = Roster.from_bytes(roster.to_bytes())
    again = Federation(_app())
    for node in range(20):
        again.start(100 + node, b"new key %d" % node, partition_id=str(19 - node))
    assert meet(restored, again).nodes == {client: 119 - client for client in range(20)}


def test_facts_are_refreshed_when_a_node_with_a_known_key_is_met_again() -> None:
    grid = Federation(_app())
    grid.start(1, b"1", plain=False, edge="north")
    roster = Roster()
    meet(roster, grid)
    assert roster.facts[0].edges == ("north",)
    restored = Roster.from_bytes(roster.to_bytes())
    grid.start(1, b"1", plain=False, edge="south")
    meet(restored, grid)
    assert restored.facts[0].edges == ("south",)
    assert Roster.from_bytes(restored.to_bytes()).facts == restored.facts


def test_nonsense_instead_of_an_answer_is_no_answer(caplog: pytest.LogCaptureFixture) -> None:
    def nonsense(message: Message, context: Context) -> Message:
        content = RecordDict({RECORD: ConfigRecord({"facts.client-id": 7.5, "facts.known": True})})
        return Message(content, reply_to=message)

    grid = InProcessGrid(nonsense, [Node(1)])
    roster = Roster()
    with caplog.at_level(logging.INFO, "flwr"):
        assert meet(roster, grid).nodes == {0: 1}
    assert roster.identities == ["node-1"]
    assert "does not say properly who it is" in caplog.text


def test_a_node_that_vanishes_while_it_is_asked_is_asked_again() -> None:
    grid = Federation(_app())
    for node in (1, 2, 3):
        grid.start(node, b"key %d" % node, client_id=str(node))
    roster = Roster()
    meet(roster, grid)
    grid.start(4, b"4", client_id="4")
    grid.nodes[-1].silent = True
    meet(roster, grid)
    gone = grid.remove(4)
    meet(roster, grid)
    gone.silent = False
    grid.add(gone)
    assert meet(roster, grid).nodes[3] == 4


def test_a_question_that_was_lost_is_asked_again() -> None:
    grid = Federation(_app())
    grid.start(1, b"1", client_id="a")
    grid.loses_messages = True
    roster = Roster()
    assert meet(roster, grid, wait_seconds=0.05).nodes == {}
    grid.loses_messages = False
    assert meet(roster, grid).nodes == {0: 1}
    assert roster.identities == ["a"]


def test_the_log_says_who_came_and_went(caplog: pytest.LogCaptureFixture) -> None:
    grid = Federation(_app())
    for node in range(1, 16):
        grid.start(node, b"key %d" % node, client_id=f"c{node}")
    roster = Roster()
    with caplog.at_level(logging.INFO, "flwr"):
        meet(roster, grid)
        gone = grid.remove(3)
        meet(roster, grid)
        grid.add(gone)
        meet(roster, grid)
        meet(roster, grid)
    assert [record.message for record in caplog.records] == [
        "fedmuster: joined: c1, c2, c3, c4, c5, c6, c7, c8, c9, c10 and 5 more",
        "fedmuster: left: c3",
        "fedmuster: came back: c3",
    ]


def test_nobody_is_there() -> None:
    assert meet(Roster(), Federation(_app())) == Meeting({}, ())


def test_a_thousand_nodes_are_asked_once() -> None:
    grid = Federation(_app())
    for node in range(1000):
        grid.start(1 + node, b"key %d" % node, partition_id=str(node))
    roster = Roster()
    assert meet(roster, grid, wait_seconds=60.0).nodes == {n: n + 1 for n in range(1000)}
    for _ in range(5):
        assert len(meet(roster, grid).nodes) == 1000
    assert len(grid.asked) == 1000


def test_what_is_no_roster_is_refused() -> None:
    with pytest.raises(StateError, match="roster"):
        Roster.from_bytes(b"something else")


def test_another_node_with_the_same_id_is_another_client() -> None:
    grid = Federation(_app())
    grid.start(1, b"first")
    roster = Roster(authenticated=True)
    assert meet(roster, grid) == Meeting({0: 1}, (0,))
    grid.start(1, b"second")
    assert meet(roster, grid) == Meeting({1: 1}, (1,))
    grid.start(1, b"first")
    assert meet(roster, grid) == Meeting({0: 1}, ())


def test_who_has_the_key_is_the_client_whoever_else_says_so() -> None:
    grid = Federation(_app())
    grid.start(2, b"known", client_id="a")
    roster = Roster()
    meet(roster, grid)
    again = Roster.from_bytes(roster.to_bytes())
    grid.start(1, b"unknown", client_id="a")  # which comes first in order
    assert meet(again, grid) == Meeting({0: 2}, ())


def test_a_node_that_was_away_is_asked_again_and_may_have_moved() -> None:
    grid = Federation(_app())
    grid.start(1, b"1", client_id="a", edge="north")
    grid.start(2, b"2", client_id="b")
    roster = Roster()
    meet(roster, grid)
    grid.remove(1)
    meet(roster, grid)
    grid.start(1, b"1", client_id="a", edge="south")
    assert meet(roster, grid).nodes == {0: 1, 1: 2}
    assert roster.facts[0].edges == ("south",)
    assert sorted(grid.asked) == [1, 1, 2]

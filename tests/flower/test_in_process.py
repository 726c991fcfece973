"""The federation in one process answers as a SuperLink with SuperNodes would."""

import time
from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp.strategy import FedAvg

from fedmuster.flower.in_process import InProcessGrid, Node

Answer = Callable[[Message, Context], Message]


def echo(message: Message, context: Context) -> Message:
    return Message(message.content, reply_to=message)


def grid_of(app: Answer, count: int = 3, *, delay_seconds: float = 0.0) -> InProcessGrid:
    nodes = [Node(10 + i, {"partition-id": i}, b"", delay_seconds) for i in range(count)]
    return InProcessGrid(app, nodes)


def train_message(node_id: int, content: RecordDict | None = None) -> Message:
    return Message(content if content is not None else RecordDict(), node_id, "train")


def test_plays_fedavg_as_computed_by_hand() -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        examples = 1 + int(context.node_config["partition-id"])
        (weights,) = message.content.array_records["arrays"].to_numpy_ndarrays()
        reply = RecordDict(
            {
                "arrays": ArrayRecord([weights + examples]),
                "metrics": MetricRecord({"num-examples": examples}),
            }
        )
        return Message(reply, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 1, "loss": float(context.node_id)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    result = FedAvg().start(grid_of(app), ArrayRecord([np.zeros(2)]), num_rounds=2)
    # Weighted by 1, 2, 3 examples a round adds (1 + 4 + 9) / 6.
    np.testing.assert_allclose(result.arrays.to_numpy_ndarrays()[0], 2 * 14 / 6, rtol=1e-12)
    assert result.evaluate_metrics_clientapp[2]["loss"] == pytest.approx(11.0)


def test_replies_name_their_message_and_node_and_are_given_once() -> None:
    grid = grid_of(echo)
    messages = [train_message(node_id) for node_id in grid.get_node_ids()]
    ids = list(grid.push_messages(messages))
    assert ids == [message.metadata.message_id for message in messages]
    assert len(set(ids)) == 3
    replies = {r.metadata.reply_to_message_id: r for r in grid.pull_messages(ids)}
    assert {replies[i].metadata.src_node_id for i in ids} == {10, 11, 12}
    assert [replies[i].metadata.src_node_id for i in ids] == [10, 11, 12]
    again = list(grid.pull_messages(ids[:1]))
    assert [r.error.code for r in again] == [ErrorCode.MESSAGE_UNAVAILABLE]
    assert again[0].metadata.reply_to_message_id == ids[0]


def test_an_app_that_raises_is_an_error_reply_and_its_state_is_not_kept() -> None:
    def moody(message: Message, context: Context) -> Message:
        calls = len(context.state)
        context.state[f"call {calls}"] = ConfigRecord()
        if "fail" in message.content:
            raise ZeroDivisionError("on purpose")
        return Message(RecordDict({"calls": MetricRecord({"n": calls})}), reply_to=message)

    grid = grid_of(moody, 1)
    seen = []
    for fail in (False, True, False):
        content = RecordDict({"fail": ConfigRecord()} if fail else {})
        (reply,) = grid.send_and_receive([train_message(10, content)])
        seen.append(reply.error.code if reply.has_error() else reply.content["calls"]["n"])
        assert reply.metadata.src_node_id == 10
    assert seen == [0, ErrorCode.CLIENT_APP_RAISED_EXCEPTION, 1]


def test_the_reason_of_an_error_is_told() -> None:
    def broken(message: Message, context: Context) -> Message:
        raise ValueError("no data in /nowhere")

    (reply,) = grid_of(broken, 1).send_and_receive([train_message(10)])
    assert reply.error.reason == "<class 'ValueError'>:<'no data in /nowhere'>"


def test_records_are_not_shared_between_sender_and_nodes() -> None:
    def greedy(message: Message, context: Context) -> Message:
        config = message.content.config_records["config"]
        seen = config.pop("secret", None) is not None
        del message.content["config"]
        message.content["seen"] = MetricRecord({"seen": int(seen)})
        return Message(message.content, reply_to=message)

    shared = RecordDict({"config": ConfigRecord({"secret": 7})})
    grid = grid_of(greedy)
    replies = list(grid.send_and_receive([train_message(n, shared) for n in (10, 11, 12)]))
    assert [reply.content["seen"]["seen"] for reply in replies] == [1, 1, 1]
    assert shared["config"]["secret"] == 7
    assert "seen" not in shared


def test_a_delayed_reply_comes_late_and_queues_behind_the_one_before() -> None:
    grid = grid_of(echo, 2, delay_seconds=0.05)
    sent = time.monotonic()
    replies = list(grid.send_and_receive([train_message(10), train_message(10)], timeout=5))
    assert len(replies) == 2
    assert time.monotonic() - sent >= 0.1
    ids = list(grid.push_messages([train_message(11)]))
    assert list(grid.pull_messages(ids)) == []


def test_a_deadline_leaves_the_late_reply_to_be_pulled_later() -> None:
    grid = grid_of(echo, 2)
    slow = next(node for node in grid.nodes if node.node_id == 11)
    slow.delay_seconds = 0.1
    late = train_message(11)
    replies = list(grid.send_and_receive([train_message(10), late], timeout=0.03))
    assert [reply.metadata.src_node_id for reply in replies] == [10]
    time.sleep(0.1)
    (reply,) = grid.pull_messages([late.metadata.message_id])
    assert reply.metadata.reply_to_message_id == late.metadata.message_id


def test_a_silent_node_never_answers_and_when_gone_the_superlink_does() -> None:
    grid = grid_of(echo, 1)
    (node,) = grid.nodes
    node.silent = True
    message = train_message(10)
    assert list(grid.send_and_receive([message], timeout=0.02)) == []
    grid.remove(10)
    assert list(grid.get_node_ids()) == []
    (reply,) = grid.pull_messages([message.metadata.message_id])
    assert reply.error.code == ErrorCode.NODE_UNAVAILABLE
    assert reply.metadata.src_node_id == SUPERLINK_NODE_ID
    assert reply.metadata.message_type == "train"
    assert list(grid.push_messages([train_message(10)])) == [""]


def test_nodes_come_and_go_and_are_described() -> None:
    grid = grid_of(echo, 1)
    grid.add(Node(77, {}, b"key"))
    assert {(n.node_id, n.public_key, n.status) for n in grid.get_nodes()} == {
        (10, b"", "online"),
        (77, b"key", "online"),
    }
    assert grid.remove(10).config == {"partition-id": 0}
    assert list(grid.get_node_ids()) == [77]

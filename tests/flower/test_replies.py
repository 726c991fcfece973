"""Replies are told apart by the message that they answer, and nonsense costs only its sender."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from numpy.typing import NDArray
from tests.flower.tiny_app import federation, model

from fedmuster.flower.reply_sorting import (
    Forms,
    Promise,
    ReplyRule,
    RoundReplies,
    TrainCheck,
    alike,
    refused,
)
from fedmuster.flower.round_messages import RoundMessages
from fedmuster.flower.wire import Release, Report, signals_of


def ask(count: int) -> list[Message]:
    grid = federation("abcdefgh"[:count])
    messages = [
        Message(RecordDict({"arrays": model()}), node.node_id, MessageType.TRAIN)
        for node in grid.nodes
    ]
    grid.push_messages(messages)  # gives them their ids
    return messages


def answer(message: Message, value: float = 1.0, **metrics: float | list[float]) -> Message:
    told = MetricRecord({"num-examples": 10, "loss": 0.5, **metrics})
    return Message(RecordDict({"arrays": model(value), "metrics": told}), reply_to=message)


def sort(
    messages: list[Message],
    replies: list[Message],
    promise: Promise | None = None,
    rule: ReplyRule | None = None,
) -> RoundReplies:
    check = TrainCheck(Forms(model()), rule=rule or ReplyRule("num-examples"), promise=promise)
    posting = RoundMessages(messages=messages, clients=range(10, 10 + len(messages)), check=check)
    posting.sent({m.metadata.message_id for m in messages}, now=0.0)
    for message in messages:
        posting.arrived[message.metadata.message_id] = 2.5
    return posting.sort(replies)


def test_answers_come_in_the_order_of_clients_with_their_time_and_report() -> None:
    messages = ask(3)
    replies = [answer(message) for message in reversed(messages)]
    Report(compute_seconds=0.7, trained_before=4, signals={"gain": 0.1}).into(replies[2].content)
    found = sort(messages, replies)
    assert [each.client for each in found.answers] == [10, 11, 12]
    first = found.answers[0]
    assert first.elapsed_seconds == 2.5
    assert first.report is not None
    assert first.report.compute_seconds == 0.7
    assert set(first.reply.content) == {"arrays", "metrics"}  # what is between us is gone
    assert found.answers[1].report is None


def test_errors_strangers_and_second_replies_are_no_answers() -> None:
    messages = ask(3)
    (foreign,) = ask(1)
    replies = [
        Message(Error(code=2, reason="out of memory"), reply_to=messages[0]),
        answer(messages[1]),
        answer(messages[1], value=9.0),
        answer(foreign),
    ]
    found = sort(messages, replies)
    assert [client for client, _ in found.failures] == [10]
    assert [each.client for each in found.answers] == [11]
    assert found.answers[0].reply is replies[1]
    assert sum(found.strangers.values()) == 2
    assert found.strangers["to no message of this round"] == 1


def with_arrays(message: Message, **arrays: NDArray[np.generic]) -> Message:
    record = ArrayRecord({name: Array(values) for name, values in arrays.items()})
    told = MetricRecord({"num-examples": 10, "loss": 0.5})
    return Message(RecordDict({"arrays": record, "metrics": told}), reply_to=message)


def without_weight(message: Message) -> Message:
    content = RecordDict({"arrays": model(1.0), "metrics": MetricRecord({"loss": 0.5})})
    return Message(content, reply_to=message)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda m: answer(m, value=np.nan), "'w' is not finite"),
        (lambda m: answer(m, value=np.inf), "'w' is not finite"),
        (lambda m: answer(m, loss=np.nan), "'loss' is not finite"),
        (lambda m: answer(m, loss=-np.inf), "'loss' is not finite"),
        (lambda m: answer(m, **{"eval-loss": np.nan}), "'eval-loss' is not finite"),
        (lambda m: answer(m, train_loss=[0.5, np.inf]), "'train_loss' is not finite"),
        (lambda m: answer(m, **{"num-examples": np.nan}), "expected a number > 0"),
        (lambda m: answer(m, **{"num-examples": np.inf}), "expected a number > 0"),
        (lambda m: answer(m, **{"num-examples": 0}), "expected a number > 0"),
        (lambda m: answer(m, **{"num-examples": -5}), "expected a number > 0"),
        (lambda m: with_arrays(m, w=np.zeros(4), b=np.zeros(1)), "has shape"),
        (lambda m: with_arrays(m, w=np.zeros((4, 4), dtype=np.int64), b=np.zeros(1)), "has shape"),
        (lambda m: with_arrays(m, w=np.zeros(3, dtype=complex), b=np.zeros(1)), "expected numbers"),
        (lambda m: without_weight(m), "'num-examples' is None"),
        (lambda m: answer(m, loss=[0.5, 0.5]), "differs from the others in its keys: loss"),
        (lambda m: with_arrays(m, w=np.zeros(3)), "differs from the others in its keys: b"),
        (lambda m: answer(m, extra=1.0), "differs from the others in its keys: extra"),
        (lambda m: Message(RecordDict(), reply_to=m), "0 ArrayRecords, expected one"),
    ],
)
def test_nonsense_is_refused_and_costs_only_its_sender(
    make: Callable[[Message], Message], reason: str
) -> None:
    messages = ask(3)
    found = sort(messages, [make(messages[0]), answer(messages[1]), answer(messages[2])])
    assert [each.client for each in found.answers] == [11, 12]
    ((client, _, why),) = found.refused
    assert client == 10
    assert reason in why


def test_other_metrics_may_be_no_number() -> None:
    """As the AUC of a client with one class is: no reason to lose its update."""
    messages = ask(2)
    odd = answer(messages[0], auc=np.nan, perplexity=np.inf, per_class=[0.5, np.nan])
    usual = answer(messages[1], auc=0.5, perplexity=3.0, per_class=[0.5, 0.5])
    found = sort(messages, [odd, usual])
    assert found.refused == []
    assert [each.client for each in found.answers] == [10, 11]
    assert signals_of(found.answers[0].metrics) == {"num-examples": 10, "loss": 0.5}


def with_control(message: Message, width: int, **control: NDArray[np.generic]) -> Message:
    reply = with_arrays(message, w=np.zeros(width), b=np.zeros(1))
    reply.content["control"] = ArrayRecord({name: Array(v) for name, v in control.items()})
    return reply


def test_beside_the_model_there_may_be_arrays_of_any_shape_under_its_names() -> None:
    rule = ReplyRule("num-examples", free=True, model_key="arrays")
    messages = ask(3)
    replies = [
        with_control(messages[0], 3, w=np.zeros((9, 9)), b=np.zeros(0)),
        with_control(messages[1], 4, w=np.zeros((9, 9)), b=np.zeros(0)),
        with_control(messages[2], 3, w=np.full((9, 9), np.nan), b=np.zeros(0)),
    ]
    found = sort(messages, replies, rule=rule)
    assert [each.client for each in found.answers] == [10]
    assert [(client, why) for client, _, why in found.refused] == [
        (11, "its array 'w' has shape (4,), the model's has (3,)"),
        (12, "its array 'w' is not finite"),
    ]


def test_where_the_model_is_the_strategy_says() -> None:
    class Own(FedAvg):
        def aggregate_train(
            self, server_round: int, replies: Iterable[Message]
        ) -> tuple[ArrayRecord | None, MetricRecord | None]:
            return None, None

    own = Own(arrayrecord_key="net", weighted_by_key="rows")
    private = DifferentialPrivacyServerSideFixedClipping(own, 1.0, 1.0, 3)
    for strategy in (own, private):
        assert ReplyRule.of(strategy, "train") == ReplyRule("rows", free=True, model_key="net")
        assert not ReplyRule.of(strategy, "evaluate").free


def test_flowers_own_aggregation_wants_the_model_alone() -> None:
    messages = ask(1)
    found = sort(messages, [with_control(messages[0], 3, w=np.zeros(3))])
    assert "2 ArrayRecords, expected one" in found.refused[0][2]


def test_bytes_of_boosters_may_have_any_shape() -> None:
    messages = ask(2)
    found = sort(
        messages,
        [
            with_arrays(message, w=np.zeros(size, dtype=np.uint8))
            for message, size in zip(messages, (3, 900), strict=True)
        ],
    )
    assert len(found.answers) == 2


def test_in_a_private_run_only_released_updates_count() -> None:
    messages = ask(3)
    replies = [answer(message) for message in messages]
    Release(run="run", round=4, amount=0.25).into(replies[1].content)
    Release(run="run", round=3, amount=0.25).into(replies[2].content)
    promise = Promise(run="run", round=4, amounts={10: 0.25, 11: 0.25, 12: 0.25})
    found = sort(messages, replies, promise)
    assert [each.client for each in found.answers] == [11]
    reasons = {client: why for client, _, why in found.refused}
    assert "PrivateMod" in reasons[10]
    assert "something else" in reasons[12]


def test_what_was_refused_is_an_error_to_the_strategy() -> None:
    (message,) = ask(1)
    failure = refused(answer(message), "it is not finite")
    assert failure.has_error()
    assert failure.metadata.reply_to_message_id == message.metadata.message_id
    assert "it is not finite" in str(failure.error.reason)


def test_odd_evaluations_are_told_apart_and_errors_stay() -> None:
    messages = ask(4)
    replies = [
        answer(messages[0]),
        answer(messages[1], extra=1.0),
        answer(messages[2]),
        Message(Error(code=2, reason="…"), reply_to=messages[3]),
    ]
    good, ((odd, reason),) = alike(replies)
    assert good == [replies[0], replies[2], replies[3]]
    assert odd is replies[1]
    assert "extra" in reason


@pytest.mark.parametrize(
    "data",
    [b"", b"nonsense", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x01\x00\xff\xff{}", b"\x80\x04}."],
    ids=["nothing", "no numpy", "cut short", "false length", "a pickle"],
)
def test_bytes_that_are_no_array_cost_only_their_sender(data: bytes) -> None:
    messages = ask(2)
    bad = answer(messages[0])
    arrays = bad.content["arrays"]
    assert isinstance(arrays, ArrayRecord)
    arrays["w"] = Array(dtype="float64", shape=(3,), stype="numpy.ndarray", data=data)
    found = sort(messages, [bad, answer(messages[1])])
    assert [each.client for each in found.answers] == [11]
    assert "cannot be read" in found.refused[0][2]


def test_of_two_forms_the_models_own_counts() -> None:
    messages = ask(2)
    liar = with_arrays(messages[0], zzz=np.zeros(3))
    found = sort(messages, [liar, answer(messages[1])])
    assert [each.client for each in found.answers] == [11]

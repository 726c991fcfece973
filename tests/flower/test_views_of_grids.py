"""Grids as others see them: only the cohort, and with a clock."""

import time
from unittest.mock import create_autospec

import pytest
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict

from fedmuster.core.errors import ConfigError
from fedmuster.flower.grid_views import OnlyThese, TimedGrid
from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.reply_sorting import TrainCheck
from fedmuster.flower.round_messages import RoundMessages


def echo(message: Message, context: Context) -> Message:
    return Message(RecordDict({"said": ConfigRecord({"node": context.node_id})}), reply_to=message)


def federation(delays: list[float]) -> InProcessGrid:
    nodes = [Node(100 + number, delay_seconds=delay) for number, delay in enumerate(delays)]
    return InProcessGrid(echo, nodes)


def messages_to(grid: InProcessGrid) -> list[Message]:
    return [Message(RecordDict(), node.node_id, MessageType.TRAIN) for node in grid.nodes]


def answered_by(replies: list[Message]) -> set[int]:
    return {reply.metadata.src_node_id for reply in replies}


def test_a_strategy_sees_only_the_cohort() -> None:
    view = OnlyThese(federation([0.0] * 5), [101, 103])
    assert list(view.get_node_ids()) == [101, 103]
    assert [node.node_id for node in view.get_nodes()] == [101, 103]


def test_who_waits_for_more_nodes_is_told_instead_of_waiting_for_ever() -> None:
    view = OnlyThese(federation([0.0] * 5), [101], patience_seconds=0.05)
    time.sleep(0.06)  # before it asks, a strategy may work as long as it likes
    list(view.get_node_ids())
    time.sleep(0.06)
    with pytest.raises(ConfigError, match="min_train_nodes=1"):
        view.get_node_ids()


def test_answers_are_timed_one_by_one() -> None:
    grid = federation([0.05, 0.2])
    sent = messages_to(grid)
    posting = RoundMessages(messages=sent, clients=[7, 8])
    timed = TimedGrid(grid, poll_seconds=0.005)
    timed.expected = posting
    assert len(list(timed.send_and_receive(sent, timeout=5.0))) == 2
    first, second = (posting.arrived[message.metadata.message_id] for message in sent)
    assert 0.05 <= first < 0.2 <= second
    assert posting.lasted_seconds >= second
    assert sorted(posting.client_of.values()) == [7, 8]


def test_a_round_closes_with_k_of_n_good_answers() -> None:
    grid = federation([0.0, 0.0, 0.0, 30.0])
    sent = messages_to(grid)
    timed = TimedGrid(grid, poll_seconds=0.005)
    timed.expected = RoundMessages(messages=sent, clients=range(4), counts=3)
    assert answered_by(list(timed.send_and_receive(sent, timeout=60.0))) == {100, 101, 102}
    assert timed.expected.lasted_seconds < 30.0


def test_failures_do_not_count_towards_k_of_n() -> None:
    def first_fails(message: Message, context: Context) -> Message:
        if context.node_id == 100:
            raise RuntimeError("out of memory")
        return echo(message, context)

    grid = InProcessGrid(first_fails, [Node(100), Node(101, delay_seconds=0.05), Node(102)])
    sent = messages_to(grid)
    timed = TimedGrid(grid, poll_seconds=0.005)
    timed.expected = RoundMessages(messages=sent, clients=range(3), counts=2)
    replies = list(timed.send_and_receive(sent, timeout=60.0))
    assert sum(not reply.has_error() for reply in replies) == 2


def test_only_answers_of_preferred_clients_fill_a_quota() -> None:
    grid = federation([0.0, 0.0, 0.1])
    sent = messages_to(grid)
    timed = TimedGrid(grid, poll_seconds=0.005)
    timed.expected = RoundMessages(messages=sent, clients=range(3), counts=1, preferred={2})
    assert len(list(timed.send_and_receive(sent, timeout=60.0))) == 3


@pytest.mark.parametrize("own_deadline", [0.1, None])
def test_the_earlier_of_deadline_and_timeout_closes_a_round(own_deadline: float | None) -> None:
    grid = federation([0.0, 60.0])
    sent = messages_to(grid)
    timed = TimedGrid(grid, poll_seconds=0.02, deadline_seconds=own_deadline)
    timed.expected = RoundMessages(messages=sent, clients=range(2))
    timeout = 50.0 if own_deadline is not None else 0.1
    assert answered_by(list(timed.send_and_receive(sent, timeout=timeout))) == {100}
    assert 0.1 <= timed.expected.lasted_seconds < 50.0


def test_only_usable_answers_count_towards_k_of_n() -> None:
    grid = federation([0.0, 0.0, 0.1])
    sent = messages_to(grid)
    timed = TimedGrid(grid, poll_seconds=0.005)
    check = create_autospec(TrainCheck, instance=True)
    check.usable.side_effect = lambda client, reply: client > 0
    timed.expected = RoundMessages(messages=sent, clients=range(3), counts=2, check=check)
    assert len(list(timed.send_and_receive(sent, timeout=60.0))) == 3


def test_a_loop_that_pushes_and_pulls_by_itself_is_timed_too() -> None:
    grid = federation([0.0, 0.05])
    sent = messages_to(grid)
    timed = TimedGrid(grid, poll_seconds=0.005)
    posting = timed.expected = RoundMessages(messages=sent, clients=[4, 5])
    waiting = set(timed.push_messages(reversed(sent)))
    while waiting:
        waiting -= {r.metadata.reply_to_message_id for r in timed.pull_messages(waiting)}
    assert sorted(posting.client_of.values()) == [4, 5]
    assert all(seconds > 0 for seconds in posting.arrived.values())
    assert posting.lasted_seconds >= 0.05
    assert posting.silent == []


def test_who_does_not_answer_an_evaluation_is_told_of() -> None:
    grid = federation([0.0, 60.0])
    timed = TimedGrid(grid, poll_seconds=0.005, deadline_seconds=0.1)
    timed.send_and_receive(messages_to(grid), timeout=3600.0)
    assert [message.metadata.dst_node_id for message in timed.take_unanswered()] == [101]
    assert timed.take_unanswered() == []


def test_evaluations_wait_for_everybody_and_do_not_touch_the_round() -> None:
    grid = federation([0.0, 0.05])
    timed = TimedGrid(grid, poll_seconds=0.005)
    training = RoundMessages(messages=messages_to(grid), clients=range(2), counts=1)
    timed.expected = training
    assert len(list(timed.send_and_receive(messages_to(grid), timeout=5.0))) == 2
    assert training.arrived == {}


def test_nobody_to_ask_is_no_reason_to_wait() -> None:
    timed = TimedGrid(federation([]), poll_seconds=0.005)
    assert list(timed.send_and_receive([], timeout=3600.0)) == []


def test_what_could_not_be_sent_is_not_waited_for() -> None:
    grid = federation([0.0, 0.0])
    sent = messages_to(grid)
    grid.remove(101)
    timed = TimedGrid(grid, poll_seconds=0.005)
    posting = timed.expected = RoundMessages(messages=sent, clients=[4, 5])
    assert answered_by(list(timed.send_and_receive(sent, timeout=60.0))) == {100}
    assert all(message.metadata.message_id for message in sent)  # as Flower does it
    assert posting.silent == []
    assert list(posting.client_of.values()) == [4]

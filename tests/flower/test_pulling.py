"""One reply that hangs delays neither the others nor the end of the round."""

import threading
import time
from collections.abc import Iterable, Iterator

import pytest
from flwr.app import Message, MessageType, RecordDict
from tests.flower.tiny_app import client_app, federation, model

from fedmuster.flower.grid_views import ReplyThreads, ThroughGrid, TimedGrid, is_local
from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.round_messages import RoundMessages


class HangingGrid(ThroughGrid):
    """As Flower's grid does where a node dies while it uploads."""

    def __init__(self) -> None:
        self.nodes = [Node(number) for number in range(1, 4)]
        super().__init__(InProcessGrid(client_app(), self.nodes))
        self.hanging: set[str] = set()
        self.hang_first = False
        self.released = threading.Event()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = list(super().push_messages(messages))
        if self.hang_first:
            self.hanging = {ids[0]}
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = set(message_ids)
        if wanted & self.hanging:
            self.released.wait(30.0)
        return super().pull_messages(wanted)


@pytest.fixture
def grid() -> Iterator[HangingGrid]:
    hanging = HangingGrid()
    yield hanging
    hanging.released.set()


def push(grid: HangingGrid) -> list[Message]:
    content = RecordDict({"arrays": model()})
    messages = [Message(content, node.node_id, MessageType.TRAIN) for node in grid.nodes]
    grid.push_messages(messages)
    return messages


def test_local_grids_are_asked_at_once_and_others_reply_by_reply(grid: HangingGrid) -> None:
    assert is_local(federation())
    assert not is_local(grid)


def test_a_reply_that_hangs_delays_nobody_and_is_told_of_when_it_comes(grid: HangingGrid) -> None:
    ids = [message.metadata.message_id for message in push(grid)]
    grid.hanging = {ids[1]}
    pulling = ReplyThreads(grid)
    began = time.monotonic()
    first = list(pulling.pull(ids, wait_seconds=0.5))
    assert {reply.metadata.reply_to_message_id for reply in first} == {ids[0], ids[2]}
    assert time.monotonic() - began < 10.0
    assert list(pulling.pull([ids[1]], wait_seconds=0.05)) == []
    grid.released.set()
    (late,) = pulling.pull([ids[1]], wait_seconds=10.0)
    assert late.metadata.reply_to_message_id == ids[1]


def test_a_round_closes_by_its_deadline_whatever_hangs(grid: HangingGrid) -> None:
    timed = TimedGrid(grid, poll_seconds=0.02, deadline_seconds=0.5)
    content = RecordDict({"arrays": model()})
    sent = [Message(content, node.node_id, MessageType.TRAIN) for node in grid.nodes]
    posting = timed.expected = RoundMessages(messages=sent, clients=range(3))
    grid.hang_first = True
    replies = list(timed.send_and_receive(sent, timeout=3600.0))
    assert len(replies) == 2
    assert 0.5 <= posting.lasted_seconds < 10.0
    grid.released.set()
    (late,) = timed.pull_messages([sent[0].metadata.message_id])
    assert late.metadata.reply_to_message_id == sent[0].metadata.message_id


def test_errors_of_the_grid_reach_who_asked(grid: HangingGrid) -> None:
    class Broken(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            raise ConnectionError("no route")

    with pytest.raises(ConnectionError, match="no route"):
        ReplyThreads(Broken(client_app(), [])).pull(["1"], wait_seconds=10.0)


def test_threads_end_when_nobody_pulls_any_more(grid: HangingGrid) -> None:
    def at_work() -> int:
        return sum(thread.name == "fedmuster-pull" for thread in threading.enumerate())

    before = at_work()
    pulling = ReplyThreads(grid)
    ids = [message.metadata.message_id for message in push(grid)]
    assert len(list(pulling.pull(ids, wait_seconds=10.0))) == 3
    assert at_work() > before
    pulling.close()
    until = time.monotonic() + 10.0
    while at_work() > before:
        assert time.monotonic() < until
        time.sleep(0.01)

"""Clients that are late stay busy until their answer comes, or will not come."""

from flwr.app import Context, Message, MessageType, RecordDict

from fedmuster.flower.in_process import InProcessGrid, Node
from fedmuster.flower.node_messages import InFlight


class HandClock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def reply(message: Message, context: Context) -> Message:
    return Message(RecordDict(), reply_to=message)


def test_a_late_answer_is_recognised_and_frees_its_client() -> None:
    grid = InProcessGrid(reply, [Node(5)])
    message = Message(RecordDict(), 5, MessageType.TRAIN)
    grid.push_messages([message])
    flight = InFlight(forget_seconds=100.0)
    flight.add(message.metadata.message_id, client=2, node_id=5, round_=7)
    assert flight.busy == {2}
    ((errand, answered),) = flight.collect(grid)
    assert (errand.client, errand.round, answered) == (2, 7, True)
    assert not flight.busy
    assert flight.collect(grid) == []


def test_an_answer_that_will_not_come_is_given_up() -> None:
    clock = HandClock()
    flight = InFlight(forget_seconds=100.0, clock=clock)
    flight.add("old", client=0, node_id=10, round_=1)
    flight.add("restarted", client=1, node_id=11, round_=1)
    flight.add("offline", client=2, node_id=12, round_=1)
    clock.now = 90.0
    flight.add("new", client=3, node_id=13, round_=2)
    clock.now = 101.0
    lost = flight.forget({0: 10, 1: 99, 3: 13})
    assert {errand.client for errand in lost} == {0, 1, 2}
    assert flight.busy == {3}
    assert "new" in flight
    assert len(flight) == 1

"""The grid as others see it: a strategy that may offer work to a few nodes, a loop that is timed.

Flower's strategies choose nodes by asking the grid who is there, and its loop sends and waits
through the grid. So whom a strategy sees is whom it can choose, and who stands between loop and
grid can look at the clock: neither needs to be changed.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fedmuster.adapters.flower.pulling import pulling_from
from fedmuster.core.errors import ConfigError

_LOOK_SECONDS = 2.0


class ThroughGrid(Grid):
    """A grid that hands everything on to another."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Run) -> None:
        """See Flower's ``Grid``, as for all that follow."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run that the grid works for."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A message to one node."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are there."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The same, with what is known of each."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that have come."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send, and wait for the replies."""
        return self._grid.send_and_receive(messages, timeout=timeout)


class OnlyThese(ThroughGrid):
    """A grid that has these nodes, and will never have others.

    Flower's strategies wait without end until enough nodes are there. Whoever asks again and again
    waits in vain, and is told so by an error.

    Args:
        grid: the real one.
        node_ids: of whom a strategy may know.
        patience_seconds: how long it may ask.
    """

    def __init__(
        self, grid: Grid, node_ids: Collection[int], *, patience_seconds: float = 30.0
    ) -> None:
        super().__init__(grid)
        self._node_ids = list(node_ids)
        self._patience_seconds = patience_seconds
        self._until = time.monotonic() + patience_seconds

    def get_node_ids(self) -> Iterable[int]:
        """These."""
        if time.monotonic() > self._until:
            raise ConfigError(
                f"the strategy waits for more nodes than the {len(self._node_ids)} it was given, "
                f"for {self._patience_seconds:g} s now: write min_train_nodes=1, "
                "min_evaluate_nodes=1, min_available_nodes=1 (or what your strategy calls them)"
            )
        return list(self._node_ids)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The same, with what is known of each."""
        wanted = set(self.get_node_ids())
        return [node for node in self._grid.get_nodes() if node.node_id in wanted]


@dataclass(kw_only=True, slots=True)
class Posting:
    """The messages of one round, from the moment they are sent.

    Args:
        messages: one for each client that is asked.
        clients: whom each of them is for.
        counts: how many good answers close the round (k of n); None for all.
        first: the messages whose answers count for that; None for all of them.
        deadline_seconds: when the round closes at the latest; None for the loop's own timeout.
        arrived: seconds from sending to answer, by the message's id; the server's monotonic clock.
        lasted_seconds: how long the round was open.
    """

    messages: Sequence[Message]
    clients: Sequence[int]
    counts: int | None = None
    first: Collection[int] | None = None
    deadline_seconds: float | None = None
    arrived: dict[str, float] = field(default_factory=dict)
    lasted_seconds: float = 0.0

    @property
    def client_of(self) -> Mapping[str, int]:
        """Who was asked, by the message's id, which it has once it was sent."""
        ids = (message.metadata.message_id for message in self.messages)
        return dict(zip(ids, self.clients, strict=True))

    def full(self, good: Collection[str]) -> bool:
        """Whether these answers are enough."""
        if self.counts is None:
            return False
        if self.first is None:
            return len(good) >= self.counts
        client_of = self.client_of
        return sum(client_of[answer] in self.first for answer in good) >= self.counts


class TimedGrid(ThroughGrid):
    """A grid that notes when each answer comes, and closes a round when enough have.

    Args:
        grid: the real one.
        poll_seconds: how often to look for answers. Flower looks every 3 s.
        clock: seconds, which never go back.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        poll_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(grid)
        self._pulling = pulling_from(grid)
        self._poll_seconds = poll_seconds
        self._clock = clock
        self.expected: Posting | None = None
        """The round whose messages come next."""

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that have come, without waiting long for one that is still coming."""
        return self._pulling.pull(list(message_ids), wait_seconds=_LOOK_SECONDS)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send, and wait: for all, for enough of them, or until it is too late."""
        sent = list(messages)
        posting = self.expected
        if posting is None or not sent or sent[0] is not posting.messages[0]:
            posting = Posting(messages=sent, clients=range(len(sent)))  # an evaluation, or others'
        limits = [s for s in (timeout, posting.deadline_seconds) if s is not None]
        begun = self._clock()
        deadline = begun + min(limits, default=math.inf)
        # What could not be sent (its node has just gone) is missing from the ids, or None.
        missing = {message_id for message_id in self._grid.push_messages(sent) if message_id}
        good: set[str] = set()
        replies: list[Message] = []
        while missing and not posting.full(good):
            next_look = min(self._clock() + self._poll_seconds, deadline)
            wait = max(next_look - self._clock(), 0.0)
            for reply in self._pulling.pull(missing, wait_seconds=wait):
                answered = reply.metadata.reply_to_message_id
                posting.arrived.setdefault(answered, self._clock() - begun)
                missing.discard(answered)
                if not reply.has_error():
                    good.add(answered)
                replies.append(reply)
            if self._clock() >= deadline:
                break
            if missing and not posting.full(good):
                time.sleep(max(next_look - self._clock(), 0.0))
        posting.lasted_seconds = self._clock() - begun
        return replies

"""The grid as others see it: a strategy that may offer work to a few nodes, a loop that is timed.

Flower's strategies choose nodes by asking the grid who is there, and its loop sends and waits
through the grid. So whom a strategy sees is whom it can choose, and who stands between loop and
grid can look at the clock: neither needs to be changed.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fedmuster.adapters.flower.grids.pulling import pulling_from
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
        self._first_asked: float | None = None

    def get_node_ids(self) -> Iterable[int]:
        """These."""
        now = time.monotonic()
        self._first_asked = now if self._first_asked is None else self._first_asked
        if now - self._first_asked > self._patience_seconds:
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
    """The messages of one round.

    Args:
        messages: one for each client that is asked.
        clients: whom each of them is for.
        counts: how many usable answers close the round (k of n); None for all.
        preferred: the clients whose answers count for that; None for all of them.
        usable: whether an answer to a client's message is one.
        client_of: who was asked, by the message's id, once it was sent.
        arrived: seconds from sending to answer, by the message's id; the server's monotonic clock.
        sent_at: when each was sent, by the same clock.
        lasted_seconds: how long the round was open.
    """

    messages: Sequence[Message]
    clients: Sequence[int]
    counts: int | None = None
    preferred: Collection[int] | None = None
    usable: Callable[[int, Message], bool] = lambda client, reply: not reply.has_error()
    client_of: dict[str, int] = field(default_factory=dict)
    arrived: dict[str, float] = field(default_factory=dict)
    sent_at: dict[str, float] = field(default_factory=dict)
    lasted_seconds: float = 0.0
    _filling: int = 0

    @property
    def full(self) -> bool:
        """Whether enough has come."""
        return self.counts is not None and self._filling >= self.counts

    @property
    def silent(self) -> Sequence[Message]:
        """The messages that were sent and nobody has answered."""
        waiting = self.client_of.keys() - self.arrived.keys()
        return [m for m in self.messages if m.metadata.message_id in waiting]

    @property
    def unsent(self) -> Sequence[int]:
        """The clients to whom nothing could be sent."""
        return [
            client
            for message, client in zip(self.messages, self.clients, strict=True)
            if message.metadata.message_id not in self.client_of
        ]

    def sent(self, message_ids: Collection[str], now: float) -> None:
        """These of them are on their way; one whose node has just gone has an id, but is not.

        A loop of the user's own may send them in several parts.
        """
        ids = (message.metadata.message_id for message in self.messages)
        pairs = zip(ids, self.clients, strict=True)
        self.client_of |= {id_: client for id_, client in pairs if id_ in message_ids}
        self.sent_at |= dict.fromkeys(message_ids, now)

    def waited(self, now: float) -> None:
        """Note how long the round is open by now."""
        self.lasted_seconds = now - min(self.sent_at.values(), default=now)

    def came(self, reply: Message, now: float) -> None:
        """Note a reply, if it is one to these messages."""
        asked = reply.metadata.reply_to_message_id
        if asked not in self.client_of or asked in self.arrived:
            return
        self.arrived[asked] = now - self.sent_at[asked]
        self.waited(now)
        if self.counts is None:
            return
        client = self.client_of[asked]
        wanted = self.preferred is None or client in self.preferred
        self._filling += wanted and self.usable(client, reply)


class TimedGrid(ThroughGrid):
    """A grid that notes when each answer comes, and closes a round when enough have.

    Args:
        grid: the real one.
        poll_seconds: how often to look for answers. Flower looks every 3 s.
        deadline_seconds: how long to wait for any of them at most; None for as long as asked.
        silent: told of messages outside rounds (evaluations, questions) that were not answered.
        clock: seconds, which never go back.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        poll_seconds: float,
        deadline_seconds: float | None = None,
        silent: Callable[[Sequence[Message]], None] = lambda messages: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(grid)
        self._pulling = pulling_from(grid)
        self._poll_seconds = poll_seconds
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self.silent = silent
        self.expected: Posting | None = None
        """The round that is open."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send. What could not be sent (its node has just gone) has "" for an id, or None."""
        sent = list(messages)
        now = self._clock()
        ids = list(self._grid.push_messages(sent))
        if self._is_round(sent) and self.expected is not None:
            self.expected.sent({message_id for message_id in ids if message_id}, now)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that have come, without waiting long for one that is still coming."""
        return self._pull(list(message_ids), wait_seconds=_LOOK_SECONDS)

    def close(self) -> None:
        """Let go of threads that wait for replies."""
        self._pulling.close()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send, and wait: for all, for enough of them, or until it is too late."""
        sent = list(messages)
        posting = self.expected if self._is_round(sent) else None
        limits = [s for s in (timeout, self._deadline_seconds) if s is not None]
        deadline = self._clock() + min(limits, default=math.inf)
        missing = {message_id for message_id in self.push_messages(sent) if message_id}
        replies: list[Message] = []
        while missing and not (posting is not None and posting.full):
            next_look = min(self._clock() + self._poll_seconds, deadline)
            wait = max(next_look - self._clock(), 0.0)
            came = self._pull(missing, wait_seconds=wait)
            missing.difference_update(reply.metadata.reply_to_message_id for reply in came)
            replies += came
            if self._clock() >= deadline:
                break
            if missing and not (posting is not None and posting.full):
                time.sleep(max(next_look - self._clock(), 0.0))
        if posting is not None:
            posting.waited(self._clock())
        elif missing:
            self.silent([m for m in sent if m.metadata.message_id in missing])
        return replies

    def _is_round(self, sent: Sequence[Message]) -> bool:
        """Whether these are the messages of the open round, in whatever order."""
        if self.expected is None or not sent:
            return False
        return any(sent[0] is message for message in self.expected.messages)

    def _pull(self, message_ids: Collection[str], *, wait_seconds: float) -> list[Message]:
        replies = list(self._pulling.pull(message_ids, wait_seconds=wait_seconds))
        if self.expected is not None:
            for reply in replies:
                self.expected.came(reply, self._clock())
        return replies

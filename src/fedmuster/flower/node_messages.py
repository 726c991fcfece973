"""Open messages to nodes: the question which client a node is, and unanswered work."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from flwr.app import Message, MessageType
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from fedmuster.core.errors import DataError
from fedmuster.flower.strategy_loop import warn
from fedmuster.flower.wire import Facts, question

_CRASHES: Final = 3
"""After this many crashes of its ClientApp a node is not asked again."""
_KINDS: Final = (MessageType.TRAIN, MessageType.EVALUATE, MessageType.QUERY)
"""Flower finds the function of an app before its mods: one without a plain training function (all
of ``@app.train("special")``) can be asked under another kind."""
_NO_FUNCTION: Final = re.compile(r"No \w+ function registered")
_LOST: Final = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
)
_LASTS_SECONDS: Final = 3600.0
"""A question that a killed SuperNode took with it comes back as lost after that time; not sooner,
for clients whose clocks are wrong must be able to answer."""


class Questions:
    """Asks every node once which client it is, and again after the node was away.

    ``heard`` has the answers by node id; None for an app without fedmuster's mod.
    """

    def __init__(self) -> None:
        self.heard: dict[int, Facts | None] = {}
        self._keys: dict[int, bytes] = {}
        self._pending: dict[str, int] = {}
        self._crashes: Counter[int] = Counter()
        self._kinds: Counter[int] = Counter()

    @property
    def unanswered(self) -> frozenset[int]:
        """Nodes that were asked and have not answered: busy, or hung."""
        return frozenset(self._pending.values())

    def ask(self, grid: Grid, online: Mapping[int, NodeInfo]) -> set[int]:
        """Ask the nodes that are online and were not asked yet; returns these nodes."""
        self._forget(online)
        asked = self.heard.keys() | self._pending.values()
        messages = [
            question(node, kind=_KINDS[self._kinds[node]], ttl=_LASTS_SECONDS)
            for node in online
            if node not in asked
        ]
        if not messages:
            return set()
        sent = set(grid.push_messages(messages))
        metadata = [m.metadata for m in messages if m.metadata.message_id in sent]
        self._pending |= {data.message_id: data.dst_node_id for data in metadata}
        whom = {data.dst_node_id for data in metadata}
        self._keys |= {node: online[node].public_key for node in whom}
        return whom

    def _forget(self, online: Mapping[int, NodeInfo]) -> None:
        """A node that was away may come back as another client, or with other facts."""
        away = {
            node
            for node, key in self._keys.items()
            if node not in online or online[node].public_key != key
        }
        for node in away:
            del self._keys[node]
            self.heard.pop(node, None)
        if away:
            self._pending = {id_: node for id_, node in self._pending.items() if node not in away}

    def collect(self, grid: Grid) -> None:
        """Read the answers that have come."""
        if not self._pending:
            return
        for reply in grid.pull_messages(list(self._pending)):
            # An error of the SuperLink carries its own id: only this names the node.
            node = self._pending.pop(reply.metadata.reply_to_message_id, None)
            if node is not None:
                self._hear(node, reply)

    def _hear(self, node: int, reply: Message) -> None:
        facts = None
        if reply.has_error():
            crashed = reply.error.code == ErrorCode.CLIENT_APP_CRASHED
            self._crashes[node] += crashed
            if reply.error.code in _LOST or (crashed and self._crashes[node] < _CRASHES):
                return  # it will be asked again
            if (
                _NO_FUNCTION.search(reply.error.reason or "")
                and self._kinds[node] < len(_KINDS) - 1
            ):
                self._kinds[node] += 1
                return  # in another way
        else:
            try:
                facts = Facts.of(reply.content)
            except DataError as error:
                warn(f"node {node} does not say properly who it is: {error}")
        self.heard[node] = facts


class Unanswered(NamedTuple):
    """A message without a reply; ``what`` it asked for: a training, an evaluation."""

    client: int
    node_id: int
    round: int
    since: float
    what: str


class InFlight:
    """Messages of earlier rounds that are still unanswered.

    A node handles one message at a time, so a client that is asked again while it is late queues
    behind itself. It is not asked again until its late reply, which is not used, has come.

    Args:
        forget_seconds: after which a message counts as lost, and its client as free.
        clock: monotonic seconds.
    """

    def __init__(
        self, *, forget_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._forget_seconds = forget_seconds
        self._clock = clock
        self._messages: dict[str, Unanswered] = {}

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._messages

    def __len__(self) -> int:
        return len(self._messages)

    def add(
        self, message_id: str, *, client: int, node_id: int, round_: int, what: str = "train"
    ) -> None:
        """A round was closed without an answer to this message."""
        self._messages[message_id] = Unanswered(client, node_id, round_, self._clock(), what)

    def forget_from(self, client: int) -> None:
        """Give up the messages of clients from this index on: they were never on record."""
        self._messages = {id_: each for id_, each in self._messages.items() if each.client < client}

    def collect(self, grid: Grid) -> list[tuple[Unanswered, bool]]:
        """Late replies since the last call, each with whether it is an answer and no error."""
        if not self._messages:
            return []
        came = []
        for reply in grid.pull_messages(list(self._messages)):
            message = self._messages.pop(reply.metadata.reply_to_message_id, None)
            if message is not None:
                came.append((message, not reply.has_error()))
        return came

    def forget(self, node_of: Mapping[int, int]) -> list[Unanswered]:
        """Give up messages that are too old, or whose client is at another node by now."""
        now = self._clock()
        lost = {
            message_id: message
            for message_id, message in self._messages.items()
            if now - message.since > self._forget_seconds
            or node_of.get(message.client, message.node_id) != message.node_id
        }
        for message_id in lost:
            del self._messages[message_id]
        return list(lost.values())

    @property
    def busy(self) -> Iterable[int]:
        """Clients with an unanswered message."""
        return {message.client for message in self._messages.values()}

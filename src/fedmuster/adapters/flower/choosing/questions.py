"""Asking nodes who they are: each once, until it has answered, and again when it has been away."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from flwr.app import Message, MessageType
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from fedmuster.adapters.flower.log import warn
from fedmuster.adapters.flower.wire import Facts, question
from fedmuster.core.errors import DataError

_CRASHES: Final = 3
"""So many crashes of its ClientApp, and a node is not asked again."""
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
    """What is known of the nodes that this process has met.

    ``heard`` has the answers by node id; an app that cannot tell (None) has no mod of ours.
    """

    def __init__(self) -> None:
        self.heard: dict[int, Facts | None] = {}
        self._keys: dict[int, bytes] = {}
        self._pending: dict[str, int] = {}
        self._crashes: Counter[int] = Counter()
        self._kinds: Counter[int] = Counter()

    @property
    def unanswered(self) -> frozenset[int]:
        """The nodes that were asked and are silent: busy, or hung."""
        return frozenset(self._pending.values())

    def ask(self, grid: Grid, online: Mapping[int, NodeInfo]) -> set[int]:
        """Ask those who are online and were not asked yet; whom."""
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
        """Who was away may come back as somebody else, or with other facts."""
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
        """Hear what has come."""
        if not self._pending:
            return
        for reply in grid.pull_messages(list(self._pending)):
            # Errors of the SuperLink come in its own name: only this says whom they are about.
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

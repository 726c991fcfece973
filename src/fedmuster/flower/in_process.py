"""A federation in one process: for rehearsals, tests and benchmarks."""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from flwr.app import Context, Error, Message, Metadata, RecordDict, UserConfig
from flwr.app.message import make_message
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.constant import SYSTEM_MESSAGE_TYPE
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

ClientCall = Callable[[Message, Context], Message]

_NEVER = float("inf")


@dataclass(slots=True)
class Node:
    """A SuperNode that lives in this process.

    Args:
        node_id: what the grid calls it.
        config: its ``node_config``, as after ``flower-supernode --node-config``.
        public_key: as registered with the SuperLink; empty where nodes are not authenticated.
        delay_seconds: between the end of the app's call and the moment its reply can be pulled.
        silent: takes messages and never answers.
    """

    node_id: int
    config: UserConfig = field(default_factory=dict)
    public_key: bytes = b""
    delay_seconds: float = 0.0
    silent: bool = False


class InProcessGrid(Grid):
    """Runs the ClientApp of every node in the caller's thread, and answers as a SuperLink would.

    As in a deployment a node handles one message at a time (the delays of its replies add up),
    messages and replies are copied on their way, a ClientApp that raises gives error 2 and loses
    its state, a node that is gone gives error 5 in the SuperLink's name, a reply can be pulled
    once, and an unknown message gives error 3.

    Args:
        app: the ClientApp, or any function that answers a message.
        nodes: the nodes at the start.
        run_config: ``context.run_config`` of every node.
        poll_seconds: pause between two looks for replies in ``send_and_receive``.
    """

    def __init__(
        self,
        app: ClientCall,
        nodes: Sequence[Node],
        *,
        run_config: Mapping[str, bool | int | float | str] | None = None,
        poll_seconds: float = 0.001,
    ) -> None:
        self._app = app
        self._run_config = dict(run_config or {})
        self._poll_seconds = poll_seconds
        self._nodes: dict[int, Node] = {}
        self._states: dict[int, RecordDict] = {}
        self._free_at: dict[int, float] = {}
        self._asked: dict[str, Metadata] = {}
        self._replies: dict[str, tuple[float, Message]] = {}
        self._run = Run.create_empty(run_id=1)
        for node in nodes:
            self.add(node)
        _identify(self._run.run_id)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes that are online; a node's delay and silence may be changed at any time."""
        return tuple(self._nodes.values())

    def add(self, node: Node) -> None:
        """Bring a node online; one that was there before finds its state again."""
        self._nodes[node.node_id] = node
        self._states.setdefault(node.node_id, RecordDict())

    def remove(self, node_id: int) -> Node:
        """Take a node offline; messages that it has not answered become error replies."""
        return self._nodes.pop(node_id)

    def set_run(self, run: Run) -> None:
        """Set the run that messages belong to."""
        self._run = run
        _identify(run.run_id)

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A message to ``dst_node_id``."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Ids of the nodes that are online."""
        return list(self._nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The nodes that are online, as a SuperLink describes them."""
        return [
            NodeInfo(node_id=node.node_id, status="online", public_key=node.public_key)
            for node in self._nodes.values()
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver the messages; the id of one to a node that is not there is empty."""
        return [self._deliver(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that have arrived, each once."""
        found = (self._collect(message_id) for message_id in set(message_ids))
        return [reply for reply in found if reply is not None]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Push, then pull until every node has answered or ``timeout`` seconds have passed."""
        waiting = set(self.push_messages(messages))
        end = _NEVER if timeout is None else time.monotonic() + timeout
        replies: list[Message] = []
        while waiting and time.monotonic() < end:
            arrived = list(self.pull_messages(waiting))
            replies += arrived
            waiting -= {reply.metadata.reply_to_message_id for reply in arrived}
            if waiting:
                time.sleep(self._poll_seconds)
        return replies

    def _deliver(self, message: Message) -> str:
        metadata = message.metadata
        metadata.__dict__["_message_id"] = message_id = str(uuid.uuid4())  # also if it is not sent
        node = self._nodes.get(metadata.dst_node_id)
        if node is None:
            return ""
        self._asked[message_id] = metadata
        if not node.silent:
            self._answered(node, _copied(message), message_id)
        return message_id

    def _answered(self, node: Node, message: Message, message_id: str) -> None:
        """Let the node work on a message, and keep its reply until it is due."""
        reply = self._answer(node, message)
        free_at = max(time.monotonic(), self._free_at.get(node.node_id, 0.0))
        self._free_at[node.node_id] = due = free_at + node.delay_seconds
        self._replies[message_id] = (due, reply)

    def _answer(self, node: Node, message: Message) -> Message:
        context = Context(
            run_id=message.metadata.run_id,
            node_id=node.node_id,
            node_config=dict(node.config),
            state=_copied_records(self._states[node.node_id]),
            run_config=dict(self._run_config),
        )
        try:
            reply = _copied(self._app(message, context))
        except Exception as problem:  # whatever an app raises is an answer too, as in Flower
            reason = f"{type(problem)}:<'{problem}'>"
            error = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=reason)
            reply = Message(error, reply_to=message)
        else:
            self._states[node.node_id] = context.state
        reply.metadata.__dict__["_message_id"] = str(uuid.uuid4())
        return reply

    def _collect(self, message_id: str) -> Message | None:
        asked = self._asked.get(message_id)
        if asked is None:
            return self._unavailable(message_id, ErrorCode.MESSAGE_UNAVAILABLE, SYSTEM_MESSAGE_TYPE)
        due, reply = self._replies.get(message_id, (_NEVER, None))
        if reply is not None and due <= time.monotonic():
            del self._replies[message_id], self._asked[message_id]
            return reply
        if asked.dst_node_id in self._nodes:
            return None
        self._replies.pop(message_id, None)
        del self._asked[message_id]
        return self._unavailable(message_id, ErrorCode.NODE_UNAVAILABLE, asked.message_type)

    def _unavailable(self, message_id: str, code: int, message_type: str) -> Message:
        """The SuperLink's own error reply: it carries the SuperLink's id, not the node's."""
        metadata = Metadata(
            run_id=self._run.run_id,
            message_id=str(uuid.uuid4()),
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=SUPERLINK_NODE_ID,
            reply_to_message_id=message_id,
            group_id="",
            created_at=time.time(),
            ttl=0.0,
            message_type=message_type,
        )
        return make_message(metadata, error=Error(code=code, reason="unavailable"))


def _identify(run_id: int) -> None:
    """Flower stamps messages with the identity of the process that makes them."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, SUPERLINK_NODE_ID, 0


def _copied(message: Message) -> Message:
    """The message as the other side of a wire sees it: no records are shared."""
    metadata = copy(message.metadata)
    if message.has_error():
        return make_message(metadata, error=message.error)
    return make_message(metadata, content=_copied_records(message.content))


def _copied_records(records: RecordDict) -> RecordDict:
    return RecordDict({key: record.copy() for key, record in records.items()})

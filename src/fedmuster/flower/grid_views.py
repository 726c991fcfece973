"""Views of Flower's grid: one that shows a strategy the cohort alone, and one with a clock.

Flower's strategies choose among the nodes that the grid shows, and its loop sends and waits through
the grid. So a view of the grid decides which nodes a strategy can choose and measures when replies
come; neither strategy nor loop is changed.
"""

import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from queue import SimpleQueue

from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from fedmuster.core.errors import ConfigError
from fedmuster.flower.round_messages import RoundMessages

_THREADS = 16
"""Most threads that fetch replies: each may hang with a reply."""
_LOCAL_GRIDS = ("InMemoryGrid", "InProcessGrid")
"""Grids that run clients in their own process: Flower's simulation, and fedmuster's own."""
_LOCAL_POLL_SECONDS = 0.02
_LOOK_SECONDS = 2.0


def is_local(grid: Grid) -> bool:
    """Whether replies are complete as soon as they are listed, and nodes share a few workers."""
    return any(kind.__name__ in _LOCAL_GRIDS for kind in type(grid).__mro__)


class ReplyThreads:
    """Fetches replies from a SuperLink without hanging on one that is not complete yet.

    A SuperLink lists a reply before all of it has arrived, and Flower's grid then waits for the
    rest: usually a second or two, but three minutes if the node dies while it uploads, and all
    other replies of the same call wait with it. So a thread fetches each reply by itself. A reply
    that is fetched too late is returned by a later :meth:`pull`.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._wanted: SimpleQueue[str | None] = SimpleQueue()
        self._changed = threading.Condition()
        self._asking: set[str] = set()
        self._fetched: dict[str, list[Message]] = {}
        self._failed: list[Exception] = []
        self._threads = 0

    def pull(self, message_ids: Collection[str], *, wait_seconds: float) -> list[Message]:
        """The replies that have come after ``wait_seconds`` at the latest."""
        with self._changed:
            for message_id in message_ids:
                if message_id not in self._asking and message_id not in self._fetched:
                    self._asking.add(message_id)
                    self._wanted.put(message_id)
            for _ in range(self._threads, min(len(self._asking), _THREADS)):
                # A daemon: a reply that hangs must not keep a finished ServerApp from ending.
                threading.Thread(target=self._work, name="fedmuster-pull", daemon=True).start()
                self._threads += 1
            self._changed.wait_for(lambda: self._asking.isdisjoint(message_ids), wait_seconds)
            if self._failed:
                raise self._failed.pop()
            return [reply for each in message_ids for reply in self._fetched.pop(each, ())]

    def close(self) -> None:
        """Let each thread end after its current reply."""
        for _ in range(self._threads):
            self._wanted.put(None)

    def _work(self) -> None:
        while (message_id := self._wanted.get()) is not None:
            found: list[Message] = []
            failed: list[Exception] = []
            try:
                found += self._grid.pull_messages([message_id])
            except Exception as error:  # any error belongs to the thread that asked
                failed.append(error)
            with self._changed:
                self._asking.discard(message_id)
                self._failed += failed
                if found:
                    self._fetched[message_id] = found
                self._changed.notify_all()


class ThroughGrid(Grid):
    """A grid that hands every call on to another grid; see Flower's ``Grid`` for its methods."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Run) -> None:
        """Set the run that messages belong to."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
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
        """Ids of the nodes that are online."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The nodes that are online, with what is known of each."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; their ids."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that have come."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait for their replies."""
        return self._grid.send_and_receive(messages, timeout=timeout)


class OnlyThese(ThroughGrid):
    """A grid that shows certain nodes and never any others.

    Flower's strategies wait without end until enough nodes are there. A strategy that keeps asking
    would wait in vain, and gets an error that says so.

    Args:
        grid: the real one.
        node_ids: the nodes to show.
        patience_seconds: how long a strategy may keep asking.
    """

    def __init__(
        self, grid: Grid, node_ids: Collection[int], *, patience_seconds: float = 30.0
    ) -> None:
        super().__init__(grid)
        self._node_ids = list(node_ids)
        self._patience_seconds = patience_seconds
        self._first_asked: float | None = None

    def get_node_ids(self) -> Iterable[int]:
        """Ids of the shown nodes."""
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
        """The shown nodes, with what is known of each."""
        wanted = set(self.get_node_ids())
        return [node for node in self._grid.get_nodes() if node.node_id in wanted]


class TimedGrid(ThroughGrid):
    """A grid that notes when each reply comes, and closes a round when enough have come.

    Args:
        grid: the real one.
        poll_seconds: how often to look for replies, at most 0.02 s on a local grid. Flower's own
            loop looks every 3 s.
        deadline_seconds: how long to wait for replies at most; None for as long as the loop says.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        poll_seconds: float,
        deadline_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(grid)
        self.is_local = is_local(grid)
        """Whether clients work in this process, on workers that they share."""
        self._threads = None if self.is_local else ReplyThreads(grid)
        self._poll_seconds = min(poll_seconds, _LOCAL_POLL_SECONDS if self.is_local else math.inf)
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._unanswered: list[Message] = []
        self.expected: RoundMessages | None = None
        """The messages of the open round."""

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages. The id of one that could not be sent is "" or None: its node is gone."""
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
        """End the threads that wait for replies."""
        if self._threads is not None:
            self._threads.close()

    def take_unanswered(self) -> list[Message]:
        """Messages outside rounds (evaluations, questions) without a reply since the last call."""
        unanswered, self._unanswered = self._unanswered, []
        return unanswered

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and wait: for all replies, for enough of them, or until the deadline."""
        sent = list(messages)
        expected = self.expected if self._is_round(sent) else None
        limits = [s for s in (timeout, self._deadline_seconds) if s is not None]
        deadline = self._clock() + min(limits, default=math.inf)
        missing = {message_id for message_id in self.push_messages(sent) if message_id}
        replies: list[Message] = []
        while missing and not (expected is not None and expected.full):
            next_look = min(self._clock() + self._poll_seconds, deadline)
            wait = max(next_look - self._clock(), 0.0)
            came = self._pull(missing, wait_seconds=wait)
            missing.difference_update(reply.metadata.reply_to_message_id for reply in came)
            replies += came
            if self._clock() >= deadline:
                break
            if missing and not (expected is not None and expected.full):
                time.sleep(max(next_look - self._clock(), 0.0))
        if expected is not None:
            expected.waited(self._clock())
        else:
            self._unanswered += [m for m in sent if m.metadata.message_id in missing]
        return replies

    def _is_round(self, sent: Sequence[Message]) -> bool:
        """Whether these are messages of the open round, in any order."""
        if self.expected is None or not sent:
            return False
        return any(sent[0] is message for message in self.expected.messages)

    def _pull(self, message_ids: Collection[str], *, wait_seconds: float) -> list[Message]:
        if self._threads is None:
            replies = list(self._grid.pull_messages(message_ids))
        else:
            replies = self._threads.pull(message_ids, wait_seconds=wait_seconds)
        if self.expected is not None:
            for reply in replies:
                self.expected.came(reply, self._clock())
        return replies

"""Who is still busy with a message of an earlier round.

A node handles one message at a time: a client that is asked again while it is late queues behind
itself. So it is left alone until its answer comes, which is too late to be of use.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from flwr.serverapp import Grid


class Errand(NamedTuple):
    """A message that nobody has answered yet, and what it wanted: a training, an evaluation."""

    client: int
    node_id: int
    round: int
    since: float
    what: str


class InFlight:
    """The messages without an answer.

    Args:
        forget_seconds: after which a message counts as lost, and its client as free.
        clock: seconds, which never go back.
    """

    def __init__(
        self, *, forget_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._forget_seconds = forget_seconds
        self._clock = clock
        self._errands: dict[str, Errand] = {}

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._errands

    def __len__(self) -> int:
        return len(self._errands)

    def add(
        self, message_id: str, *, client: int, node_id: int, round_: int, what: str = "train"
    ) -> None:
        """A round was closed without an answer to this message."""
        self._errands[message_id] = Errand(client, node_id, round_, self._clock(), what)

    def forget_from(self, client: int) -> None:
        """Give up the errands of clients from this one on: they were never on record."""
        self._errands = {id_: each for id_, each in self._errands.items() if each.client < client}

    def collect(self, grid: Grid) -> list[tuple[Errand, bool]]:
        """What has come since, too late; True where it is an answer and no error."""
        if not self._errands:
            return []
        came = []
        for reply in grid.pull_messages(list(self._errands)):
            errand = self._errands.pop(reply.metadata.reply_to_message_id, None)
            if errand is not None:
                came.append((errand, not reply.has_error()))
        return came

    def forget(self, node_of: Mapping[int, int]) -> list[Errand]:
        """Give up what will not come: too old, or of a client that is at another node by now."""
        now = self._clock()
        lost = {
            message_id: errand
            for message_id, errand in self._errands.items()
            if now - errand.since > self._forget_seconds
            or node_of.get(errand.client, errand.node_id) != errand.node_id
        }
        for message_id in lost:
            del self._errands[message_id]
        return list(lost.values())

    @property
    def busy(self) -> Iterable[int]:
        """The clients that are at it."""
        return {errand.client for errand in self._errands.values()}

"""What the loop needs to know of a way to ask clients: in rounds, or slot by slot."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.records import Feedback
from fedmuster.core.state import Array
from fedmuster.federation.agenda import Event
from fedmuster.federation.jobs import Decision, Job
from fedmuster.federation.work import Work


class Out(NamedTuple):
    """Clients that the server still waits for after the end of their round.

    Args:
        clients: int64[n].
        until_seconds: [n], when the wait for each ends.
    """

    clients: IntArray
    until_seconds: FloatArray

    def after(self, now_seconds: float) -> "Out":
        """Those for whom the server waits longer than this."""
        longer = self.until_seconds > now_seconds
        return Out(self.clients[longer], self.until_seconds[longer])

    def beside(self, others: "Out") -> "Out":
        """These and others."""
        return Out(*(np.concatenate(columns) for columns in zip(self, others, strict=True)))


NOBODY_OUT = Out(np.empty(0, dtype=np.int64), np.empty(0))


class Asking(Protocol):
    """When clients are asked, when the server aggregates, and how old answers are.

    :class:`~fedmuster.federation.rounds.Rounds` asks whole cohorts,
    :class:`~fedmuster.federation.slots.Slots` fills free slots.
    """

    @property
    def only_edge(self) -> int | None:
        """The edge server that aggregates next; None where all aggregate at the same time."""

    @property
    def cohort(self) -> Decision | None:
        """The cohort of the round that is open; None without rounds."""

    @property
    def out(self) -> Out:
        """The clients that still work for an earlier round; nobody without rounds."""

    def ask(self) -> None:
        """Ask clients, if it is time, and put what they will do on the agenda."""

    def handle(self, event: Event) -> list[Job]:
        """Process an event; return the jobs that have ended."""

    def due(self) -> float:
        """When the next server aggregates, if nothing happens before; infinite for not before.

        Sets :attr:`only_edge` to that server.
        """

    def run_dry(self) -> str | None:
        """Choose the server that aggregates when the agenda is empty.

        Return why the run ends, if it does.
        """

    def feedback_of(self, jobs: Sequence[Job]) -> Feedback | None:
        """What the server hears of these jobs, without what training tells; with late answers to
        earlier rounds, each once."""

    def age(self, job: Job) -> int:
        """How often the job's server has aggregated since the client was asked."""

    def used(self, jobs: Sequence[Job]) -> BoolArray:
        """bool[n], whose answers may enter the model."""

    def columns(
        self, jobs: Sequence[Job], used: BoolArray, heard: Feedback | None
    ) -> dict[str, Any]:
        """What the journal's row says, before :meth:`aggregated`."""

    def hold_late(self, work: Work, *, round_number: int) -> None:
        """Let clients that miss the end of their round go on, where there are rounds."""

    def aggregated(self, jobs: Sequence[Job]) -> None:
        """The server has aggregated the answers of these jobs."""

    def arrays(self) -> dict[str, Array]:
        """What a checkpoint keeps; empty where nothing is open after an aggregation."""

    def load(self, arrays: dict[str, Array], *, lost: bool) -> None:
        """Continue from :meth:`arrays`; ``lost`` gives up all open jobs."""

"""A job without rounds while its server lives: clients are asked one by one, and by tickets."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmuster.core.errors import CallOrderError
from fedmuster.core.records import BoolArray, Feedback, Selection
from fedmuster.federation import JobRows, RoundRow
from fedmuster.nvflare.federation import Answer, Federation, Reply, log
from fedmuster.nvflare.replies import parameters_fault
from fedmuster.nvflare.run_record import Record
from fedmuster.nvflare.settings import Settings
from fedmuster.training.trainer import LearningRow


@dataclass(kw_only=True, slots=True, eq=False)
class OpenJob:
    """The work of one client.

    Args:
        name, client: whose it is.
        ticket: the selector's.
        decision: the number of the decision that asked for it.
        version: how often the server had aggregated then.
        sent: the model that it trains from.
        began: when the work was there to be taken.
        taken: when the client took it; None before.
    """

    name: str
    client: int
    ticket: int
    decision: int
    version: int
    sent: Mapping[str, Any]
    began: float
    taken: float | None = None


@dataclass(kw_only=True, slots=True, eq=False)
class EndedJob:
    """A job that is over: answered, refused or lost.

    Args:
        job: which.
        at: when.
        reply: what came; None if nothing did.
        fault: why the reply is no use.
        told: what a policy may learn from it.
    """

    job: OpenJob
    at: float
    reply: Reply | None = None
    fault: str | None = None
    told: Answer | None = None

    @property
    def usable(self) -> bool:
        """Whether its reply may enter the model."""
        return self.reply is not None and self.fault is None


class JobFederation(Federation):
    """The clients, the selector and the record of a job without rounds.

    Only the thread that runs the workflow calls it.
    """

    def __init__(self, settings: Settings, record: Record) -> None:
        super().__init__(settings, record)
        self.jobs: dict[int, OpenJob] = {}
        """The open jobs, by ticket."""
        self.train_loss = np.nan
        """The mean loss of the replies to the last aggregation; NaN without any."""
        self._ended: list[EndedJob] = []  # since the last aggregation
        self._since = time.monotonic()  # the last aggregation, or the start of this server
        self._origin = self._since - self.elapsed_seconds
        self._available = np.zeros(0, dtype=np.bool_)
        if self._selector is not None and len(self._selector.tickets) > 0:
            lost = self._selector.give_up(self._selector.tickets.numbers)
            log.warning("%d jobs were lost with the server that died", len(lost.not_completed))

    def ask(self, available: BoolArray, count: int) -> list[OpenJob]:
        """Let the policy choose up to ``count`` of the available clients; their jobs are open."""
        if self._selector is None:
            raise CallOrderError("ask: no client can be asked")
        selection: Selection = self._selector.select(count=count, available=available)
        assert selection.tickets is not None
        self._available = available
        self.rounds_chosen += 1
        jobs = [
            OpenJob(
                name=self.clients.names[client],
                client=client,
                ticket=ticket,
                decision=self._selector.decisions,
                version=self.rounds_closed,
                sent=self.model,
                began=time.monotonic(),
            )
            for client, ticket in zip(
                selection.clients.tolist(), selection.tickets.tolist(), strict=True
            )
        ]
        self.jobs.update((job.ticket, job) for job in jobs)
        return jobs

    def free(self, present: Sequence[str]) -> BoolArray:
        """bool[K], the clients that can be asked; new ones among ``present`` join."""
        free = super().free(present)
        free[[job.client for job in self.jobs.values()]] = False
        return free

    def ended(self, ended: EndedJob) -> None:
        """Learn from a job that is over; its client can be asked again as soon as it asks."""
        job = ended.job
        if self._selector is None or self.jobs.pop(job.ticket, None) is None:
            log.warning("%s sent a second reply, or too late: it is not used", job.name)
            return
        self._ended.append(ended)
        if ended.usable:
            assert ended.reply is not None
            taken = ended.at if job.taken is None else job.taken
            told = ended.told = self.answer(
                ended.reply, sent=job.sent, began=job.began, taken=taken, now=ended.at
            )
            self._selector.observe(_feedback(job, told, age=self.age(ended)))
            self.clients.took(np.array([job.client]), np.array([told.latency_seconds]))
            return
        self._selector.give_up([job.ticket])
        if ended.fault is not None:
            log.warning("the reply of %s is refused: %s", job.name, ended.fault)
        else:
            self.clients.missing([job.name])
            log.warning("%s has not answered in time", job.name)

    @property
    def buffered(self) -> list[EndedJob]:
        """The usable replies since the last aggregation."""
        return [ended for ended in self._ended if ended.usable]

    def age(self, ended: EndedJob) -> int:
        """How often the server has aggregated since the client was asked."""
        return self.rounds_closed - ended.job.version

    def aggregated(self, used: list[bool]) -> None:
        """Close an aggregation; ``used`` says which of :attr:`buffered` entered the model."""
        ended, self._ended = self._ended, []
        entered = dict(zip([id(e) for e in ended if e.usable], used, strict=True))
        now = time.monotonic()
        told = [e.told.signals for e in ended if e.told is not None]
        losses = [signals["loss"] for signals in told if "loss" in signals]
        self.train_loss = float(np.mean(losses)) if losses else np.nan
        jobs = [e.job for e in ended]
        refused = [e.job.client for e in ended if e.fault is not None]
        self._closed.append(
            RoundRow(
                round=self.rounds_closed + 1,
                seconds=now - self._since,
                num_available=int(np.count_nonzero(self._available)),
                num_completed=sum(e.usable for e in ended),
                num_refused=len(refused),
                clients=np.array([job.client for job in jobs], dtype=np.int64),
                learning=LearningRow(
                    train_loss=self.train_loss,
                    num_aggregated=sum(used),
                    rejected=np.unique(np.array(refused, dtype=np.int64)),
                ),
                jobs=JobRows(
                    client=np.array([job.client for job in jobs], dtype=np.int64),
                    edge=np.zeros(len(jobs), dtype=np.int64),
                    decision=np.array([job.decision for job in jobs], dtype=np.int64),
                    asked_at_seconds=np.array([job.began - self._origin for job in jobs]),
                    ended_at_seconds=np.array([e.at - self._origin for e in ended]),
                    answered=np.array([e.usable for e in ended], dtype=np.bool_),
                    used=np.array([entered.get(id(e), False) for e in ended], dtype=np.bool_),
                    version=np.array([job.version for job in jobs], dtype=np.int64),
                    age=np.array([self.age(e) for e in ended], dtype=np.int64),
                ),
            )
        )
        self.elapsed_seconds = now - self._origin
        self._since = now


def judged(job: OpenJob, reply: Reply) -> EndedJob:
    """A job with its reply, and why it is no use, if it is not."""
    at = time.monotonic()
    fault = reply.fault or parameters_fault(reply.parameters, job.sent)
    return EndedJob(job=job, reply=reply, fault=fault, at=at)


def _feedback(job: OpenJob, told: Answer, *, age: int) -> Feedback:
    signals = {**told.signals, "staleness": float(age)}  # which the server measures itself
    return Feedback(
        tickets=np.array([job.ticket]),
        clients=np.array([job.client]),
        latency_seconds=np.array([told.latency_seconds]),
        signals={name: np.array([value]) for name, value in signals.items()},
        sketches=None if told.sketch is None else told.sketch[None],
    )

"""What clients train, when they train it, and how it enters the model."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.federation.jobs import Decision, Job, gathered
from fedmuster.privacy.budget import Budget
from fedmuster.training.aggregation import finite_rows
from fedmuster.training.combine import l2_norms
from fedmuster.training.servers import Answers, some
from fedmuster.training.trainer import LearningRow, Sent, Trainer
from fedmuster.worlds.adversaries import AdversaryRun


class Held(NamedTuple):
    """Clients of a cohort whose late answers may still count.

    Attributes:
        rows: int64[n], their rows in the cohort.
        signals: [n] by name, what their training measured.
    """

    rows: IntArray
    signals: Mapping[str, FloatArray]


class Work:
    """The training of jobs; a client trains when its answer is due.

    All open jobs on its model train with it, or all open jobs where the engine can do that, because
    an engine is faster with many clients. The bits do not depend on it.

    Args:
        trainer: the models.
        budget: makes noisy what clients send; None without privacy.
        adversaries: the clients that poison their updates; None where all are honest.
    """

    def __init__(
        self, trainer: Trainer, budget: Budget | None, adversaries: AdversaryRun | None = None
    ) -> None:
        self.trainer, self._budget, self._adversaries = trainer, budget, adversaries
        self._untrained: defaultdict[int, list[Job]] = defaultdict(list)  # by the id of the model
        self.rejected: list[Job] = []
        """The jobs since the last aggregation of their server whose updates were not finite."""

    def expect(self, jobs: Iterable[Job]) -> None:
        """These jobs are open: those that will be answered train with others on their models."""
        for job in jobs:
            if job.decision.feedback.answered[job.row]:
                self._untrained[id(job.start)].append(job)

    def forget(self, job: Job) -> None:
        """This job will not be answered after all."""
        others = self._untrained.get(id(job.start), [])
        kept = [each for each in others if each.identity != job.identity]
        if kept:
            self._untrained[id(job.start)] = kept
        else:  # the model may go
            self._untrained.pop(id(job.start), None)

    def send(self, jobs: Sequence[Job], *, deltas: bool = True) -> Sent:
        """Train the jobs that have not trained yet; return what all of them send.

        ``deltas=False`` may leave out the updates themselves, which saves a copy.
        """
        batch = [job for job in jobs if job.decision.sent[job.row] is None]
        due, starts = {job.identity for job in batch}, dict.fromkeys(id(job.start) for job in batch)
        if batch and self.trainer.mixes:
            starts |= dict.fromkeys(self._untrained)
        for start in starts:
            batch += [job for job in self._untrained.pop(start, []) if job.identity not in due]
        if batch or not jobs:
            orders = np.array([j.decision.sample_orders[j.row] for j in batch], dtype=np.int64)
            sent = self.trainer.send(
                np.array([job.client for job in batch], dtype=np.int64),
                [job.start for job in batch],
                np.array([job.decision.version + 1 for job in batch], dtype=np.int64),
                orders=orders,
                release=None if self._budget is None else partial(self._release, batch),
            )
            sent = self._poisoned(sent, orders)
            for place, job in enumerate(batch):
                job.decision.sent[job.row] = sent, place
            if len(due) == len(batch) == len(jobs):
                return self._note_rejected(jobs, sent)
        return self._note_rejected(jobs, gathered(jobs, deltas=deltas))

    def aggregate(
        self,
        jobs: Sequence[Job],
        used: BoolArray,
        ages: IntArray,
        *,
        round_number: int,
        asked: Decision | None,
        now_seconds: float,
        only_edge: int | None,
    ) -> tuple[int, float]:
        """Let answers enter the model of their edge; how many did, and their mean training loss.

        Args:
            jobs: the answers.
            used: bool[n], which of them may enter.
            ages: int64[n], how often the server has aggregated since each client was asked.
            round_number: the number of this aggregation.
            asked: in rounds, the cohort.
            now_seconds: the time.
            only_edge: the one edge that aggregates, where each has its own pace.
        """
        updates = gathered(jobs).updates
        nobody = np.empty(0, dtype=np.int64)
        cohort = None if asked is None else asked.selection
        answers = Answers(
            round=round_number,
            updates=updates,
            starts=[job.start for job in jobs],
            ages=ages,
            used=used,
            asked=nobody if cohort is None else cohort.clients,
            inclusion=self._inclusion(jobs, in_rounds=asked is not None),
        )
        count = self.trainer.aggregate(
            answers,
            sent_to=np.array([job.edge for job in jobs], dtype=np.int64),
            asked_at=nobody if cohort is None else cohort.edge_of_each,
            now_seconds=now_seconds,
            only_edge=only_edge,
        )
        losses = updates.signals.get("loss", np.empty(0))
        return count, float(losses.mean()) if len(losses) > 0 else np.nan

    def _inclusion(self, jobs: Sequence[Job], *, in_rounds: bool) -> FloatArray | None:
        """[n], the probabilities by which the server weights answers; None where it does not.

        Clients that were chosen together estimate the mean over all together. Without rounds the
        answers of several decisions are averaged: each counts by the number of its clients.
        """
        if self.trainer.weighting == "answers":
            return None
        inclusion = np.array([job.inclusion for job in jobs], dtype=np.float64)
        if in_rounds:
            return inclusion
        together = np.array([len(job.decision.selection.clients) for job in jobs])
        return np.asarray(inclusion * len(jobs) / together)

    def hold(
        self,
        decision: Decision,
        *,
        round_number: int,
        judge: Callable[[IntArray, FloatArray], BoolArray] | None = None,
        sketch_size: int = 0,
    ) -> Held:
        """Let clients that miss the end of their round go on, if their answers may still count.

        ``judge`` gets clients and sketches of their updates, and says which clients it trusts; with
        None, all are trusted.
        """
        late, nobody = self.trainer.late, Held(np.empty(0, dtype=np.int64), {})
        if late is None:
            return nobody
        missed = ~decision.feedback.answered & np.isfinite(decision.latency_seconds)
        if decision.grant is not None:
            missed &= decision.grant.releasable
        jobs = [Job(decision, row) for row in np.flatnonzero(missed).tolist()]
        if not jobs:
            return nobody
        sent = self.send(jobs)
        if judge is not None:
            kept = some(sent.updates, sent.usable)
            usable = sent.usable.copy()
            usable[usable] = judge(kept.clients, self.sketches(sent, sketch_size))
            sent = Sent(sent.updates, usable)
        arrives = decision.asked_at_seconds + decision.latency_seconds[missed]
        starts = [job.start for job, fits in zip(jobs, sent.usable.tolist(), strict=True) if fits]
        kept = some(sent.updates, sent.usable)
        vectors = self.trainer.edge_servers[0].held(kept, starts)
        late.add(kept.clients, vectors, arrives[sent.usable], round_=round_number)
        return Held(np.flatnonzero(missed)[sent.usable], kept.signals)

    def learned(
        self,
        round_number: int,
        count: int,
        train_loss: float,
        *,
        last: bool,
        only_edge: int | None = None,
    ) -> LearningRow:
        """What an aggregation did to the model.

        ``last`` if it is evaluated in any case, ``only_edge`` as for :meth:`aggregate`.
        """
        scores = self.trainer.evaluate(round_number, due=last)
        rejected = [job.client for job in self.rejected if only_edge in (None, job.edge)]
        self.rejected = [job for job in self.rejected if only_edge not in (None, job.edge)]
        return LearningRow(
            loss=scores.loss,
            accuracy=scores.accuracy,
            train_loss=train_loss,
            num_aggregated=count,
            rejected=np.array(rejected, dtype=np.int64),
        )

    def sketches(self, sent: Sent, size: int) -> FloatArray:
        """[n, size], a short sketch of each finite update."""
        return self.trainer.sketches(some(sent.updates, sent.usable), size)

    def output_bias(self, sent: Sent) -> FloatArray:
        """[n, C], by how much each finite update changes the biases of the output layer."""
        return self.trainer.output_bias(some(sent.updates, sent.usable))

    def _poisoned(self, sent: Sent, orders: IntArray) -> Sent:
        """What is sent, with the updates of adversaries changed; they ignore privacy's limits."""
        adversaries = self._adversaries
        if adversaries is None or not adversaries.attack.poisons:
            return sent
        updates = sent.updates
        trained = updates.deltas[:, : self.trainer.engine.num_trainable]
        with np.errstate(over="ignore", invalid="ignore"):
            rows = adversaries.poison(trained, updates.clients, orders)
        signals = dict(updates.signals)
        if "update_norm" in signals:
            norms = signals["update_norm"] = signals["update_norm"].copy()
            norms[rows] = l2_norms(trained[rows])
        updates = replace(updates, signals=signals)
        return Sent(updates, finite_rows(updates))

    def _note_rejected(self, jobs: Sequence[Job], sent: Sent) -> Sent:
        self.rejected += [jobs[row] for row in np.flatnonzero(~sent.usable).tolist()]
        return sent

    def _release(
        self, jobs: Sequence[Job], clients: IntArray, deltas: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """What clients send in place of their updates, each by the debit for its own ticket."""
        assert self._budget is not None
        released = np.empty_like(deltas)
        decisions = {id(job.decision): job.decision for job in jobs}
        for key, decision in decisions.items():
            here = np.array([id(job.decision) == key for job in jobs], dtype=np.bool_)
            assert decision.grant is not None
            released[here] = self._budget.release(decision.grant, clients[here], deltas[here])
        return released

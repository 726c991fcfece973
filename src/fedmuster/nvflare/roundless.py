"""FedBuff on FLARE: no rounds, clients always at work, an aggregation every few answers."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

import numpy as np
from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task, TaskCompletionStatus
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fedmuster.core.arrays import FloatArray
from fedmuster.core.config import configured
from fedmuster.core.errors import ConfigError
from fedmuster.core.staleness import STALENESS, AgeAndNovelty, CachedModels, Staleness
from fedmuster.federation.settings import Federation as Roundless
from fedmuster.nvflare.controller import MusterController
from fedmuster.nvflare.federation import Federation, log
from fedmuster.nvflare.job_federation import EndedJob, JobFederation, OpenJob, judged
from fedmuster.nvflare.replies import like, numbers_of, parameters_fault
from fedmuster.nvflare.settings import Settings

_MOST_STEPS: Final = 10
"""A client that claims more than this multiple of the usual steps counts as usual."""


class MusterFedBuff(MusterController):
    """FedBuff without rounds, for clients that FLARE's FedAvg would serve as well.

    ``num_clients`` clients are always at work. A client that is free gets work at once, if the
    policy chooses it. Every ``buffer`` answers the server adds to its model
    ``server_rate × Σ w s(age) Δ / Σ w``: Δ is what a client changed of the model that it was sent,
    w its number of steps, s what an answer of its age is worth (FedBuff, Algorithm 1).
    ``num_rounds`` counts aggregations.

    Arguments as of :class:`MusterController`, where ``deadline_seconds`` is of each client's work,
    and:

    Args:
        buffer: B, the answers to aggregate.
        staleness: the rule and its settings as text, for example ``"polynomial:power=0.5"``.
        server_rate: the server's learning rate.
        task_name: of the training task.

    References:
        J. Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022.
    """

    def __init__(
        self,
        *args: Any,
        buffer: int = 5,
        staleness: str = "polynomial",
        server_rate: float = 1.0,
        task_name: str = "train",
        **kwargs: Any,
    ) -> None:
        self.buffer = buffer
        self.staleness = staleness
        self.server_rate = server_rate
        self.task_name = task_name
        if not 0 < server_rate < math.inf:
            raise ConfigError(f"MusterFedBuff: server_rate is {server_rate!r}, expected > 0")
        super().__init__(*args, **kwargs)
        if not 1 <= buffer <= self.num_clients:
            raise ConfigError(
                f"MusterFedBuff: buffer is {buffer!r}, expected 1 … {self.num_clients}: with "
                "num_clients at work no more answers are sure to come"
            )
        self._opening: dict[str, OpenJob] = {}
        self._events: SimpleQueue[EndedJob] = SimpleQueue()

    def _start(self, settings: Settings, *, rounds: int) -> Federation:
        return JobFederation.start(settings, rounds=rounds)

    def _settings(self, folder: Path) -> Settings:
        roundless = Roundless(
            concurrency=self.num_clients, buffer=self.buffer, staleness=self._worth()
        )
        return replace(super()._settings(folder), roundless=roundless)

    def _worth(self) -> Staleness:
        worth = configured(STALENESS, self.staleness, owner="MusterFedBuff")
        if isinstance(worth, AgeAndNovelty | CachedModels):
            raise ConfigError(
                f"MusterFedBuff: staleness {worth.name!r} weighs updates by more than their age: "
                'choose "polynomial", "constant", "hinge" or "discard"'
            )
        return worth

    def _train(self) -> None:
        federation, worth = self._opened, self._worth()
        assert isinstance(federation, JobFederation)
        model = self.load_model()
        if not model.params:
            raise ConfigError(
                "MusterFedBuff: the persistor has no model to begin with: give it one"
            )
        federation.model = model.params
        last = self.start_round + self.num_rounds
        self.current_round = self.start_round
        self._wait_for_clients(federation)
        while self.current_round < last and not self.is_aborted():
            self._fill_slots(federation, model)
            try:
                federation.ended(self._events.get(timeout=self._task_check_period))
            except Empty:
                if not federation.jobs:
                    self._wait_for_clients(federation)  # which gives the job up in the end
                continue
            buffered = federation.buffered
            if len(buffered) >= self.buffer:
                model = self._aggregate(federation, model, buffered, worth)
                self.current_round += 1
                federation.commit(self._remembered())
                self.save_model(model)
        self.cancel_all_tasks()

    def _fill_slots(self, federation: JobFederation, model: FLModel) -> None:
        open_slots = self.num_clients - len(federation.jobs)
        if open_slots <= 0:
            return
        available = federation.free([client.name for client in self.engine.get_clients()])
        if not available.any():
            return
        for job in federation.ask(available, open_slots):
            self._opening[job.name] = job
            work = FLModel(
                params=dict(model.params),
                start_round=self._rounds_asked[0],
                current_round=self.current_round,
                total_rounds=self._rounds_asked[1],
            )
            self.send_model(
                task_name=self.task_name, data=work, targets=[job.name], callback=_accept
            )

    def _prepare(self, task: Task, targets: list[Client] | list[str] | None) -> None:
        names = [getattr(target, "name", target) for target in targets or ()]
        job = self._opening.pop(names[0], None) if len(names) == 1 else None
        if job is None:
            return  # not the work of a job
        task.timeout = 0 if self.deadline_seconds is None else math.ceil(self.deadline_seconds)
        sent, received = task.after_task_sent_cb, task.result_received_cb

        def take(client_task: ClientTask, fl_ctx: FLContext) -> None:
            if sent is not None:
                sent(client_task=client_task, fl_ctx=fl_ctx)
            job.taken = job.taken or time.monotonic()

        def judge(client_task: ClientTask, fl_ctx: FLContext) -> None:
            ended = judged(job, self._reply(client_task.result))
            if ended.usable and received is not None:
                received(client_task=client_task, fl_ctx=fl_ctx)
            client_task.result = None
            self._events.put(ended)

        def done(task: Task, fl_ctx: FLContext) -> None:
            if task.completion_status != TaskCompletionStatus.OK:  # then no answer comes any more
                self._events.put(EndedJob(job=job, at=time.monotonic()))

        task.after_task_sent_cb, task.result_received_cb = take, judge
        task.task_done_cb = done

    def _aggregate(
        self, federation: JobFederation, model: FLModel, buffered: list[EndedJob], worth: Staleness
    ) -> FLModel:
        """The next model (FedBuff, Algorithm 1), a new object: clients work on the old one."""
        factors = worth.factors(np.array([federation.age(ended) for ended in buffered]))
        federation.aggregated((factors > 0).tolist())
        metrics = {"train_loss": federation.train_loss}
        change = FLModel(
            params_type=ParamsType.DIFF,
            params={
                name: like(model.params[name], self.server_rate * value)
                for name, value in mean_change(buffered, factors).items()
            },
            metrics=metrics if math.isfinite(metrics["train_loss"]) else None,
            current_round=self.current_round,
            meta={"nr_aggregated": len(buffered), "current_round": self.current_round},
        )
        fault = parameters_fault(change.params, model.params)
        if fault is not None:
            log.warning("the mean of the changes is no use: %s; the model stays", fault)
            return model
        fresh = FLModel(params=dict(model.params), meta=dict(model.meta))
        return self._updated(fresh, change)


def mean_change(buffered: Sequence[EndedJob], factors: FloatArray) -> dict[str, FloatArray]:
    """``Σ w s(age) Δ / Σ w`` of each parameter.

    w is a client's number of steps; a client that claims far more than usual counts as usual.
    """
    claimed = np.array([1.0 if e.reply is None else e.reply.steps for e in buffered])
    usual = float(np.median(claimed))
    weights = np.where(claimed > _MOST_STEPS * usual, usual, claimed)
    totals: dict[str, FloatArray] = {}
    shares: dict[str, float] = {}
    for ended, weight, factor in zip(buffered, weights, factors, strict=True):
        assert ended.reply is not None
        for name, value in ended.reply.parameters.items():
            trained, sent = numbers_of(value), numbers_of(ended.job.sent[name])
            assert trained is not None  # such a reply is refused
            change = trained if ended.reply.kind == "DIFF" or sent is None else trained - sent
            totals[name] = totals.get(name, 0.0) + weight * factor * change
            shares[name] = shares.get(name, 0.0) + weight
    return {name: total / shares[name] for name, total in totals.items()}


def _accept(result: FLModel) -> bool:
    """FLARE is told that the reply counts; the workflow's own thread aggregates it."""
    return True

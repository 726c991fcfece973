"""A federation of a few numbers, whose training can be followed by hand."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.records import Feedback, FloatArray, IntArray, Selection
from fedmuster.core.staleness import Staleness
from fedmuster.federation.jobs import Decision, Job
from fedmuster.federation.work import Work
from fedmuster.privacy.budget import Grant
from fedmuster.training.aggregation import Aggregation
from fedmuster.training.trainer import LearningRow, Release, Sent, Trainer, Weighting
from fedmuster.training.training_records import Evaluation, FederatedData, Parameters, Updates

NUM_PARAMETERS = 4
SIZES = np.array([1, 2, 3, 5, 8, 13])
CLIENTS = len(SIZES)
GOALS: NDArray[np.float32] = (
    np.random.default_rng(5).normal(size=(CLIENTS, NUM_PARAMETERS)).astype(np.float32)
)


class ToyEngine:
    """A client goes half of the way to its goal, which wanders a little from round to round."""

    def __init__(
        self, *, num_trainable: int = NUM_PARAMETERS, poisoned: Sequence[int] = ()
    ) -> None:
        self.num_trainable = num_trainable
        self._poisoned = list(poisoned)

    def initial(self) -> Parameters:
        return np.linspace(0, 1, NUM_PARAMETERS, dtype=np.float32)

    def train(
        self, parameters: Parameters, clients: IntArray, round_number: int, order: int | None = None
    ) -> Updates:
        deltas = 0.5 * (GOALS[clients] + np.float32(0.1 * round_number) - parameters)
        deltas[np.isin(clients, self._poisoned)] = np.nan
        return Updates(
            clients=clients, deltas=deltas, signals={"loss": np.square(deltas[:, 0]) + 1.0}
        )

    def losses(
        self, parameters: Parameters, clients: IntArray, *, batch_size: int | None = None
    ) -> FloatArray:
        raise NotImplementedError

    def evaluate(self, parameters: Parameters) -> Evaluation:
        return Evaluation(loss=float(np.square(parameters).sum()), accuracy=np.nan)

    def close(self) -> None:
        pass


def toy_trainer(
    staleness: Staleness,
    *,
    server: Aggregation | None = None,
    min_answers: int = 1,
    engine: ToyEngine | None = None,
    keeps_late: bool = True,
    num_edges: int = 1,
    global_every: int = 1,
    weighting: Weighting = "answers",
) -> Trainer:
    data = FederatedData(
        inputs=np.zeros((int(SIZES.sum()), 1), dtype=np.float32),
        targets=np.zeros(int(SIZES.sum()), dtype=np.float32),
        offsets=np.concatenate([[0], np.cumsum(SIZES)]),
        test_inputs=np.zeros((1, 1), dtype=np.float32),
        test_targets=np.zeros(1, dtype=np.float32),
        num_classes=0,
    )
    return Trainer(
        ToyEngine() if engine is None else engine,
        data,
        server=server,
        min_answers=min_answers,
        staleness=staleness,
        keeps_late=keeps_late,
        num_edges=num_edges,
        global_every=global_every,
        weighting=weighting,
    )


def answers(
    round_number: int,
    asked: Sequence[int],
    answered: Sequence[int],
    *,
    used: Sequence[int] | None = None,
) -> Feedback:
    clients = np.array(asked, dtype=np.int64)
    completed = np.isin(clients, answered)
    return Feedback(
        round=round_number,
        clients=clients,
        latency_seconds=np.where(completed, 1.0, np.inf),
        completed=completed,
        used=None if used is None else np.isin(clients, used),
    )


class Played(NamedTuple):
    """What the clients that answered in time sent, and what the round did to the model."""

    sent: Sent
    row: LearningRow


def play_round(
    trainer: Trainer,
    feedback: Feedback,
    *,
    arrivals: Mapping[int, float] | None = None,
    ends_at_seconds: float = 0.0,
    edges: IntArray | None = None,
    evaluate: bool = False,
    release: Release | None = None,
) -> Played:
    """One round of training, as the simulation plays it.

    Args:
        trainer: its models change.
        feedback: which clients were asked, and which answered before the end of the round.
        arrivals: when each client that answers after the end is done.
        ends_at_seconds: when the round ends.
        edges: the edge server of each client; None where there is only one.
        evaluate: even if the round does not evaluate by itself.
        release: what clients send in place of their updates.
    """
    clients, round_number = feedback.clients, feedback.round
    latency = feedback.latency_seconds.copy()
    for client, seconds in (arrivals or {}).items():
        latency[clients == client] = seconds
    budget: Any = None
    grant = None
    if release is not None:
        budget, everyone = _Releases(release), np.ones(len(clients), dtype=np.bool_)
        grant = Grant(round_number, clients, np.ones(len(clients)), everyone, set(clients.tolist()))
    cohort = Decision(
        number=round_number,
        version=round_number - 1,
        asked_at_seconds=0.0,
        selection=Selection(round=round_number, clients=clients, edges=edges),
        feedback=feedback,
        latency_seconds=latency,
        sample_orders=np.full(len(clients), round_number),
        starts=trainer.starts(clients, edges, round_number),
        grant=grant,
    )
    work = Work(trainer, budget)
    jobs = [Job(cohort, row) for row in np.flatnonzero(feedback.answered).tolist()]
    sent = work.send(jobs)
    usable = [job for job, fits in zip(jobs, sent.usable.tolist(), strict=True) if fits]
    count, train_loss = work.aggregate(
        usable,
        feedback.entered[[job.row for job in usable]],
        np.zeros(len(usable), dtype=np.int64),
        round_number=round_number,
        asked=cohort,
        now_seconds=ends_at_seconds,
        only_edge=None,
    )
    work.hold(cohort, round_number=round_number)
    return Played(sent, work.learned(round_number, count, train_loss, last=evaluate))


class _Releases:
    """A privacy budget that lets every client send."""

    def __init__(self, release: Release) -> None:
        self._release = release

    def release(
        self, grant: Grant, clients: IntArray, updates: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        return self._release(clients, updates)


def still_at_work(trainer: Trainer) -> IntArray:
    """The clients that missed the end of their round and are not done yet."""
    if trainer.late is None:
        return np.empty(0, dtype=np.int64)
    return trainer.late.clients[~trainer.late.arrived]


def at(*edges: int) -> IntArray:
    return np.array(edges, dtype=np.int64)


def edge_models(trainer: Trainer) -> list[Parameters]:
    return [trainer.edge_servers[edge].model for edge in range(len(trainer.edge_servers))]

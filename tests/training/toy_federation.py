"""A federation of a few numbers, whose training can be followed by hand."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.staleness import Staleness
from fedmuster.core.records import Feedback, FloatArray, IntArray, Late
from fedmuster.training.aggregation import Aggregation
from fedmuster.training.trainer import Trainer
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

    def train(self, parameters: Parameters, clients: IntArray, round_number: int) -> Updates:
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
    num_edges: int = 1,
    global_every: int = 1,
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
        num_edges=num_edges,
        global_every=global_every,
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


def late(arrivals: dict[int, float]) -> Late:
    return Late(
        clients=np.array(list(arrivals), dtype=np.int64),
        arrives_at_seconds=np.array(list(arrivals.values()), dtype=np.float64),
    )


def at(*edges: int) -> IntArray:
    return np.array(edges, dtype=np.int64)


def edge_models(trainer: Trainer) -> list[Parameters]:
    return [trainer.edge_servers[edge].model for edge in range(len(trainer.edge_servers))]

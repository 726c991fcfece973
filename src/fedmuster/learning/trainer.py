"""A model that is trained, round by round, by whoever answers."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedmuster.core import state as states
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.records import BoolArray, Feedback, FloatArray, IntArray, Problem
from fedmuster.learning.aggregation import FedAvg, Server, finite_rows
from fedmuster.learning.engine import Engine
from fedmuster.learning.records import Evaluation, FederatedData, Updates
from fedmuster.learning.sketch import sketch

Release = Callable[[IntArray, NDArray[np.float32]], NDArray[np.float32]]
"""(clients, their updates) -> what they send instead, to keep their data private."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningRow:
    """What a round did to the model.

    Args:
        loss: on the test set after the round; NaN where it was not evaluated.
        accuracy: the same; NaN also in a regression.
        train_loss: mean over the clients with usable updates, of their samples as they were
            trained on; NaN where there is none.
        num_aggregated: how many updates entered the model.
        rejected: the clients whose updates were not finite.
    """

    loss: float = np.nan
    accuracy: float = np.nan
    train_loss: float = np.nan
    num_aggregated: int = 0
    rejected: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class Trainer:
    """The global model and its server.

    Args:
        engine: trains clients and evaluates models.
        data: what the clients own.
        server: makes one model of many updates.
        min_answers: with fewer usable updates than this the model stays as it is.
        evaluate_every: rounds between evaluations on the test set.
        seed: of sketches.
    """

    def __init__(
        self,
        engine: Engine,
        data: FederatedData,
        *,
        server: Server | None = None,
        min_answers: int = 1,
        evaluate_every: int = 1,
        seed: int = 0,
    ) -> None:
        self.engine = engine
        self.seed = seed
        self.data = data
        self.server: Server = FedAvg() if server is None else server
        self.min_answers = min_answers
        self.evaluate_every = evaluate_every
        self.parameters = engine.initial()
        self._server_state = self.server.init(len(self.parameters))

    def describe(self, problem: Problem) -> Problem:
        """The problem with the sizes and qualities of the clients' data, unless all are alike."""
        sizes, quality = self.data.sizes, self.data.quality
        if quality is None and np.ptp(sizes) == 0:
            return problem
        return replace(problem, num_samples=sizes, quality=quality)

    def ask_loss(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        """[n], what each client would answer if asked for the loss of the global model."""
        return self.engine.losses(self.parameters, clients, batch_size=batch_size)

    def require_releasable(self) -> None:
        """Complain if a model cannot be trained privately."""
        others = len(self.parameters) - self.engine.num_trainable
        if others:
            raise ConfigError(
                f"the model has {others:,} batch-norm statistics, which are means and variances of "
                "clients' data and make no sense with noise: choose a model without batch "
                "normalisation",
                key=("model",),
            )

    def train(
        self,
        feedback: Feedback,
        *,
        evaluate: bool = False,
        release: Release | None = None,
        sketch_size: int = 0,
    ) -> tuple[Feedback, LearningRow]:
        """One round: who answered trains, the server aggregates.

        Args:
            feedback: who answered, when.
            evaluate: in this round even if it is not due.
            release: what clients send in place of their updates. Then nothing else leaves them:
                no signals, no training loss, and not even whether an update was finite.
            sketch_size: of a short sketch of each update for the policy; 0 for none.

        Returns:
            The feedback with the trainer's signals, in which a client whose update is not finite
            did not complete; and what the round did to the model.
        """
        answered = feedback.answered
        updates = self.engine.train(self.parameters, feedback.clients[answered], feedback.round)
        if release is not None:
            updates = _released(updates, release)
        usable = finite_rows(updates)
        completed = answered.copy()
        completed[answered] = usable
        num_usable = int(np.count_nonzero(usable))
        aggregated = num_usable > 0 and num_usable >= self.min_answers
        kept = _rows(updates, usable)
        if aggregated:
            weights = self.data.sizes[kept.clients].astype(np.float64)
            self.parameters = self.server.apply(
                self._server_state, self.parameters, kept, weights, self.engine.num_trainable
            )
        scores = Evaluation(loss=np.nan, accuracy=np.nan)
        if evaluate or feedback.round % self.evaluate_every == 0:
            scores = self.engine.evaluate(self.parameters)
        row = LearningRow(
            loss=scores.loss,
            accuracy=scores.accuracy,
            train_loss=_mean(kept.signals.get("loss", np.empty(0))),
            num_aggregated=num_usable if aggregated else 0,
            rejected=updates.clients[~usable],
        )
        signals = {name: _spread(values, answered) for name, values in updates.signals.items()}
        sketches = None
        if sketch_size > 0:
            sketches = _spread(sketch(kept.deltas, size=sketch_size, seed=self.seed), completed)
        heard = replace(feedback, completed=completed, signals=signals, sketches=sketches)
        return heard, row

    def close(self) -> None:
        """End what the engine has started."""
        self.engine.close()

    def to_bytes(self) -> bytes:
        """The global model and the server's memory."""
        arrays = {f"server.{k}": a for k, a in states.to_arrays(self._server_state).items()}
        return states.to_bytes({"parameters": self.parameters, **arrays}, {"format": _FORMAT})

    def load(self, image: bytes, *, source: str) -> None:
        """Continue from :meth:`to_bytes`."""
        arrays, meta = states.from_bytes(image, source=source)
        if meta.get("format") != _FORMAT or arrays["parameters"].shape != self.parameters.shape:
            raise StateError(f"{source} holds another model than this training's")
        prefix = "server."
        states.load_arrays(
            self._server_state,
            {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)},
        )
        self.parameters = arrays["parameters"]


_FORMAT = 1


def _rows(updates: Updates, rows: BoolArray) -> Updates:
    if rows.all():
        return updates
    return Updates(
        clients=updates.clients[rows],
        deltas=updates.deltas[rows],
        signals={name: values[rows] for name, values in updates.signals.items()},
    )


def _released(updates: Updates, release: Release) -> Updates:
    """What leaves the clients. Who has nothing finite to send sends noise around nothing."""
    finite = finite_rows(updates)
    deltas = np.where(finite[:, np.newaxis], updates.deltas, np.float32(0.0))
    return replace(updates, deltas=release(updates.clients, deltas), signals={})


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) > 0 else np.nan


def _spread(values: FloatArray, answered: BoolArray) -> FloatArray:
    """The same with a row for each asked client, NaN where none came."""
    spread = np.full((len(answered), *values.shape[1:]), np.nan)
    spread[answered] = values
    return spread

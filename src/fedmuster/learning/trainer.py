"""A model that is trained, round by round, by whoever answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedmuster.core import state as states
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.late_answers import Discard, LateAnswers
from fedmuster.core.records import BoolArray, Feedback, FloatArray, IntArray, Late, Problem
from fedmuster.learning.aggregation import FedAvg, Server, finite_rows
from fedmuster.learning.engine import Engine
from fedmuster.learning.late import NOBODY, Answers, merger_for, some
from fedmuster.learning.records import Evaluation, FederatedData, Updates
from fedmuster.learning.sketch import sketch

Release = Callable[[IntArray, NDArray[np.float32]], NDArray[np.float32]]
"""(clients, their updates) -> what they send instead, to keep their data private."""


_DISCARD = Discard()


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningRow:
    """What a round did to the model.

    Args:
        loss: on the test set after the round; NaN where it was not evaluated.
        accuracy: the same; NaN also in a regression.
        train_loss: mean over the clients with usable updates, of their samples as they were
            trained on; NaN where there is none.
        num_aggregated: how many updates entered the model, late ones of earlier rounds among them.
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
        late_answers: what becomes of answers that come when their round is over.
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
        late_answers: LateAnswers = _DISCARD,
    ) -> None:
        self.engine = engine
        self.seed = seed
        self.data = data
        self.server: Server = FedAvg() if server is None else server
        self.min_answers = min_answers
        self.evaluate_every = evaluate_every
        self.parameters = engine.initial()
        self._merger, self._combining = merger_for(
            late_answers,
            self.server,
            data.sizes,
            self.parameters,
            num_trainable=engine.num_trainable,
            min_answers=min_answers,
        )
        self._server_state = self.server.init(len(self.parameters))

    @property
    def busy(self) -> Late:
        """Whose late answers are still on their way: these clients are not to be asked again."""
        return self._merger.busy

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
        late: Late | None = None,
        ends_at_seconds: float = 0.0,
    ) -> tuple[Feedback, LearningRow]:
        """One round: who answered trains, the server aggregates.

        Args:
            feedback: who answered, when.
            evaluate: in this round even if it is not due.
            release: what clients send in place of their updates. Then nothing else leaves them:
                no signals of the trainer, no training loss, and not even whether an update was
                finite.
            sketch_size: of a short sketch of each update for the policy; 0 for none.
            late: who will answer when the round is over; they train now and are held back.
            ends_at_seconds: when the round ended, on the clock by which late answers arrive.

        Returns:
            The feedback with the trainer's signals beside those that it had, in which a client
            whose update is not finite did not complete; and what the round did to the model.
        """
        answered = feedback.answered
        updates = self._sent(feedback.clients[answered], feedback.round, release)
        usable = finite_rows(updates)
        completed = answered.copy()
        completed[answered] = usable
        kept = some(updates, usable)
        awaited = late if late is not None and self._merger.keeps_late else NOBODY
        held = some(updates, np.zeros(len(usable), dtype=np.bool_))
        if len(awaited.clients) > 0:
            held = self._sent(awaited.clients, feedback.round, release)
        holdable = finite_rows(held)
        merged = self._merger.merge(
            self.parameters,
            Answers(
                round=feedback.round,
                asked=feedback.clients,
                updates=kept,
                used=feedback.entered[completed],
                late=some(held, holdable),
                arrives_at_seconds=awaited.arrives_at_seconds[holdable],
                ends_at_seconds=ends_at_seconds,
            ),
        )
        aggregated = merged.num_answers > 0 and merged.num_answers >= self.min_answers
        if aggregated:
            self.parameters = self._combining.apply(
                self._server_state,
                self.parameters,
                merged.updates,
                merged.weights,
                self.engine.num_trainable,
            )
        scores = Evaluation(loss=np.nan, accuracy=np.nan)
        if evaluate or feedback.round % self.evaluate_every == 0:
            scores = self.engine.evaluate(self.parameters)
        row = LearningRow(
            loss=scores.loss,
            accuracy=scores.accuracy,
            train_loss=_mean(kept.signals.get("loss", np.empty(0))),
            num_aggregated=merged.num_answers if aggregated else 0,
            rejected=np.concatenate([updates.clients[~usable], held.clients[~holdable]]),
        )
        signals = {name: _spread(values, answered) for name, values in updates.signals.items()}
        sketches = None
        if sketch_size > 0:
            sketches = _spread(sketch(kept.deltas, size=sketch_size, seed=self.seed), completed)
        heard = replace(
            feedback,
            completed=completed,
            signals={**feedback.signals, **signals},
            sketches=sketches,
            used=None if feedback.used is None else feedback.used & completed,
        )
        return heard, row

    def close(self) -> None:
        """End what the engine has started."""
        self.engine.close()

    def to_bytes(self) -> bytes:
        """The global model, the server's memory, and what is held of late answers."""
        arrays = {f"server.{k}": a for k, a in states.to_arrays(self._server_state).items()}
        arrays |= {f"late.{k}": a for k, a in self._merger.arrays().items()}
        return states.to_bytes({"parameters": self.parameters, **arrays}, {"format": _FORMAT})

    def load(self, image: bytes, *, source: str) -> None:
        """Continue from :meth:`to_bytes`."""
        arrays, meta = states.from_bytes(image, source=source)
        if meta.get("format") != _FORMAT or arrays["parameters"].shape != self.parameters.shape:
            raise StateError(f"{source} holds another model than this training's")
        late = _under("late.", arrays)
        if late.keys() != self._merger.arrays().keys():
            raise StateError(
                f"{source} was written by a training that does something else with late answers"
            )
        states.load_arrays(self._server_state, _under("server.", arrays))
        self._merger.load(late)
        self.parameters = arrays["parameters"]

    def _sent(self, clients: IntArray, round_number: int, release: Release | None) -> Updates:
        """What these clients send when they have trained."""
        updates = self._merger.train(self.engine, self.parameters, clients, round_number)
        return updates if release is None else _released(updates, release)


_FORMAT = 1


def _under(prefix: str, arrays: Mapping[str, states.Array]) -> dict[str, states.Array]:
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}


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

"""A model that is trained, round by round, by whoever answers."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedmuster.core import state as states
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.policy import Discard, LateAnswers
from fedmuster.core.records import Feedback, Late, Problem
from fedmuster.training.aggregation import FedAvg, Server, finite_rows
from fedmuster.training.combine import sketch
from fedmuster.training.mergers import NOBODY, Answers, some
from fedmuster.training.servers import EdgeServer, EdgeServers, check_edges
from fedmuster.training.training_records import (
    Engine,
    Evaluation,
    FederatedData,
    Parameters,
    Updates,
)

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
        num_aggregated: how many updates entered a model, at all edges together, late ones of
            earlier rounds among them.
        rejected: the clients whose updates were not finite.
    """

    loss: float = np.nan
    accuracy: float = np.nan
    train_loss: float = np.nan
    num_aggregated: int = 0
    rejected: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class Trainer:
    """Federated training, in general hierarchical: M edge servers, each with a model of its own.

    Every round each client trains from the model of its edge, and each edge aggregates what its
    own clients sent (COCS III-A, Eq. 2, 3, 6). After rounds T_ES, 2 T_ES, … the mean of the edge
    models becomes the model of every edge (step iv). Flat FL is one edge, whose model is the mean
    of all.

    Args:
        engine: trains clients and evaluates models.
        data: what the clients own.
        server: makes one model of many updates, at each edge with a memory of its own, which a
            global aggregation leaves alone.
        min_answers: an edge with fewer usable updates than this keeps its model.
        evaluate_every: rounds between evaluations on the test set.
        seed: of sketches.
        late_answers: what becomes of answers that come when their round is over. With several
            edges they must be discarded: until an answer comes, its client may be elsewhere.
        num_edges: M.
        global_every: T_ES, rounds between global aggregations; with one edge it does nothing.
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
        num_edges: int = 1,
        global_every: int = 1,
    ) -> None:
        check_edges(num_edges, global_every, late_answers)
        self.engine = engine
        self.seed = seed
        self.data = data
        self.server: Server = FedAvg() if server is None else server
        self.evaluate_every = evaluate_every
        initial = engine.initial()
        sites = [
            EdgeServer(
                initial,
                server=self.server,
                late_answers=late_answers,
                sizes=data.sizes,
                num_trainable=engine.num_trainable,
                min_answers=min_answers,
            )
            for _ in range(num_edges)
        ]
        self.edge_servers = EdgeServers(sites, global_every=global_every)

    @property
    def parameters(self) -> Parameters:
        """The global model: the mean of the edge models.

        Between global aggregations no edge holds it; it is what one would give now, and what is
        evaluated and asked about. Whoever sets it gives every edge this model.
        """
        return self.edge_servers.mean

    @parameters.setter
    def parameters(self, model: Parameters) -> None:
        self.edge_servers.spread(model)

    @property
    def busy(self) -> Late:
        """Whose late answers are still on their way: these clients are not to be asked again."""
        return self.edge_servers.busy

    def describe(self, problem: Problem) -> Problem:
        """The problem with the sizes and qualities of the clients' data, unless all are alike."""
        sizes, quality = self.data.sizes, self.data.quality
        if quality is None and np.ptp(sizes) == 0:
            return problem
        return replace(problem, num_samples=sizes, quality=quality)

    def ask_loss(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        """[n], what each client would answer if asked for the loss of the global model, which is
        :attr:`parameters` whatever the model of its edge."""
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
        edges: IntArray | None = None,
    ) -> tuple[Feedback, LearningRow]:
        """One round: who answered trains, the edges aggregate, and if it is due the cloud.

        Args:
            feedback: who answered, when.
            evaluate: in this round even if it is not due.
            release: what clients send in place of their updates. Then nothing else leaves them:
                no signals of the trainer, no training loss, and not even whether an update was
                finite.
            sketch_size: of a short sketch of each update for the policy; 0 for none.
            late: who will answer when the round is over; they train now and are held back.
            ends_at_seconds: when the round ended, on the clock by which late answers arrive.
            edges: int64[n], the edge 0 … M-1 of each of ``feedback.clients``; None where there is
                only one.

        Returns:
            The feedback with the trainer's signals beside those that it had, in which a client
            whose update is not finite did not complete; and what the round did to the model.
        """
        edges = self.edge_servers.edges_of(feedback.clients, edges)
        answered = feedback.answered
        updates = self._sent(feedback.clients[answered], edges[answered], feedback.round, release)
        usable = finite_rows(updates)
        completed = answered.copy()
        completed[answered] = usable
        kept = some(updates, usable)
        awaited = late if late is not None and self.edge_servers.keeps_late else NOBODY
        held = some(updates, np.zeros(len(usable), dtype=np.bool_))
        if len(awaited.clients) > 0:
            only_edge = np.zeros_like(awaited.clients)
            held = self._sent(awaited.clients, only_edge, feedback.round, release)
        holdable = finite_rows(held)
        num_aggregated = self.edge_servers.aggregate(
            Answers(
                round=feedback.round,
                asked=feedback.clients,
                updates=kept,
                used=feedback.entered[completed],
                late=some(held, holdable),
                arrives_at_seconds=awaited.arrives_at_seconds[holdable],
                ends_at_seconds=ends_at_seconds,
            ),
            asked_at=edges,
            sent_to=edges[completed],
        )
        scores = Evaluation(loss=np.nan, accuracy=np.nan)
        if evaluate or feedback.round % self.evaluate_every == 0:
            scores = self.engine.evaluate(self.parameters)
        row = LearningRow(
            loss=scores.loss,
            accuracy=scores.accuracy,
            train_loss=_mean(kept.signals.get("loss", np.empty(0))),
            num_aggregated=num_aggregated,
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
        """The model of each edge, its server's memory, and what is held of late answers."""
        meta = {"format": _FORMAT, "num_edges": len(self.edge_servers)}
        return states.to_bytes(self.edge_servers.arrays(), meta)

    def load(self, image: bytes, *, source: str) -> None:
        """Continue from :meth:`to_bytes`."""
        arrays, meta = states.from_bytes(image, source=source)
        if meta.get("format") != _FORMAT:
            raise StateError(f"{source} holds another model than this training's")
        num_edges = meta.get("num_edges", 1)  # flat trainings did not always say so
        if num_edges != len(self.edge_servers):
            raise StateError(
                f"{source} was written by a training with {num_edges} edge servers, this one has "
                f"{len(self.edge_servers)}"
            )
        self.edge_servers.load(arrays, source=source)

    def _sent(
        self, clients: IntArray, edges: IntArray, round_number: int, release: Release | None
    ) -> Updates:
        """What these clients send when they have trained; released in one go, wherever they are."""
        updates = self.edge_servers.train(self.engine, clients, edges, round_number)
        return updates if release is None else _released(updates, release)


_FORMAT = 1


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

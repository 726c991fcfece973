"""Federated training, round by round: clients train, servers aggregate, the model is evaluated."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedmuster.core import state as states
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import ConfigError, DataError, StateError
from fedmuster.core.late_answers import Discard, LateAnswers
from fedmuster.core.records import Feedback, Late, Problem, is_integer
from fedmuster.training.aggregation import Aggregation, FedAvg, finite_rows
from fedmuster.training.combine import sketch
from fedmuster.training.late_merging import server_kind
from fedmuster.training.servers import NOBODY, Answers, EdgeServer, some
from fedmuster.training.training_records import (
    Engine,
    Evaluation,
    FederatedData,
    Parameters,
    Updates,
    joined,
)

Release = Callable[[IntArray, NDArray[np.float32]], NDArray[np.float32]]
"""(clients, their updates) -> what the clients send instead, to keep their data private."""

_FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LearningRow:
    """What a round did to the model.

    Args:
        loss: on the test set after the round; NaN where the round did not evaluate.
        accuracy: likewise; NaN also in a regression.
        train_loss: mean loss of the samples that usable clients trained on; NaN without any.
        num_aggregated: the updates that entered a model, at all edges, with late ones.
        rejected: the clients whose updates were not finite.
    """

    loss: float = np.nan
    accuracy: float = np.nan
    train_loss: float = np.nan
    num_aggregated: int = 0
    rejected: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))


class Trainer:
    """Federated training, in general hierarchical: M edge servers, each with a model of its own.

    Every round each client trains from the model of its edge, and each edge aggregates the
    updates of its own clients (COCS III-A, Eq. 2, 3, 6). After rounds T_ES, 2 T_ES, … the mean of
    the edge models becomes the model of every edge (step iv). Flat learning has one edge server.

    Args:
        engine: trains clients and evaluates models.
        data: the clients' data.
        server: makes one model of many updates, at each edge with a memory of its own, which a
            global aggregation does not change.
        min_answers: an edge with fewer usable updates than this keeps its model.
        evaluate_every: rounds between evaluations on the test set.
        seed: of sketches.
        late_answers: what becomes of answers that arrive after the end of their round. With
            several edges they must be discarded: a late client may be at another edge by then.
        num_edges: M.
        global_every: T_ES, rounds between global aggregations; with one edge it does nothing.
    """

    def __init__(
        self,
        engine: Engine,
        data: FederatedData,
        *,
        server: Aggregation | None = None,
        min_answers: int = 1,
        evaluate_every: int = 1,
        seed: int = 0,
        late_answers: LateAnswers = Discard(),
        num_edges: int = 1,
        global_every: int = 1,
    ) -> None:
        _check_edges(num_edges, global_every, late_answers)
        self.engine = engine
        self.seed = seed
        self.data = data
        self.server: Aggregation = FedAvg() if server is None else server
        self.evaluate_every = evaluate_every
        self._global_every = global_every
        initial, kind = engine.initial(), server_kind(late_answers)
        self.edge_servers = [
            kind(
                model=initial,
                rule=self.server,
                sizes=data.sizes,
                num_trainable=engine.num_trainable,
                min_answers=min_answers,
                late_answers=late_answers,
            )
            for _ in range(num_edges)
        ]

    @property
    def parameters(self) -> Parameters:
        """The global model, ``w = 1/M sum_m w_m`` (COCS III-A, step iv); of one server its own.

        It is evaluated, and its losses are asked for, also between global aggregations, when no
        edge holds it. Setting it gives every edge this model.
        """
        first, *others = self.edge_servers
        if not others:
            return first.model
        # In float64, where the mean of equal models is that very model.
        total = first.model.astype(np.float64)
        for server in others:
            total += server.model
        mean: Parameters = (total / len(self.edge_servers)).astype(np.float32)
        return mean

    @parameters.setter
    def parameters(self, model: Parameters) -> None:
        for server in self.edge_servers:
            server.model = model

    @property
    def busy(self) -> Late:
        """Clients whose late answers are still on their way: they must not be asked again."""
        return self.edge_servers[0].busy

    def describe(self, problem: Problem) -> Problem:
        """The problem with the sizes and qualities of the clients' data, unless all are alike."""
        sizes, quality = self.data.sizes, self.data.quality
        if quality is None and np.ptp(sizes) == 0:
            return problem
        return replace(problem, num_samples=sizes, quality=quality)

    def ask_loss(self, clients: IntArray, *, batch_size: int | None = None) -> FloatArray:
        """[n], the loss of the global model (:attr:`parameters`) on the data of each client."""
        return self.engine.losses(self.parameters, clients, batch_size=batch_size)

    def require_releasable(self) -> None:
        """Raise a ConfigError unless the model can be trained privately."""
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
        """One round: clients that answered train, the edges aggregate, and if it is due the cloud.

        Args:
            feedback: which clients answered, and when.
            evaluate: in this round even if it is not due.
            release: what clients send in place of their updates. Then nothing else leaves them:
                no signals of the trainer, no training loss, and not even whether an update was
                finite.
            sketch_size: of a short sketch of each update for the policy; 0 for none.
            late: clients that answer after the end of the round; they train now and are held back.
            ends_at_seconds: when the round ended, on the clock by which late answers arrive.
            edges: int64[n], the edge 0 … M-1 of each of ``feedback.clients``; None where there is
                only one.

        Returns:
            The feedback with the trainer's signals added, in which a client whose update is not
            finite did not complete; and what the round did to the model.
        """
        edges = self._edges_of(feedback.clients, edges)
        answered = feedback.answered
        updates = self._sent(feedback.clients[answered], edges[answered], feedback.round, release)
        usable = finite_rows(updates)
        completed = answered.copy()
        completed[answered] = usable
        kept = some(updates, usable)
        awaited = late if late is not None and self.edge_servers[0].keeps_late else NOBODY
        held = some(updates, np.zeros(len(usable), dtype=np.bool_))
        if len(awaited.clients) > 0:  # only in flat learning, see _check_edges
            only_edge = np.zeros_like(awaited.clients)
            held = self._sent(awaited.clients, only_edge, feedback.round, release)
        holdable = finite_rows(held)
        answers = Answers(
            round=feedback.round,
            asked=feedback.clients,
            updates=kept,
            used=feedback.entered[completed],
            late=some(held, holdable),
            arrives_at_seconds=awaited.arrives_at_seconds[holdable],
            ends_at_seconds=ends_at_seconds,
        )
        num_aggregated = self._aggregate(answers, asked_at=edges, sent_to=edges[completed])
        scores = Evaluation(loss=np.nan, accuracy=np.nan)
        if evaluate or feedback.round % self.evaluate_every == 0:
            scores = self.engine.evaluate(self.parameters)
        losses = kept.signals.get("loss", np.empty(0))
        row = LearningRow(
            loss=scores.loss,
            accuracy=scores.accuracy,
            train_loss=float(losses.mean()) if len(losses) > 0 else np.nan,
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

    def train_clients(self, clients: IntArray, edges: IntArray, round_number: int) -> Updates:
        """The updates of these clients, each trained from the model of its edge."""
        there = np.unique(edges).tolist() or [0]  # an engine names its signals even without clients
        members = ((edge, np.flatnonzero(edges == edge)) for edge in there)
        parts = (
            (here, self.edge_servers[edge].train(self.engine, clients[here], round_number))
            for edge, here in members
        )
        return joined(clients, parts)

    def close(self) -> None:
        """End the worker processes of the engine."""
        self.engine.close()

    def to_bytes(self) -> bytes:
        """The model of each edge, the memory of its server rule, and late answers."""
        arrays = {
            f"{prefix}{name}": array
            for prefix, server in self._named()
            for name, array in server.arrays().items()
        }
        return states.to_bytes(arrays, {"format": _FORMAT, "num_edges": len(self.edge_servers)})

    def load(self, image: bytes, *, source: str) -> None:
        """Continue from :meth:`to_bytes`."""
        arrays, meta = states.from_bytes(image, source=source)
        if meta.get("format") != _FORMAT:
            raise StateError(f"{source} holds another model than this training's")
        num_edges = meta.get("num_edges", 1)  # older files of flat trainings do not say so
        if num_edges != len(self.edge_servers):
            raise StateError(
                f"{source} was written by a training with {num_edges} edge servers, this one has "
                f"{len(self.edge_servers)}"
            )
        for prefix, server in self._named():
            server.load(states.under(prefix, arrays), source=source)

    def _named(self) -> Iterator[tuple[str, EdgeServer]]:
        """Each server with the prefix of its arrays; a single one has none."""
        for edge, server in enumerate(self.edge_servers):
            yield f"edge.{edge}." if len(self.edge_servers) > 1 else "", server

    def _edges_of(self, clients: IntArray, edges: IntArray | None) -> IntArray:
        """int64[n], the edge of each client; None means the only edge."""
        num_edges = len(self.edge_servers)
        if edges is None and num_edges == 1:
            return np.zeros(len(clients), dtype=np.int64)
        if edges is None:
            raise DataError(
                f"Trainer: edges is None, expected the edge of each of {len(clients)} clients, for "
                f"there are {num_edges} edge servers; pass the edges of the selection"
            )
        fits = edges.shape == clients.shape and np.issubdtype(edges.dtype, np.integer)
        if not fits or not ((edges >= 0) & (edges < num_edges)).all():
            raise DataError(
                f"Trainer: edges is {edges!r}, expected an integer 0 … {num_edges - 1} for each of "
                f"{len(clients)} clients, in their order"
            )
        return edges

    def _sent(
        self, clients: IntArray, edges: IntArray, round_number: int, release: Release | None
    ) -> Updates:
        """What these clients send: their updates, or with ``release`` what it makes of them all."""
        updates = self.train_clients(clients, edges, round_number)
        if release is None:
            return updates
        # A client without a finite update sends noise around nothing.
        finite = finite_rows(updates)
        deltas = np.where(finite[:, np.newaxis], updates.deltas, np.float32(0.0))
        return replace(updates, deltas=release(updates.clients, deltas), signals={})

    def _aggregate(self, answers: Answers, *, asked_at: IntArray, sent_to: IntArray) -> int:
        """Aggregate at each edge, and if it is due globally; the number of answers that entered.

        ``asked_at`` is the edge of each of ``answers.asked``, ``sent_to`` of each update.
        """
        count = 0
        for edge, server in enumerate(self.edge_servers):
            here, asked = sent_to == edge, answers.asked[asked_at == edge]
            updates, used = some(answers.updates, here), answers.used[here]
            count += server.aggregate(replace(answers, asked=asked, updates=updates, used=used))
        if answers.round % self._global_every == 0:
            self._aggregate_globally()
        return count

    def _aggregate_globally(self) -> None:
        """Give every edge the mean of all edge models."""
        mean = self.parameters
        for server in self.edge_servers:
            server.model = mean


def _spread(values: FloatArray, answered: BoolArray) -> FloatArray:
    """``values`` with a row for each asked client, NaN for those that did not answer."""
    spread = np.full((len(answered), *values.shape[1:]), np.nan)
    spread[answered] = values
    return spread


def _check_edges(num_edges: int, global_every: int, late_answers: LateAnswers) -> None:
    for name, value in (("num_edges", num_edges), ("global_every", global_every)):
        if not is_integer(value, least=1):
            raise ConfigError(f"Trainer: {name} = {value!r}, expected an integer >= 1", key=(name,))
    if num_edges > 1 and not isinstance(late_answers, Discard):
        raise ConfigError(
            f"Trainer: the policy keeps late answers ({late_answers.name!r}; refl and safa do so), "
            f"expected one that discards them, for there are {num_edges} edge servers and a late "
            "client may be at another by then; choose another policy, a world without edges, or "
            "leave out [training]"
        )

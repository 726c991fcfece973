"""Federated training: clients train, servers aggregate, the model is evaluated."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmuster.core import state as states
from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import ConfigError, DataError, StateError
from fedmuster.core.records import Problem, is_integer
from fedmuster.core.staleness import DISCARD, Discard, Staleness
from fedmuster.training.aggregation import Aggregation, FedAvg, finite_rows
from fedmuster.training.combine import sketch
from fedmuster.training.servers import Answers, EdgeServer, LateUpdates, Starts
from fedmuster.training.stale_merging import server_kind
from fedmuster.training.training_records import (
    ClassifierEngine,
    Engine,
    Evaluation,
    FederatedData,
    MixedEngine,
    Parameters,
    Updates,
    joined,
)
from fedmuster.training.unbiased import UnbiasedServer


class Sent(NamedTuple):
    """Updates as clients sent them, and which of them are finite."""

    updates: Updates
    usable: BoolArray


Weighting = Literal["answers", "unbiased"]
"""What the mean of a round is over: the answers, or an estimate of all clients."""

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
        staleness: what old answers are worth. With several edges it must not depend on other
            answers: a late client may be at another edge by then.
        keeps_late: whether answers that miss the end of their round may enter a later model, where
            they are worth anything; without rounds there are none.
        num_edges: M.
        global_every: T_ES, rounds between global aggregations; with one edge it does nothing.
        weighting: whether the model moves by the mean over the "answers", or by an "unbiased"
            estimate of the mean over all clients; that needs a single edge.
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
        staleness: Staleness = DISCARD,
        keeps_late: bool = True,
        num_edges: int = 1,
        global_every: int = 1,
        weighting: Weighting = "answers",
    ) -> None:
        _check_edges(num_edges, global_every, staleness, keeps_late=keeps_late)
        self.engine = engine
        self.seed = seed
        self.data = data
        self.server: Aggregation = FedAvg() if server is None else server
        self.evaluate_every = evaluate_every
        self.global_every = global_every
        self.weighting: Weighting = weighting
        initial, kind = engine.initial(), server_kind(staleness)
        if weighting == "unbiased":
            kind = UnbiasedServer
            if num_edges > 1:
                raise ConfigError(
                    'weighting = "unbiased" estimates the mean over all clients at one server, but '
                    f"there are {num_edges} edge servers, of which each averages its own clients: "
                    "leave weighting out, or choose a world without edges",
                    key=("weighting",),
                )
        self.edge_servers = [
            kind(
                model=initial,
                rule=self.server,
                sizes=data.sizes,
                num_trainable=engine.num_trainable,
                min_answers=min_answers,
                staleness=staleness,
                keeps_late=keeps_late,
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

    def describe(self, problem: Problem, *, output_bias: bool = False) -> Problem:
        """The problem with the sizes and qualities of the clients' data, unless all are alike.

        With ``output_bias`` also with the number of classes, for a policy that wants to see the
        biases of the output layer.
        """
        if output_bias:
            biases = self._output_bias
            problem = replace(problem, num_classes=biases.stop - biases.start)
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

    def starts(self, clients: IntArray, edges: IntArray | None, round_number: int) -> Starts:
        """The model from which each client trains if it is asked now, at its edge 0 … M-1.

        ``edges`` is None where there is only one. The vectors are shared and never change: a model
        lives as long as a client may still train from it.
        """
        edges = self._edges_of(clients, edges)
        there: list[int] = np.unique(edges).tolist()
        if len(there) == 1:
            return self.edge_servers[there[0]].starts(clients, round_number)
        starts: list[Parameters] = [self.edge_servers[0].model] * len(clients)
        for edge in there:
            here = np.flatnonzero(edges == edge)
            models = self.edge_servers[edge].starts(clients[here], round_number)
            for row, model in zip(here.tolist(), models, strict=True):
                starts[row] = model
        return starts

    def send(
        self,
        clients: IntArray,
        starts: Starts,
        rounds: IntArray,
        *,
        orders: IntArray | None = None,
        release: Release | None = None,
    ) -> Sent:
        """Let clients train; what they send.

        Clients with the same model and key train together, or all of them where the engine can do
        that. It is faster, and the bits are the same however clients are grouped.

        Args:
            clients: int64[n].
            starts: the model from which each of them trains.
            rounds: int64[n], the round whose learning rate each of them takes.
            orders: int64[n], the round whose order of samples each of them takes; None for the
                same.
            release: what clients send in place of their updates. Then nothing else leaves them:
                no signals of the trainer, no training loss, and not even whether an update was
                finite.
        """
        orders = rounds if orders is None else orders
        groups: dict[tuple[int, int, int], list[int]] = {}
        for row, key in enumerate(
            zip(map(id, starts), rounds.tolist(), orders.tolist(), strict=True)
        ):
            groups.setdefault(key, []).append(row)
        if not groups:  # an engine names its signals even without clients
            updates = self.engine.train(self.edge_servers[0].model, clients, 1)
        elif isinstance(self.engine, MixedEngine) and len(groups) > 1:
            updates = self.engine.train_mixed(starts, clients, rounds, orders)
        else:
            parts = (
                (np.array(rows), self.engine.train(starts[rows[0]], clients[rows], number, order))
                for (_, number, order), rows in groups.items()
            )
            updates = joined(clients, parts)
        if release is not None:
            # A client without a finite update sends noise around nothing.
            finite = finite_rows(updates)
            deltas = np.where(finite[:, np.newaxis], updates.deltas, np.float32(0.0))
            updates = replace(updates, deltas=release(updates.clients, deltas), signals={})
        return Sent(updates, finite_rows(updates))

    def aggregate(
        self,
        answers: Answers,
        *,
        sent_to: IntArray,
        asked_at: IntArray,
        now_seconds: float,
        only_edge: int | None = None,
    ) -> int:
        """Aggregate at each edge, and if it is due globally; the number of answers that entered.

        Args:
            answers: what came, from all edges.
            sent_to: int64[n], the edge of each update.
            asked_at: int64, the edge of each of ``answers.asked``.
            now_seconds: the time, by the clock on which late answers arrive.
            only_edge: the one edge that aggregates, where each edge has its own pace. A global
                aggregation is due when all edges together have aggregated M T_ES times.
        """
        count, edges = 0, range(len(self.edge_servers)) if only_edge is None else [only_edge]
        for edge in edges:
            server = self.edge_servers[edge]
            if server.late is not None:
                server.late.now_seconds = now_seconds
            here = replace(answers.some(sent_to == edge), asked=answers.asked[asked_at == edge])
            count += server.aggregate(here)
        period = self.global_every * (1 if only_edge is None else len(self.edge_servers))
        if answers.round % period == 0:
            self.aggregate_globally()
        return count

    def aggregate_globally(self) -> None:
        """Give every edge the mean of all edge models."""
        mean = self.parameters
        for server in self.edge_servers:
            server.model = mean

    def evaluate(self, round_number: int, *, due: bool) -> Evaluation:
        """The global model on the test set, if this round evaluates or it is ``due``; else NaN."""
        if due or round_number % self.evaluate_every == 0:
            return self.engine.evaluate(self.parameters)
        return Evaluation(loss=np.nan, accuracy=np.nan)

    def sketches(self, updates: Updates, size: int) -> FloatArray:
        """[n, size], a short sketch of each update for the policy."""
        return sketch(updates.deltas, size=size, seed=self.seed)

    def output_bias(self, updates: Updates) -> FloatArray:
        """[n, C], by how much each update changes the biases of the output layer."""
        return updates.deltas[:, self._output_bias].astype(np.float64)

    @property
    def _output_bias(self) -> slice:
        places = self.engine.output_bias if isinstance(self.engine, ClassifierEngine) else None
        if places is None:
            raise ConfigError(
                "the policy looks at the biases of the output layer, one for each class, and the "
                "model has none: train a classifier whose last layer is linear with biases "
                "(logistic, mlp, the networks), or choose another policy",
                key=("model",),
            )
        return places

    @property
    def mixes(self) -> bool:
        """Whether clients train together also if they start from different models."""
        return isinstance(self.engine, MixedEngine)

    @property
    def late(self) -> LateUpdates | None:
        """The answers that missed their round and may still enter a model; None if none may."""
        return self.edge_servers[0].late

    def lost(self, round_number: int, now_seconds: float) -> IntArray:
        """The clients whose late answers the aggregation of this round will drop."""
        server = self.edge_servers[0]
        if server.late is None:
            return np.empty(0, dtype=np.int64)
        return server.late.clients[server.lost(server.late, round_number, now_seconds)]

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
            server.load(states.with_prefix(prefix, arrays), source=source)

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


def _check_edges(
    num_edges: int, global_every: int, staleness: Staleness, *, keeps_late: bool
) -> None:
    for name, value in (("num_edges", num_edges), ("global_every", global_every)):
        if not is_integer(value, least=1):
            raise ConfigError(f"Trainer: {name} = {value!r}, expected an integer >= 1", key=(name,))
    holds = server_kind(staleness) is not EdgeServer or (
        keeps_late and not isinstance(staleness, Discard)
    )
    if num_edges > 1 and holds:
        raise ConfigError(
            f"Trainer: the staleness rule is {staleness.name!r}, expected discard, for there are "
            f"{num_edges} edge servers and a late client may be at another by then; choose another "
            "policy (refl and safa keep late answers) or staleness rule, a world without edges, or "
            "leave out [training]"
        )

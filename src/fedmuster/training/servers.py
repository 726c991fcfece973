"""A place where updates become a model: an edge server; in flat FL, the server."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedmuster.core import state as states
from fedmuster.core.arrays import IntArray
from fedmuster.core.errors import ConfigError, DataError, StateError
from fedmuster.core.policy import Discard, LateAnswers
from fedmuster.core.records import Late, is_integer
from fedmuster.core.state import Array, under
from fedmuster.training.aggregation import Server
from fedmuster.training.late_mergers import merger_for
from fedmuster.training.mergers import Answers, some
from fedmuster.training.training_records import Engine, Parameters, Updates, joined


class EdgeServer:
    """A model, and a server with its memory, who merges what the clients of this place send.

    Args:
        model: before the first round. Edge servers may share one vector: none writes into it.
        server: makes one model of many updates.
        late_answers: what becomes of answers that come when their round is over.
        sizes: [K], how much data each client has, wherever it is.
        num_trainable: of the first so many parameters.
        min_answers: with fewer usable updates than this the model stays as it is.
    """

    def __init__(
        self,
        model: Parameters,
        *,
        server: Server,
        late_answers: LateAnswers,
        sizes: IntArray,
        num_trainable: int,
        min_answers: int,
    ) -> None:
        self.model = model
        self.merger, self._server = merger_for(
            late_answers,
            server,
            sizes,
            model,
            num_trainable=num_trainable,
            min_answers=min_answers,
        )
        self._server_state = self._server.init(len(model))
        self._num_trainable = num_trainable
        self._min_answers = min_answers

    def train(self, engine: Engine, clients: IntArray, round_number: int) -> Updates:
        """What these clients have to send when they have trained, usually from this model."""
        return self.merger.train(engine, self.model, clients, round_number)  # COCS Eq. 2

    def aggregate(self, answers: Answers) -> int:
        """Take the answers of a round in, and say how many have entered the model."""
        merged = self.merger.merge(self.model, answers)
        if merged.num_answers == 0 or merged.num_answers < self._min_answers:
            return 0
        self.model = self._server.apply(  # COCS Eq. 3, 6 with FedAvg(weights="uniform")
            self._server_state, self.model, merged.updates, merged.weights, self._num_trainable
        )
        return merged.num_answers

    def arrays(self) -> dict[str, states.Array]:
        """The model, the server's memory, and what is held of late answers."""
        arrays = {f"server.{k}": a for k, a in states.to_arrays(self._server_state).items()}
        arrays |= {f"late.{k}": a for k, a in self.merger.arrays().items()}
        return {"parameters": self.model, **arrays}

    def load(self, arrays: Mapping[str, states.Array], *, source: str) -> None:
        """Continue from :meth:`arrays`."""
        if arrays["parameters"].shape != self.model.shape:
            raise StateError(f"{source} holds another model than this training's")
        late = states.under("late.", arrays)
        if late.keys() != self.merger.arrays().keys():
            raise StateError(
                f"{source} was written by a training that does something else with late answers"
            )
        states.load_arrays(self._server_state, states.under("server.", arrays))
        self.merger.load(late)
        self.model = arrays["parameters"]


# Edge servers, each with a model of its own, and the cloud that averages them now and then.


class EdgeServers:
    """M servers. Flat FL has one, whose model is the mean of all.

    Args:
        servers: the edge servers, with the same model.
        global_every: T_ES, rounds between global aggregations.
    """

    def __init__(self, servers: Sequence[EdgeServer], *, global_every: int) -> None:
        self._servers = servers
        self._global_every = global_every

    def __len__(self) -> int:
        return len(self._servers)

    def __getitem__(self, edge: int) -> EdgeServer:
        return self._servers[edge]

    @property
    def mean(self) -> Parameters:
        """``w = 1/M sum_m w_m`` (COCS III-A, step iv); of one server, its own vector."""
        first, *others = self._servers
        if not others:
            return first.model
        # In float64, where the mean of models that are alike is that very model.
        total = first.model.astype(np.float64)
        for server in others:
            total += server.model
        mean: Parameters = (total / len(self)).astype(np.float32)
        return mean

    def spread(self, model: Parameters) -> None:
        """Give every edge this model."""
        for server in self._servers:
            server.model = model

    # Late answers are wanted where there is one server only, see check_edges: it speaks for all.

    @property
    def keeps_late(self) -> bool:
        """Whether late answers are wanted at all."""
        return self._servers[0].merger.keeps_late

    @property
    def busy(self) -> Late:
        """Whose late answers are on their way."""
        return self._servers[0].merger.busy

    def edges_of(self, clients: IntArray, edges: IntArray | None) -> IntArray:
        """int64[n], where each of these clients is; None means at the only edge."""
        if edges is None and len(self) == 1:
            return np.zeros(len(clients), dtype=np.int64)
        if edges is None:
            raise DataError(
                f"Trainer: edges is None, expected the edge of each of {len(clients)} clients, for "
                f"there are {len(self)} edge servers; hand on what the selection says of them"
            )
        fits = edges.shape == clients.shape and np.issubdtype(edges.dtype, np.integer)
        if not fits or not ((edges >= 0) & (edges < len(self))).all():
            raise DataError(
                f"Trainer: edges is {edges!r}, expected an integer 0 … {len(self) - 1} for each of "
                f"{len(clients)} clients, in their order"
            )
        return edges

    def train(
        self, engine: Engine, clients: IntArray, edges: IntArray, round_number: int
    ) -> Updates:
        """What these clients have to send, each trained from the model of its edge, in their
        order."""
        there = np.unique(edges).tolist() or [0]  # an engine names its signals even for nobody
        members = ((edge, np.flatnonzero(edges == edge)) for edge in there)
        return joined(
            clients,
            (
                (here, self._servers[edge].train(engine, clients[here], round_number))
                for edge, here in members
            ),
        )

    def aggregate(self, answers: Answers, *, asked_at: IntArray, sent_to: IntArray) -> int:
        """Edge aggregation, and if it is due global aggregation.

        Args:
            answers: of all clients of the round.
            asked_at: the edge of each of ``answers.asked``.
            sent_to: the edge of each of ``answers.updates``.

        Returns:
            How many answers have entered the models of the edges.
        """
        count = 0
        for edge, server in enumerate(self._servers):
            here = sent_to == edge
            count += server.aggregate(
                replace(
                    answers,
                    asked=answers.asked[asked_at == edge],
                    updates=some(answers.updates, here),
                    used=answers.used[here],
                )
            )
        if answers.round % self._global_every == 0:
            self.spread(self.mean)
        return count

    def arrays(self) -> dict[str, Array]:
        """All that the edges remember; of a single one without a prefix."""
        return {
            f"{prefix}{name}": array
            for prefix, server in self._named()
            for name, array in server.arrays().items()
        }

    def load(self, arrays: Mapping[str, Array], *, source: str) -> None:
        """Continue from :meth:`arrays` of as many edges."""
        for prefix, server in self._named():
            server.load(under(prefix, arrays), source=source)

    def _named(self) -> Iterator[tuple[str, EdgeServer]]:
        for edge, server in enumerate(self._servers):
            yield f"edge.{edge}." if len(self) > 1 else "", server


def check_edges(num_edges: int, global_every: int, late_answers: LateAnswers) -> None:
    """Complain unless a training can have edge servers of this kind."""
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

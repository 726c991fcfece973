"""Edge servers, each with a model of its own, and the cloud that averages them now and then."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.late_answers import Discard, LateAnswers
from fedmuster.core.records import IntArray, Late, is_integer
from fedmuster.core.state import Array, under
from fedmuster.learning.edge_server import EdgeServer
from fedmuster.learning.engine import Engine
from fedmuster.learning.late import Answers, some
from fedmuster.learning.parts import joined
from fedmuster.learning.records import Parameters, Updates


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

"""A place where updates become a model: an edge server; in flat FL, the server."""

from collections.abc import Mapping

from fedmuster.core import state as states
from fedmuster.core.errors import StateError
from fedmuster.core.late_answers import LateAnswers
from fedmuster.core.records import IntArray
from fedmuster.learning.aggregation import Server
from fedmuster.learning.engine import Engine
from fedmuster.learning.late import Answers, merger_for
from fedmuster.learning.records import Parameters, Updates


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

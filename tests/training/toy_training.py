"""The toy federation as a training of a simulation."""

from dataclasses import dataclass, field
from typing import Any

from tests.training.toy_federation import ToyEngine, toy_trainer

from fedmuster.core.staleness import Staleness
from fedmuster.training.aggregation import Aggregation, FedAvg
from fedmuster.training.trainer import Trainer, Weighting


@dataclass(frozen=True, kw_only=True)
class ToyTraining:
    """Starts toy trainers; the world must have as many clients as the toy federation."""

    server: Aggregation = field(default_factory=FedAvg)
    engine: ToyEngine = field(default_factory=ToyEngine)
    min_answers: int = 1
    weighting: Weighting = "answers"

    def start(self, *, staleness: Staleness, keeps_late: bool, num_edges: int, **_: Any) -> Trainer:
        """See :meth:`fedmuster.training.training.Training.start`."""
        return toy_trainer(
            staleness,
            server=self.server,
            engine=self.engine,
            keeps_late=keeps_late,
            min_answers=self.min_answers,
            num_edges=num_edges,
            weighting=self.weighting,
        )

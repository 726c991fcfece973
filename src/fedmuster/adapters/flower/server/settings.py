"""What users tell :class:`~fedmuster.adapters.flower.Muster`, checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedmuster.adapters.flower.choosing.edge_groups import EdgeGroups
from fedmuster.adapters.flower.server.checks import check_policy
from fedmuster.core.arrays import ceil_of
from fedmuster.core.config import require
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import Policy
from fedmuster.core.records import is_integer
from fedmuster.experiments.spec import Experiment
from fedmuster.privacy.budget import Privacy
from fedmuster.worlds.real_federation import Federation

Features = Callable[[Sequence[str]], ArrayLike]
"""The context of clients, [K, d] (at edges [K, M, d]), of whom it gets the identities."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Settings:
    """The arguments of :class:`~fedmuster.adapters.flower.Muster`, where they are described."""

    policy: Policy[Any]
    cohort_size: int
    folder: Path
    seed: int
    deadline_seconds: float | None
    over_selection: float
    min_nodes: int | None
    wait_seconds: float
    poll_seconds: float
    authenticated: bool
    privacy: Privacy | None
    edges: EdgeGroups | None
    features: Features | None

    def __post_init__(self) -> None:
        for name in ("cohort_size", "seed"):
            least = 0 if name == "seed" else 1
            fits = is_integer(getattr(self, name), least=least)
            require(fits, self, name, f"an integer >= {least}")
        deadline, nodes = self.deadline_seconds, self.min_nodes
        fits = deadline is None or 0 < deadline < np.inf
        require(fits, self, "deadline_seconds", "a number > 0, or None")
        fits = 1 <= self.over_selection < np.inf
        require(fits, self, "over_selection", "a number >= 1, for example 1.3")
        require(0 <= self.wait_seconds < np.inf, self, "wait_seconds", "a number >= 0")
        require(0 < self.poll_seconds < np.inf, self, "poll_seconds", "a number > 0")
        require(nodes is None or is_integer(nodes, least=1), self, "min_nodes", "an integer >= 1")
        if self.privacy is not None and self.privacy.simulated:
            raise ConfigError(
                "Muster: privacy has noise = 'seeded', which protects nobody and is for "
                'simulations: write Privacy(noise="secure", …)'
            )
        check_policy(self.policy, num_edges=self.num_edges)

    @property
    def num_edges(self) -> int:
        """M; 0 in flat federated learning."""
        return 0 if self.edges is None else len(self.edges.names)

    @property
    def num_to_ask(self) -> int:
        """How many clients are asked, so that enough of them answer."""
        return ceil_of(self.cohort_size * self.over_selection)

    def experiment(self, *, rounds: int) -> Experiment:
        """The run as its spec describes it."""
        return Experiment(
            policies={self.policy.name: self.policy},
            world=Federation(
                cohort_size=self.cohort_size,
                over_selection=self.over_selection,
                deadline_seconds=self.deadline_seconds,
                edges=() if self.edges is None else self.edges.names,
                authenticated=self.authenticated,
            ),
            rounds=rounds,
            seeds=(self.seed,),
            regret=False,
            privacy=self.privacy,
        )

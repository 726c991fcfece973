"""A real federation as the world of a spec: nothing here is simulated.

A run of Flower or NVIDIA FLARE writes this world into its ``spec.toml``, so that reports read it
like any other.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Final

from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.worlds.world import World, WorldRun


@dataclass(frozen=True, kw_only=True, slots=True)
class RealFederation:
    """A real federation, whose clients are nodes of Flower or clients of NVIDIA FLARE.

    Args:
        cohort_size: m.
        over_selection: the server asks ``over_selection × m`` clients and closes with m answers.
        deadline_seconds: when the server stops waiting; None for the framework's own timeout.
        edges: the names of groups of nodes, each an edge server; none in flat learning.
        authenticated: whether nodes are known by keys that were registered for them.
    """

    name: ClassVar[str] = "federation"

    cohort_size: int
    over_selection: float = 1.0
    deadline_seconds: float | None = None
    edges: tuple[str, ...] = ()
    authenticated: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        require(self.cohort_size >= 1, self, "cohort_size", "an integer >= 1")
        require(len(set(self.edges)) == len(self.edges), self, "edges", "different names")
        require(1 <= self.over_selection < math.inf, self, "over_selection", "a number >= 1")
        deadline = self.deadline_seconds
        fits = deadline is None or 0 < deadline < math.inf
        require(fits, self, "deadline_seconds", "a number > 0")

    @property
    def hierarchical(self) -> bool:
        """Whether groups of nodes are edge servers."""
        return len(self.edges) > 0

    def start(self, seed: int) -> WorldRun:
        """Refused: the framework runs a real federation."""
        raise ConfigError(
            "a federation of real clients is not simulated: Flower runs it, and continues it, with "
            "`flwr run` on the app whose Muster has this folder; a job of NVIDIA FLARE goes on "
            "when it is submitted again",
            key=("name",),
        )


FEDERATIONS: Final[dict[str, type[World]]] = {"federation": RealFederation}

"""Whose scores the journal keeps."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.config import check_types, require
from fedmuster.core.records import IntArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Watch:
    """Whose scores to write down, and how often: what a policy thinks, for reports.

    Args:
        every: so many rounds, beginning with the first.
        clients: how many, evenly spaced over all; fewer where there are fewer.
    """

    every: int = 1
    clients: int = 100

    def __post_init__(self) -> None:
        check_types(self)
        require(self.every >= 1, self, "every", "an integer >= 1")
        require(self.clients >= 1, self, "clients", "an integer >= 1")

    def watched(self, num_clients: int) -> IntArray:
        """Who."""
        count = min(self.clients, num_clients)
        return np.arange(count) * num_clients // count

    def due(self, round_number: int) -> bool:
        """When."""
        return (round_number - 1) % self.every == 0

"""What participants at edge servers are worth to a network operator."""

import math
from dataclasses import dataclass
from typing import Literal

from fedmuster.core.config import check_types

UtilityName = Literal["linear", "square-root"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeUtility:
    """Participants for each edge server, or the square root of that.

    A participant is a client whose answer reaches its edge server by the deadline.

    Args:
        utility: "linear" in strongly convex learning (COCS Eq. 8), "square-root" in non-convex
            learning (Eq. 19), as fast as either converges.

    Example:
        >>> EdgeUtility().of(6, num_edges=3), EdgeUtility(utility="square-root").of(12, num_edges=3)
        (2.0, 2.0)
    """

    utility: UtilityName = "linear"

    def __post_init__(self) -> None:
        check_types(self)

    def of(self, participants: float, *, num_edges: int) -> float:
        """Of so many participants, or of so many in expectation."""
        mean = participants / num_edges  # COCS Eq. 8
        return mean if self.utility == "linear" else math.sqrt(mean)  # COCS Eq. 19

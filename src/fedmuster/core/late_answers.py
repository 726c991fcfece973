"""What becomes of late answers: a policy says it, a trainer does it."""

from dataclasses import dataclass
from typing import ClassVar

from fedmuster.core.config import check_types, require


@dataclass(frozen=True, kw_only=True, slots=True)
class Discard:
    """They are lost."""

    name: ClassVar[str] = "discard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stale:
    """They enter the model of the round in which they come, the less the older they are (REFL).

    Args:
        beta: how much a late update weighs for being different, against for being fresh.
            REFL: 0.35.
        max_rounds: older ones are lost; None for any age.
    """

    name: ClassVar[str] = "stale"

    beta: float = 0.35
    max_rounds: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.beta <= 1, self, "beta", "a number in [0, 1]")
        oldest = self.max_rounds
        require(oldest is None or oldest >= 1, self, "max_rounds", "an integer >= 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cached:
    """The server keeps the last model of every client and averages them all (SAFA).

    Args:
        lag_tolerance: a client that is further behind than so many rounds must start anew from the
            global model. SAFA: 5.
    """

    name: ClassVar[str] = "cached"

    lag_tolerance: int = 5

    def __post_init__(self) -> None:
        check_types(self)
        require(self.lag_tolerance >= 1, self, "lag_tolerance", "an integer >= 1")


LateAnswers = Discard | Stale | Cached

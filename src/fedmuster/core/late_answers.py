"""Late answers: what a server does with a reply that arrives after its round has closed."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmuster.core.arrays import BoolArray, IntArray
from fedmuster.core.config import check_types, require


@dataclass(frozen=True, kw_only=True, slots=True)
class Discard:
    """Late answers are lost."""

    name: ClassVar[str] = "discard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stale:
    """Late answers enter the model of the round in which they arrive, weighted by age (REFL).

    Args:
        beta: how much the novelty of a late update weighs against its age. REFL: 0.35.
        max_rounds: older answers are lost; None for any age.
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
        lag_tolerance: a client that is more rounds behind starts anew from the global model.
            SAFA: 5.
    """

    name: ClassVar[str] = "cached"

    lag_tolerance: int = 5

    def __post_init__(self) -> None:
        check_types(self)
        require(self.lag_tolerance >= 1, self, "lag_tolerance", "an integer >= 1")


LateAnswers = Discard | Stale | Cached


def fill_quota(arrivals: IntArray, preferred: BoolArray, quota: int) -> BoolArray:
    """bool[m]: the first ``quota`` preferred answers; if they are fewer, then others by arrival.

    Args:
        arrivals: positions in the cohort of the clients that answered, in order of arrival.
        preferred: bool[m], the clients whose answers count first (SAFA).
        quota: how many answers enter the round's model.

    Example:
        >>> arrivals = np.array([3, 0, 2, 1])
        >>> fill_quota(arrivals, np.array([True, False, True, False]), 3)
        array([ True, False,  True,  True])
    """
    used = np.zeros(len(preferred), dtype=np.bool_)
    first = arrivals[preferred[arrivals]][:quota]
    used[first] = True
    others = arrivals[~preferred[arrivals]]
    used[others[: quota - len(first)]] = True
    return used

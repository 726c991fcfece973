"""Staleness: what an answer is worth that was trained on an older model than the server's.

The age of an answer is the number of times the server has aggregated since the client was asked.
In rounds an answer is older than the model if it missed the end of its round.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.registry import Registry


@dataclass(frozen=True, kw_only=True, slots=True)
class Staleness(ABC):
    """A rule for the worth of old answers.

    Args:
        max_age: answers that are older than this are lost; None for any age.
    """

    name: ClassVar[str]

    max_age: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        require(self.max_age is None or self.max_age >= 0, self, "max_age", "an integer >= 0")

    def factors(self, ages: IntArray) -> FloatArray:
        """[n], by what each update of these ages is multiplied; 0 for an answer that is lost."""
        lost = False if self.max_age is None else ages > self.max_age
        return np.asarray(np.where(lost, 0.0, self._factors(ages)))

    @abstractmethod
    def _factors(self, ages: IntArray) -> FloatArray:
        """[n], without the maximum age."""


STALENESS: Final[Registry[Staleness]] = Registry(
    "staleness rule",
    Staleness,
    modules=(__name__,),
    methods=("factors",),
    group="fedmuster.staleness",
)


@STALENESS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Discard(Staleness):
    """Old answers are lost."""

    name: ClassVar[str] = "discard"

    def _factors(self, ages: IntArray) -> FloatArray:
        return np.asarray(ages == 0, dtype=np.float64)


@STALENESS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class ConstantWorth(Staleness):
    """Old answers count as much as fresh ones (FedAsync's constant).

    References:
        C. Xie, S. Koyejo, I. Gupta, Asynchronous Federated Optimization, 2019, arXiv:1903.03934.
    """

    name: ClassVar[str] = "constant"

    def _factors(self, ages: IntArray) -> FloatArray:
        return np.ones(len(ages))


@STALENESS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class PolynomialWorth(Staleness):
    """``(1 + age)^-power`` (FedAsync, FedBuff).

    Args:
        max_age: answers that are older than this are lost; None for any age.
        power: 0.5 in both papers.

    References:
        C. Xie, S. Koyejo, I. Gupta, Asynchronous Federated Optimization, 2019, arXiv:1903.03934.
        J. Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022.
    """

    name: ClassVar[str] = "polynomial"

    power: float = 0.5

    def __post_init__(self) -> None:
        Staleness.__post_init__(self)
        require(0 <= self.power < np.inf, self, "power", "a number >= 0")

    def _factors(self, ages: IntArray) -> FloatArray:
        return np.asarray((1.0 + ages) ** -self.power)


@STALENESS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class HingeWorth(Staleness):
    """1 up to an age of ``grace``, then ``1 / (slope (age - grace) + 1)`` (FedAsync's hinge).

    Args:
        max_age: answers that are older than this are lost; None for any age.
        slope: a of the paper, which has 10.
        grace: b of the paper, which has 4.

    References:
        C. Xie, S. Koyejo, I. Gupta, Asynchronous Federated Optimization, 2019, arXiv:1903.03934.
    """

    name: ClassVar[str] = "hinge"

    slope: float = 10.0
    grace: int = 4

    def __post_init__(self) -> None:
        Staleness.__post_init__(self)
        require(0 <= self.slope < np.inf, self, "slope", "a number >= 0")
        require(self.grace >= 0, self, "grace", "an integer >= 0")

    def _factors(self, ages: IntArray) -> FloatArray:
        return np.asarray(1.0 / (self.slope * np.maximum(ages - self.grace, 0) + 1.0))


@STALENESS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class AgeAndNovelty(Staleness):
    """Old updates weigh less the older they are, and more the more they differ (REFL).

    Args:
        max_age: answers that are older than this are lost; None for any age.
        beta: how much the novelty of an old update weighs against its age. REFL: 0.35.
    """

    name: ClassVar[str] = "refl"

    beta: float = 0.35

    def __post_init__(self) -> None:
        Staleness.__post_init__(self)
        require(0 <= self.beta <= 1, self, "beta", "a number in [0, 1]")

    def _factors(self, ages: IntArray) -> FloatArray:
        return np.ones(len(ages))  # the server computes the weights: they depend on the updates


@STALENESS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class CachedModels(Staleness):
    """The server keeps the last model of every client and averages them all (SAFA). In rounds.

    Args:
        max_age: must be None: the lag tolerance takes its place.
        lag_tolerance: a client that is more rounds behind starts anew from the global model.
            SAFA: 5.
    """

    name: ClassVar[str] = "safa"

    lag_tolerance: int = 5

    def __post_init__(self) -> None:
        Staleness.__post_init__(self)
        require(self.max_age is None, self, "max_age", "None: lag_tolerance takes its place")
        require(self.lag_tolerance >= 1, self, "lag_tolerance", "an integer >= 1")

    def _factors(self, ages: IntArray) -> FloatArray:
        return np.ones(len(ages))


DISCARD: Final = Discard()


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

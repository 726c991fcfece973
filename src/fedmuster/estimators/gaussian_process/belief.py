"""What is believed of the part of the utility that attributes explain."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.state import derived
from fedmuster.estimators.gaussian_process.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Evidence:
    """A value for each of some distinct clients, with the variance of its noise."""

    clients: IntArray
    values: FloatArray
    noise: FloatArray


class Belief(Protocol):
    """Mean and variance of every client's utility, and what it takes to keep them up to date."""

    @property
    def mean(self) -> FloatArray:
        """Posterior mean of each client."""
        ...

    @property
    def variance(self) -> FloatArray:
        """Posterior variance of each client; rounding may push it below 0."""
        ...

    def rebuild(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """Forget everything, and believe ``evidence`` (which may be empty)."""
        ...

    def condition(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """Believe ``evidence``, too."""
        ...


@dataclass(slots=True)
class NoBelief:
    """Of clients without attributes: nothing is shared, each is known by its own history."""

    mean: FloatArray = derived()
    variance: FloatArray = derived()

    @classmethod
    def init(cls) -> "NoBelief":
        """Zero for all."""
        return cls(mean=np.array(0.0), variance=np.array(0.0))

    def rebuild(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """There is nothing to believe."""

    def condition(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """There is nothing to believe."""

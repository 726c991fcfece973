"""The fastest in expectation, told in advance."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator

from fedmuster.core.errors import DataError
from fedmuster.core.policy import PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, Problem, RoundView, Selection
from fedmuster.core.state import NoState
from fedmuster.solvers.cohort import highest


@dataclass(frozen=True, kw_only=True, slots=True)
class FastestInExpectation(PolicyTraits):
    """The m available clients with the shortest true mean latency, told in advance.

    State:
        Nothing is learned.

    References:
        O. Peleg et al., PAUSE, section V: "Fastest in expectation".

    Example:
        >>> import numpy as np
        >>> from fedmuster import Problem, Selector
        >>> from fedmuster.core.records import Truth
        >>> seconds = np.array([0.5, 0.1, 0.2])
        >>> truth = Truth(mean_latency_seconds=seconds, mean_speed=0.1 / seconds)
        >>> selector = Selector(FastestInExpectation(), Problem(num_clients=3, cohort_size=2))
        >>> selector.select(truth=truth).clients
        array([1, 2])
    """

    name: ClassVar[str] = "fastest"
    oracle: ClassVar[bool] = True
    learns: ClassVar[bool] = False

    def init(self, problem: Problem) -> NoState:
        """Nothing to know."""
        return NoState()

    def select(self, state: NoState, view: RoundView, rng: Generator) -> Selection:
        """The shortest true mean latencies."""
        if view.truth is None:
            raise DataError("FastestInExpectation: the view holds no truth")
        rows = view.candidates()
        return highest(view, rows, -view.truth.mean_latency_seconds[rows], rng)

    def observe(self, state: NoState, selection: Selection, feedback: Feedback) -> None:
        """Nothing is learned."""

    def scores(self, state: NoState, view: RoundView) -> Mapping[str, FloatArray]:
        """The true mean latency of each client."""
        return {} if view.truth is None else {"true_mean_seconds": view.truth.mean_latency_seconds}

"""Everyone, every round."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.policy import CohortRule, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.state import NoState


@dataclass(frozen=True, kw_only=True, slots=True)
class AllClients(PolicyTraits):
    """Everyone who is available, every round (FedAvg with full participation).

    State:
        Nothing is learned.

    References:
        O. Peleg et al., PAUSE, section V: "FedAvg, choosing all K users".

    Example:
        >>> from fedmuster import Problem, Selector
        >>> Selector(AllClients(), Problem(num_clients=20, cohort_size=5)).select().clients.shape
        (20,)
    """

    name: ClassVar[str] = "all-clients"
    cohort_rule: ClassVar[CohortRule] = "everyone"
    learns: ClassVar[bool] = False

    def init(self, problem: Problem) -> NoState:
        """Nothing to know."""
        return NoState()

    def select(self, state: NoState, view: RoundView, rng: Generator) -> Selection:
        """Everyone available."""
        return Selection.of(view, slice(None), np.flatnonzero(view.available))

    def observe(self, state: NoState, selection: Selection, feedback: Feedback) -> None:
        """Nothing is learned."""

"""SAFA: everyone trains, and those who were not picked last time are waited for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, CohortRule, PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.staleness import CachedModels, Staleness
from fedmuster.core.state import given
from fedmuster.policies.explaining.simple_rules import Everyone


@dataclass(slots=True)
class SAFAState:
    """The clients picked in the last round, and the number picked in a round."""

    picked: BoolArray
    quota: IntArray = given()


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class SAFA(PolicyTraits):
    """All available clients train; m answers count, clients not picked last time first.

    Compensatory first-come-first-merge: the round closes when m (the paper's ⌈C K⌉) clients that
    were not picked in the last round have answered. If that does not happen before the deadline,
    the first of the others to arrive fill the quota. Answers that are not picked, and late ones,
    still count: the server averages the last model of every client, see
    :class:`~fedmuster.core.staleness.CachedModels`. It needs the memory for all these models.

    Args:
        lag_tolerance: tau, by how many rounds a client may be behind and still go on from its own
            model. Paper: 5.

    State:
        Of each client whether it was picked in the last round.

    Deviations:
        1. Picks are in order of arrival, as the paper has it. The authors' code takes those who
           were not picked last by their number, and only the others by speed.
        2. Who is not available is not asked. In the paper everybody is, and some crash.
        3. The response limit is the deadline of the federation; without one, a round without
           enough clients that were passed over waits for all answers.

    References:
        W. Wu, L. He, W. Lin, R. Mao, C. Maple, S. Jarvis, SAFA: A Semi-Asynchronous Protocol for
        Fast Federated Learning with Low Overhead, IEEE Transactions on Computers 70(5), 2021,
        arXiv:1910.01355.

    Example:
        >>> from fedmuster import Feedback, Problem, Selector
        >>> selector = Selector(SAFA(), Problem(num_clients=4, cohort_size=2))
        >>> cohort = selector.select()
        >>> cohort.clients, cohort.quota
        (array([0, 1, 2, 3]), 2)
        >>> _ = selector.observe(
        ...     Feedback(round=1, clients=np.array([1, 3]), latency_seconds=np.ones(2))
        ... )
        >>> selector.select().preferred
        array([ True, False,  True, False])
    """

    name: ClassVar[str] = "safa"
    terms: ClassVar[Mapping[str, str]] = {
        "preferred": "1 if it was not picked in the last round: the round waits for it"
    }
    cohort_rule: ClassVar[CohortRule] = "everyone"
    rounds_only: ClassVar[str | None] = (
        "everybody is asked, and a quota of answers closes the round"
    )
    learns: ClassVar[bool] = False

    lag_tolerance: int = 5

    def __post_init__(self) -> None:
        check_types(self)
        require(self.lag_tolerance >= 1, self, "lag_tolerance", "an integer >= 1")

    @property
    def stale_answers(self) -> Staleness:
        """Late replies enter the server's cache."""
        return CachedModels(lag_tolerance=self.lag_tolerance)

    def init(self, problem: Problem) -> SAFAState:
        """No client picked yet."""
        return SAFAState(
            picked=np.zeros(problem.num_clients, dtype=np.bool_),
            quota=np.array(problem.cohort_size),
        )

    def select(self, state: SAFAState, view: RoundView, rng: Generator) -> Selection:
        """All available clients, and those that the round waits for."""
        everyone = Selection.of(view, slice(None), np.flatnonzero(view.available))
        return replace(everyone, quota=int(state.quota), preferred=~state.picked[everyone.clients])

    def observe(self, state: SAFAState, selection: Selection, feedback: Feedback) -> None:
        """Note the picked clients."""
        state.picked[:] = False
        state.picked[feedback.clients[feedback.entered]] = True

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return Everyone(formula="every available client trains", term="preferred")

    def scores(self, state: SAFAState, view: RoundView) -> Mapping[str, FloatArray]:
        """1 for clients that were not picked last time, 0 for the others."""
        return {"preferred": np.where(view.available, ~state.picked, np.nan)}

"""LinUCB: one linear model of all contexts."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.linear import (
    SharedRidgeState,
    learn_together,
    moderated,
    predict_together,
    require_moderate,
    shared_ridge,
)
from fedmuster.bandits.utility import participated
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import FedmusterWarning
from fedmuster.core.explaining import Moment, Rule
from fedmuster.core.policy import POLICIES, CohortRule, PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView, Selection
from fedmuster.policies.explaining.placements import BestPlacement
from fedmuster.policies.score_columns import at_edges, costs
from fedmuster.solvers.assignment import AssignmentSolver, LagrangianAssignment, best_placement


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class LinUCB(PolicyTraits):
    """Ranks clients by the upper bound of a linear model of answering in time.

    One ridge regression for all pairs of client and edge predicts whether an answer comes in time,
    ``X ~ theta · x`` with x = (1, context). The optimistic ``theta · x + alpha ||x||_{H^-1}``
    (Li et al., Alg. 1), at least 0, is what a pair is worth in P2 (COCS Eq. 10).

    Args:
        alpha: width of the confidence bound; Li et al.: ``1 + sqrt(ln(2/delta) / 2)``, tuned.
        regularisation: lambda of the ridge regression. Li et al.: 1.
        learns_from: the outcomes of "pairs", each by itself; or of "decisions", as in COCS: the
            number of participants of a round is linear in the sum of its contexts, and that is all
            that is heard.
        solver: how P2 is solved.

    State:
        H and b of the regression.

    Deviations:
        1. COCS compares with a LinUCB that learns the utility of whole decisions. By default each
           pair's own outcome is learned, which is known, too, and can only help.
        2. One model for all pairs; in Li et al.'s Alg. 1 each arm has its own, which could not say
           anything of clients never seen.
        3. The optimism of a decision is the sum of that of its pairs, which is no less.
        4. Where the server sees no features, x is 1, and all clients are alike.
        5. Without rounds, "decisions" are clients that were chosen together and are heard of
           together.
        6. A feature of an available client beyond 10⁶ is refused: its square would leave no digits
           for the others.

    References:
        L. Li, W. Chu, J. Langford, R. E. Schapire, A Contextual-Bandit Approach to Personalized
        News Article Recommendation, WWW 2010; as a baseline in Z. Qu et al., Context-Aware Online
        Client Selection for Hierarchical Federated Learning, IEEE TPDS 33(12), 2022.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> from fedmuster.core.edges import EdgeView
        >>> network = EdgeView(
        ...     coverage=np.ones((4, 2), dtype=bool), cost=np.full(4, 2.0), budget=np.full(2, 3.5)
        ... )
        >>> problem = Problem(num_clients=4, cohort_size=4, num_edges=2, num_features=1)
        >>> context = np.array([[0.1, 0.2], [0.9, 0.1], [0.2, 0.2], [0.1, 0.8]])[:, :, None]
        >>> placement = Selector(LinUCB(), problem).select(edges=network, features=context)
        >>> placement.clients, placement.edges
        (array([1, 3]), array([0, 1]))
    """

    name: ClassVar[str] = "linucb"
    terms: ClassVar[Mapping[str, str]] = {"expected": "what the regression expects of its context"}
    cohort_rule: ClassVar[CohortRule] = "at most"
    assigns_edges: ClassVar[bool] = True

    alpha: float = 1.0
    regularisation: float = 1.0
    learns_from: Literal["pairs", "decisions"] = "pairs"
    solver: AssignmentSolver = field(default_factory=LagrangianAssignment)

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.alpha < np.inf, self, "alpha", "a number >= 0")
        require(0 < self.regularisation < np.inf, self, "regularisation", "a number > 0")

    def init(self, problem: Problem) -> SharedRidgeState:
        """Nothing observed yet."""
        return shared_ridge(1 + problem.num_features, self.regularisation)

    def select(self, state: SharedRidgeState, view: RoundView, rng: Generator) -> Selection:
        """The best placement by the optimistic predictions."""
        if view.round == 1 and view.features is None:
            warnings.warn(
                "linucb: the server sees no features, so all clients are alike to it; use a world "
                "with features, or a policy without",
                FedmusterWarning,
                stacklevel=3,
            )
        require_moderate(view.features, view.available, owner=self.name)
        pairs, expected, bonus = self._terms(state, view)
        value = np.nan_to_num(_index(view, pairs, expected + bonus), nan=0.0)
        return best_placement(view, value, solver=self.solver, rng=rng)

    def observe(self, state: SharedRidgeState, selection: Selection, feedback: Feedback) -> None:
        """Learn who of the cohort was in time."""
        rows = np.argsort(feedback.clients)  # sums must not depend on who answered first
        place = np.searchsorted(selection.clients, feedback.clients[rows])
        features = None if selection.features is None else selection.features[place]
        context = _context(features, len(rows))
        in_time = participated(feedback)[rows].astype(np.float64)
        if self.learns_from == "decisions":
            context, in_time = context.sum(axis=0, keepdims=True), in_time.sum(keepdims=True)
        learn_together(state, context, in_time)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return BestPlacement(
            formula="the placement with the largest sum of expected + confidence_bonus, at least 0 "
            "each, within budgets",
            terms=("expected", "confidence_bonus"),
            value=_optimistic_value,
        )

    def scores(self, state: SharedRidgeState, view: RoundView) -> Mapping[str, FloatArray]:
        """The highest index of each client, and at each edge the terms of its index there."""
        pairs, expected, bonus = self._terms(state, view)
        index = np.nan_to_num(_index(view, pairs, expected + bonus), nan=-np.inf).max(axis=1)
        return {
            "score": np.where(np.isfinite(index), index, np.nan),
            **at_edges(view, pairs, expected=expected, confidence_bonus=bonus),
            **costs(view),
        }

    def _terms(
        self, state: SharedRidgeState, view: RoundView
    ) -> tuple[tuple[IntArray, ...], FloatArray, FloatArray]:
        """The pairs that can be asked, and of each the prediction and how unsure that is."""
        pairs = np.nonzero(view.network.coverage & view.available[:, None])
        features = None if view.pair_features is None else view.pair_features[pairs]
        expected, width = predict_together(state, _context(features, len(pairs[0])))
        return pairs, expected, self.alpha * width


def _index(view: RoundView, pairs: tuple[IntArray, ...], optimistic: FloatArray) -> FloatArray:
    """[K, M], the optimistic prediction, at least 0; NaN where a client cannot be asked."""
    index = np.full(view.network.coverage.shape, np.nan)
    index[pairs] = np.maximum(optimistic, 0.0)
    return index


def _context(features: FloatArray | None, count: int) -> FloatArray:
    """x = (1, features)."""
    ones = np.ones((count, 1))
    return ones if features is None else np.column_stack([ones, moderated(features)])


def _optimistic_value(moment: Moment) -> FloatArray:
    """[K, M], LinUCB's index."""
    return np.maximum(moment.at_edges("expected") + moment.at_edges("confidence_bonus"), 0.0)

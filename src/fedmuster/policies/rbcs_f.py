"""RBCS-F: contextual bandits with a fairness guarantee."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.linear import RidgeState, learn, moderated, predict, require_moderate, ridge
from fedmuster.bandits.rewards import QueueState, empty_queues, queue_length, serve
from fedmuster.core.config import check_types, require
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits
from fedmuster.core.records import Feedback, FloatArray, IntArray, Problem, RoundView, Selection
from fedmuster.core.state import shared
from fedmuster.policies.explaining.best_set import BestSet
from fedmuster.policies.score_columns import EVERYBODY
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.bottleneck_problem import BruteForce, Solver, best_cohort


@dataclass(slots=True)
class RBCSFState:
    """Of each client a ridge regression, its queue and the round in which its last job ended.

    And the longest latency.
    """

    latency: RidgeState
    queue: QueueState
    last_round: IntArray
    slowest_seconds: FloatArray = shared()


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class RBCSF(PolicyTraits):
    """Cohorts that a linear model of the context expects to be fast, with a guaranteed share.

    The latency of a client is linear in its context c: the features of the round (in the paper
    1/free CPU ratio and bits/bandwidth) and whether it took part in the last round. One ridge
    regression per client gives the optimistic ``tau = max(c · theta - alpha ||c||_{H^-1}, 0)``;
    a virtual queue ``Z <- max(0, Z + beta - chosen)`` says how much participation it is owed. A
    round minimises ``V max_S tau - sum_S Z`` over m-sets: the same sweep as BSFL's, exact.

    Args:
        beta: guaranteed share of the rounds of every client. Paper: 0.15.
        regularisation: lambda of the ridge regression. Paper: 1.
        alpha: width of the confidence bound. Paper: 0.1.
        patience: V, how much latency weighs against fairness. Paper: 5, 20, 50.
        solver: how the best set is found.

    State:
        Of each client H^-1 and b, its queue and the last round it took part in.

    Deviations:
        1. Where the server sees no features, the context is (1, took part in the last round).
        2. A client that was asked and did not complete counts as the longest latency seen.
        3. The best set is found exactly; which of several equal ones is taken, chance decides.
        4. Without rounds, as many clients as a cohort has make up a round. A client took part in
           the last round if its last job ended in this round or in the one before. A client that
           is chosen twice in a round serves its queue twice, which grows once.
        5. A feature of an available client beyond 10⁶ is refused: its square would leave no digits
           for the others.

    References:
        T. Huang, W. Lin, W. Wu, L. He, K. Li, A. Zomaya, An Efficiency-Boosting Client Selection
        Scheme for Federated Learning with Fairness Guarantee, IEEE TPDS 32(7), 2021.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> Selector(RBCSF(), Problem(num_clients=20, cohort_size=5)).select().clients.shape
        (5,)
    """

    name: ClassVar[str] = "rbcs-f"
    terms: ClassVar[Mapping[str, str]] = {
        "owed_rounds": "its queue: rounds that it is owed by the fairness guarantee",
        "latency_seconds": "expected latency less what it may be shorter, at least 0",
        "expected_seconds": "what its regression expects in this context",
        "bonus_seconds": "alpha times the width of the confidence interval",
    }

    beta: float = 0.15
    regularisation: float = 1.0
    alpha: float = 0.1
    patience: float = 20.0
    solver: Solver = Exact()

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.beta <= 1, self, "beta", "a number in [0, 1]")
        require(0 < self.regularisation < np.inf, self, "regularisation", "a number > 0")
        require(0 <= self.alpha < np.inf, self, "alpha", "a number >= 0")
        require(0 <= self.patience < np.inf, self, "patience", "a number >= 0")

    def init(self, problem: Problem) -> RBCSFState:
        """No client observed yet; all queues are empty."""
        dimension = max(problem.num_features, 1) + 1
        return RBCSFState(
            latency=ridge(problem.num_clients, dimension, self.regularisation),
            queue=empty_queues(problem.num_clients, problem.first_round),
            last_round=np.zeros(problem.num_clients, dtype=np.int64),
            slowest_seconds=np.array(0.0),
        )

    def select(self, state: RBCSFState, view: RoundView, rng: Generator) -> Selection:
        """The best compromise of optimistic latency and queues."""
        require_moderate(view.features, view.available, owner=self.name)
        rows = view.candidates()
        expected, bonus, owed = self._terms(state, view, rows)
        # min V max tau - sum Z  =  -max (min (-V tau) + (1/m) sum (m Z)): the bottleneck problem.
        return best_cohort(
            view,
            rows,
            bottleneck=-self.patience * _optimistic(expected, bonus),
            weight=view.num_to_choose * owed,
            solver=self.solver,
            rng=rng,
        )

    def observe(self, state: RBCSFState, selection: Selection, feedback: Feedback) -> None:
        """Update the regressions of the cohort, and serve its queues."""
        answered = feedback.answered
        slowest = feedback.latency_seconds[answered].max(initial=float(state.slowest_seconds))
        state.slowest_seconds[...] = slowest
        latency = np.where(answered, feedback.latency_seconds, slowest)
        features = None
        if selection.features is not None:
            features = selection.features[np.searchsorted(selection.clients, feedback.clients)]
        context = _context(features, state.last_round[feedback.clients], selection.round)
        learn(state.latency, feedback.clients, context, latency)
        serve(state.queue, selection.clients, round_=selection.round, rate=self.beta)
        state.last_round[selection.clients] = feedback.round

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return BestSet(
            formula=f"of all cohorts the one with the smallest {self.patience:g} · (longest "
            "latency_seconds) - (sum of owed_rounds), where latency_seconds = expected_seconds - "
            "bonus_seconds, at least 0",
            slowest="latency_seconds",
            parts=(("expected_seconds", 1.0), ("bonus_seconds", -1.0)),
            weights=("owed_rounds",),
            scale=-self.patience,
            times_size=True,
            exact=isinstance(self.solver, Exact | BruteForce),
        )

    def scores(self, state: RBCSFState, view: RoundView) -> Mapping[str, FloatArray]:
        """Optimistic latency (and its terms) and queue; only a cohort has both in one number."""
        expected, bonus, owed = self._terms(state, view, EVERYBODY)
        return {
            "latency_seconds": _optimistic(expected, bonus),
            "owed_rounds": owed,
            "expected_seconds": expected,
            "bonus_seconds": bonus,
        }

    def _terms(
        self, state: RBCSFState, view: RoundView, rows: IntArray | slice
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Expected latency, by how much it is lowered for being uncertain, queue."""
        features = None if view.features is None else view.features[rows]
        context = _context(features, state.last_round[rows], view.round)
        expected, width = predict(state.latency, rows, context)
        return expected, self.alpha * width, queue_length(state.queue, rows, view.round, self.beta)


def _optimistic(expected: FloatArray, bonus: FloatArray) -> FloatArray:
    """tau, never below 0."""
    return np.maximum(expected - bonus, 0.0)


def _context(features: FloatArray | None, last_round: IntArray, round_: int) -> FloatArray:
    """The features (or an intercept) and whether the client took part in the last round."""
    took_part = (last_round >= round_ - 1) & (last_round > 0)
    first = np.ones((len(last_round), 1)) if features is None else moderated(features)
    return np.column_stack([first, took_part])

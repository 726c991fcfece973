"""Oracles of flat federated learning: the genie of regret, and the fastest in expectation."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.rewards import CohortReward, check_reward
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, shared_settings
from fedmuster.core.errors import DataError
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import POLICIES, PolicyTraits, Stateless
from fedmuster.core.records import Feedback, Problem, RoundView, Selection, of_rows
from fedmuster.core.state import NoState, given
from fedmuster.policies.bottleneck_policy import BottleneckPolicy, clusters_for
from fedmuster.policies.explaining.best_set import BestSet
from fedmuster.policies.explaining.simple_rules import Highest
from fedmuster.privacy.schedules import Geometric, Schedule
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.bottleneck_problem import BottleneckProblem
from fedmuster.solvers.top_k import highest, nobody


@dataclass(slots=True)
class GenieState:
    """How often each client took part, and what follows from the problem."""

    count: IntArray
    target_share: FloatArray = given()
    clusters: IntArray = given()


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Genie(PolicyTraits):
    """The best cohort that true expected speeds can buy; regret is measured against it.

    Takes the m-set with the largest ``min mu_k + alpha Phi_g + gamma Phi_p`` for the true
    ``mu_k = E[tau_min / tau_k]`` (BSFL Eq. 6; PAUSE Eq. 10), solved exactly for any K.

    Args:
        alpha: weight of generalisation.
        beta: exponent of the generalisation term.
        gamma: weight of the privacy that is left; 0 for BSFL's reward.
        schedule: how participations spend privacy, where no ledger says what is left.
        rho: what each further client of a cluster costs.

    State:
        Of each client the participations.

    Deviations:
        1. Where a world drops answers, ``mu_k`` counts a dropped answer as speed 0, as the
           policies do.

    References:
        D. Ben Ami, K. Cohen, Q. Zhao, Client Selection for Generalization in Accelerated
        Federated Learning: A Multi-Armed Bandit Approach, IEEE Access 13, 2025.

    Example:
        >>> from fedmuster import Problem, Selector
        >>> from fedmuster.core.records import Truth
        >>> seconds = np.array([0.5, 0.1, 0.2, 0.4])
        >>> truth = Truth(mean_latency_seconds=seconds, mean_speed=0.1 / seconds)
        >>> Selector(Genie(), Problem(num_clients=4, cohort_size=2)).select(truth=truth).clients
        array([1, 2])
    """

    name: ClassVar[str] = "genie"
    terms: ClassVar[Mapping[str, str]] = {
        **BottleneckPolicy.terms,
        "true_speed": "the true expected speed, which only oracles know",
    }
    oracle: ClassVar[bool] = True
    rounds_only: ClassVar[Any] = property(attrgetter("_reward.rounds_only"))

    alpha: float = 2.0
    beta: float = 1.0
    gamma: float = 0.0
    schedule: Schedule = Geometric()
    rho: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        check_reward(self)

    @property
    def _reward(self) -> CohortReward:
        return CohortReward.of(self)

    @classmethod
    def of(cls, reward: CohortReward) -> Self:
        """The genie that wants this reward."""
        return cls(**shared_settings(cls, reward))

    def init(self, problem: Problem) -> GenieState:
        """No client took part yet."""
        return GenieState(
            count=np.zeros(problem.num_clients, dtype=np.int64),
            target_share=problem.target_share(),
            clusters=clusters_for(self._reward, problem),
        )

    def instance(self, state: GenieState, view: RoundView) -> BottleneckProblem:
        """This round's problem over the candidates of ``view`` (BSFL Eq. 6; PAUSE Eq. 10)."""
        if view.truth is None:
            raise DataError("Genie: the view holds no truth, which only a simulated world knows")
        rows = view.candidates()
        target = of_rows(state.target_share, rows)
        return BottleneckProblem(
            bottleneck=view.truth.mean_speed[rows],
            weight=self._reward.weights(
                state.count[rows], view.round, target, privacy_left=view.privacy_of(rows)
            ),
            size=view.num_to_choose,
            clusters=state.clusters[rows] if self.rho > 0 else None,
            penalty=self._reward.penalty,
        )

    def select(self, state: GenieState, view: RoundView, rng: Generator) -> Selection:
        """The best cohort by Eq. 6."""
        if view.num_to_choose == 0:
            return nobody(view)
        positions = Exact().solve(self.instance(state, view), rng)
        return Selection.of(view, view.candidates(), positions)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        weights = ("generalisation", "privacy") if self.gamma > 0 else ("generalisation",)
        return BestSet(
            formula="of all cohorts the one with the largest sum of its lowest true_speed and its "
            f"mean {' + '.join(weights)}",
            slowest="true_speed",
            weights=weights,
            penalty=self.alpha * self.rho,
        )

    def scores(self, state: GenieState, view: RoundView) -> Mapping[str, FloatArray]:
        """The true speed of each client, and what it adds to a cohort besides."""
        columns = {} if view.truth is None else {"true_speed": view.truth.mean_speed}
        target, left = state.target_share, view.privacy_left
        columns |= self._reward.terms(state.count, view.round, target, left)
        if self.rho > 0:
            columns["cluster"] = state.clusters.astype(np.float64)
        return columns

    def observe(self, state: GenieState, selection: Selection, feedback: Feedback) -> None:
        """Count who took part."""
        state.count[feedback.clients] += 1


@POLICIES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FastestInExpectation(Stateless):
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
    terms: ClassVar[Mapping[str, str]] = {
        "true_mean_seconds": "the true mean latency, which only oracles know"
    }
    oracle: ClassVar[bool] = True

    def select(self, state: NoState, view: RoundView, rng: Generator) -> Selection:
        """The shortest true mean latencies."""
        if view.truth is None:
            raise DataError("FastestInExpectation: the view holds no truth")
        rows = view.candidates()
        return highest(view, rows, -view.truth.mean_latency_seconds[rows], rng)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return Highest(
            term="true_mean_seconds", formula="the shortest true mean latencies", lowest=True
        )

    def scores(self, state: NoState, view: RoundView) -> Mapping[str, FloatArray]:
        """The true mean latency of each client."""
        return {} if view.truth is None else {"true_mean_seconds": view.truth.mean_latency_seconds}

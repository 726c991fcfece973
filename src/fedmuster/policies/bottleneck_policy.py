"""The bandit that BSFL and PAUSE share: optimistic speeds, a cohort reward, a bottleneck solver."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.rewards import CohortReward, check_reward
from fedmuster.bandits.speed import SpeedEstimator, SpeedState, check_speed
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types
from fedmuster.core.errors import ConfigError
from fedmuster.core.explaining import Rule
from fedmuster.core.policy import PolicyTraits
from fedmuster.core.records import Feedback, Problem, RoundView, Selection, of_rows
from fedmuster.core.state import given
from fedmuster.policies.explaining.best_set import BestSet
from fedmuster.policies.optimistic_candidates import OptimisticCandidates
from fedmuster.policies.score_columns import EVERYBODY, published
from fedmuster.solvers.bottleneck import Exact
from fedmuster.solvers.bottleneck_problem import BruteForce, Solver, best_cohort

MANY = 1 << 15
"""Of fewer clients, computing all indices takes less time than finding out which are needed."""


@dataclass(slots=True)
class BanditState:
    """The speed of each client, its target share ``m d_k / sum d`` (0-d if equal), its cluster."""

    speed: SpeedState
    target_share: FloatArray = given()
    clusters: IntArray = given()


@dataclass(frozen=True, kw_only=True, slots=True)
class BottleneckBandit:
    """Maximise ``min ucb + alpha Phi_g + gamma Phi_p`` (BSFL Eq. 13; PAUSE Eq. 14)."""

    speed: SpeedEstimator
    reward: CohortReward
    solver: Solver

    def init(self, problem: Problem) -> BanditState:
        """No client observed yet."""
        return BanditState(
            speed=self.speed.init(problem.num_clients),
            target_share=problem.target_share(),
            clusters=clusters_for(self.reward, problem),
        )

    def select(self, state: BanditState, view: RoundView, rng: Generator) -> Selection:
        """The best cohort for the optimistic speeds."""
        rows = view.candidates()
        clusters = state.clusters[rows] if self.reward.rho > 0 else None
        if isinstance(self.solver, Exact) and view.num_available >= MANY:
            candidates = OptimisticCandidates(
                self.speed, state.speed, self.reward, state.target_share, view, rows
            )
            chosen = self.solver.choose(
                candidates,
                size=view.num_to_choose,
                clusters=clusters,
                penalty=self.reward.penalty,
                rng=rng,
            )
            return Selection.of(view, rows, chosen)
        return best_cohort(
            view,
            rows,
            bottleneck=self.speed.upper_bound(
                state.speed, rows, round_=view.round, cohort_size=view.cohort_size
            ),
            weight=self.reward.weights(
                state.speed.inverse.count[rows],
                view.round,
                of_rows(state.target_share, rows),
                privacy_left=view.privacy_of(rows),
            ),
            clusters=clusters,
            penalty=self.reward.penalty,
            solver=self.solver,
            rng=rng,
        )

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        weights = ("generalisation", "privacy") if self.reward.gamma > 0 else ("generalisation",)
        of_bonus = ", which grows with speed_sd" if self.speed.bonus != "published" else ""
        return BestSet(
            formula="of all cohorts of this size the one with the largest sum of its lowest score "
            f"(score = mean_speed + confidence_bonus{of_bonus}) and its mean {' + '.join(weights)}",
            slowest="score",
            parts=(("mean_speed", 1.0), ("confidence_bonus", 1.0)),
            weights=weights,
            penalty=self.reward.alpha * self.reward.rho,
            exact=isinstance(self.solver, Exact | BruteForce),
        )

    def scores(self, state: BanditState, view: RoundView) -> dict[str, FloatArray]:
        """The index (optimistic speed) with its terms, and what each adds to a cohort besides."""
        count = state.speed.inverse.count
        mean, bonus = self.speed.terms(
            state.speed, EVERYBODY, round_=view.round, cohort_size=view.cohort_size
        )
        terms = {"mean_speed": mean, "confidence_bonus": bonus}
        sd = self.speed.spread(state.speed, EVERYBODY, round_=view.round)
        if sd is not None:
            terms["speed_sd"] = sd
        columns = {
            **published(mean + bonus, **terms),
            **self.reward.terms(count, view.round, state.target_share, view.privacy_left),
            "times_asked": count.astype(np.float64),
        }
        if self.reward.rho > 0:
            columns["cluster"] = state.clusters.astype(np.float64)
        return columns


class BottleneckPolicy(PolicyTraits):
    """A policy that leaves everything to a :class:`BottleneckBandit` of its settings."""

    __slots__ = ()
    solver: Solver
    terms: ClassVar[Mapping[str, str]] = {
        "mean_speed": "mean of (shortest latency) / latency so far; no answer counts as 0",
        "speed_sd": "estimated standard deviation of its speed, to which its bonus is proportional",
        "generalisation": "alpha g: positive if its data were used less than their share",
        "privacy": "gamma p: p is the share of its privacy budget that is left",
        "cluster": "clients of one cluster count less together",
    }
    rounds_only: ClassVar[Any] = property(lambda policy: CohortReward.of(policy).rounds_only)

    def __post_init__(self) -> None:
        check_types(self)
        check_reward(self)
        check_speed(self)

    @property
    def bandit(self) -> BottleneckBandit:
        """The bandit with this policy's settings."""
        return BottleneckBandit(
            speed=SpeedEstimator.of(self), reward=CohortReward.of(self), solver=self.solver
        )

    def init(self, problem: Problem) -> BanditState:
        """No client observed yet."""
        return self.bandit.init(problem)

    def select(self, state: BanditState, view: RoundView, rng: Generator) -> Selection:
        """The best cohort by BSFL's Eq. 13 or PAUSE's Eq. 14."""
        return self.bandit.select(state, view, rng)

    def observe(self, state: BanditState, selection: Selection, feedback: Feedback) -> None:
        """Update counts and means of the cohort (BSFL Eq. 10, 11; PAUSE Eq. 12)."""
        self.bandit.speed.update(state.speed, feedback)

    def rule(self) -> Rule:
        """The policy's rule, for explanations."""
        return self.bandit.rule()

    def scores(self, state: BanditState, view: RoundView) -> Mapping[str, FloatArray]:
        """The index of each client, its terms, and what it adds to a cohort besides."""
        return self.bandit.scores(state, view)


def clusters_for(reward: CohortReward, problem: Problem) -> IntArray:
    """The clusters of the problem; empty unless ``reward`` charges for repeats."""
    if reward.rho == 0:
        return np.empty(0, dtype=np.int64)
    if problem.clusters is None:
        raise ConfigError(
            f"rho = {reward.rho} charges for clients of the same cluster, but the problem has no "
            "clusters: give Problem.clusters (or num_clusters of the world), or set rho = 0",
            key=("rho",),
        )
    return problem.clusters

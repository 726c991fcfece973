"""What BSFL and PAUSE have in common: an optimistic speed, a cohort reward, a solver."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedmuster.core.blocks import scratch
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import (
    FloatArray,
    IntArray,
    Problem,
    RoundView,
    Selection,
    of_rows,
)
from fedmuster.core.state import given
from fedmuster.estimators.speed import SpeedEstimator, SpeedState
from fedmuster.objectives.reward import CohortReward
from fedmuster.policies.published import EVERYBODY, published
from fedmuster.solvers.cohort import Solver, best_cohort


@dataclass(slots=True)
class BanditState:
    """What is known of each client.

    ``target_share`` is ``m d_k / sum d`` (0-d where all clients count alike); ``clusters`` is
    empty where the reward does not look at them.
    """

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
        """Nobody observed yet."""
        return BanditState(
            speed=self.speed.init(problem.num_clients),
            target_share=problem.target_share(),
            clusters=clusters_for(self.reward, problem),
        )

    def select(self, state: BanditState, view: RoundView, rng: Generator) -> Selection:
        """The best cohort for the optimistic speeds."""
        rows, size = view.candidates(), view.num_available
        speed = self.speed.upper_bound(
            state.speed,
            rows,
            round_=view.round,
            cohort_size=view.cohort_size,
            out=scratch("speed", size),
        )
        weight = self.reward.weights(
            state.speed.inverse.count[rows],
            view.round,
            of_rows(state.target_share, rows),
            privacy_left=view.privacy_of(rows),
            out=scratch("weight", size),
        )
        return best_cohort(
            view,
            rows,
            bottleneck=speed,
            weight=weight,
            clusters=state.clusters[rows] if self.reward.rho > 0 else None,
            penalty=self.reward.penalty,
            solver=self.solver,
            rng=rng,
        )

    def scores(self, state: BanditState, view: RoundView) -> dict[str, FloatArray]:
        """The index (optimistic speed) with its terms, and what each adds to a cohort besides."""
        count = state.speed.inverse.count
        mean, bonus = self.speed.terms(
            state.speed, EVERYBODY, round_=view.round, cohort_size=view.cohort_size
        )
        columns = {
            **published(mean + bonus, mean_speed=mean, confidence_bonus=bonus),
            **self.reward.terms(count, view.round, state.target_share, view.privacy_left),
            "times_asked": count.astype(np.float64),
        }
        if self.reward.rho > 0:
            columns["cluster"] = state.clusters.astype(np.float64)
        return columns


def clusters_for(reward: CohortReward, problem: Problem) -> IntArray:
    """The clusters that ``reward`` looks at: none, unless it charges for repeats."""
    if reward.rho == 0:
        return np.empty(0, dtype=np.int64)
    if problem.clusters is None:
        raise ConfigError(
            f"rho = {reward.rho} charges for clients of the same cluster, but the problem has no "
            "clusters: give Problem.clusters (or num_clusters of the world), or set rho = 0",
            key=("rho",),
        )
    return problem.clusters

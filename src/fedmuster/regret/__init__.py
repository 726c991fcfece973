"""Regret: what a cohort is worth, and what the best one would have been worth."""

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Problem
from fedmuster.objectives.edge_utility import EdgeUtility
from fedmuster.policies.genie import Genie
from fedmuster.regret.cohort import CohortJudge
from fedmuster.regret.judge import Judge, Verdict
from fedmuster.regret.placement import PlacementJudge

__all__ = ["CohortJudge", "Judge", "PlacementJudge", "Verdict", "judge_for"]


def judge_for(genie: Genie | EdgeUtility, problem: Problem, *, seed: int) -> Judge:
    """Who measures regret against this genie, or in this utility where there are edge servers."""
    if isinstance(genie, EdgeUtility) != (problem.num_edges > 0):
        raise ConfigError(
            f"regret is measured by {type(genie).__name__}, expected an EdgeUtility where there "
            "are edge servers, and a Genie where there are none"
        )
    if isinstance(genie, EdgeUtility):
        return PlacementJudge(genie, problem, seed=seed)
    return CohortJudge(genie, problem, seed=seed)

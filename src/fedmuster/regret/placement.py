"""Regret against the best placement of clients at edge servers."""

import numpy as np

from fedmuster.core import state as states
from fedmuster.core.errors import DataError, PolicyError
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.streams import JUDGE, stream
from fedmuster.objectives.edge_utility import EdgeUtility
from fedmuster.objectives.participation import participated
from fedmuster.regret.judge import Verdict
from fedmuster.solvers.assignment import AssignmentProblem, LagrangianAssignment

_ROUNDING = 1e-9


class PlacementJudge:
    """Compares each placement with the best that true probabilities can buy (COCS Eq. 11).

    The gap is between the utilities of expected participants, so it is free of the round's luck.
    The best placement is found by a solver that proves it optimal in small networks; in large ones
    it is the best known, which is short of the optimum by a certified fraction of a percent.

    Args:
        utility: of participants (COCS Eq. 8 or 19).
        problem: how many edges there are.
        seed: of ties.
    """

    def __init__(self, utility: EdgeUtility, problem: Problem, *, seed: int) -> None:
        self.utility = utility
        self.num_edges = problem.num_edges
        self.seed = seed

    def assess(self, view: RoundView, selection: Selection) -> Verdict:
        """The verdict on a placement; ``view`` must hold the truth."""
        if view.truth is None or view.truth.success is None:
            raise DataError("regret: the view does not hold the true probabilities of success")
        success = view.truth.success
        chosen = float(selection.rows_of(success).sum())
        problem = AssignmentProblem.of(view, success)
        best = LagrangianAssignment().solve(problem, stream(self.seed, JUDGE, view.round))
        if chosen > best.bound + _ROUNDING * (1.0 + best.bound):
            raise PolicyError(
                f"round {view.round}: a placement was worth {chosen}, and the proved bound "
                f"{best.bound}: no proof"
            )
        # In a large network the policy may have found a better one than the judge.
        most = max(problem.total(best.pairs), chosen)
        gap = self._worth(most) - self._worth(chosen)
        return Verdict(regret=gap, additive=0.0)

    def reward(self, verdict: Verdict, feedback: Feedback, *, tau_min_seconds: float) -> float:
        """The utility of those who took part (COCS Eq. 8, 19)."""
        del verdict, tau_min_seconds
        return self._worth(float(np.count_nonzero(participated(feedback))))

    def record(self, selection: Selection, feedback: Feedback) -> None:
        """Rounds do not depend on each other."""

    def to_bytes(self) -> bytes:
        """No history."""
        return states.to_bytes({}, {})

    def load(self, image: bytes, *, source: str) -> None:
        """Nothing to take over."""

    def _worth(self, participants: float) -> float:
        return self.utility.of(participants, num_edges=self.num_edges)

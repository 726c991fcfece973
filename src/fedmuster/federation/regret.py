"""Regret: the gap between the expected worth of a cohort and that of the best one."""

from typing import NamedTuple, Protocol

import numpy as np

from fedmuster.bandits.utility import EdgeUtility, participated
from fedmuster.core import state as states
from fedmuster.core.errors import ConfigError, DataError, PolicyError
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.streams import JUDGE, stream
from fedmuster.policies.genie import Genie
from fedmuster.solvers.assignment import AssignmentProblem, LagrangianAssignment
from fedmuster.solvers.bottleneck import Exact


class Verdict(NamedTuple):
    """The worth of a cohort before it is played.

    ``regret`` is how much more the best cohort expects, never negative; ``additive`` is the part of
    the reward that does not depend on luck.
    """

    regret: float
    additive: float


class Judge(Protocol):
    """Compares each cohort with the best one that the truth can buy in the same round."""

    def assess(self, view: RoundView, selection: Selection) -> Verdict:
        """The verdict on a cohort; ``view`` must hold the truth."""

    def reward(self, verdict: Verdict, feedback: Feedback, *, tau_min_seconds: float) -> float:
        """What the cohort has earned, now that it was played."""

    def record(self, selection: Selection, feedback: Feedback) -> None:
        """Learn what the policy did; nothing for a judge without a history."""
        return

    def to_bytes(self) -> bytes:
        """An image of the history."""
        return states.to_bytes({}, {})

    def load(self, image: bytes, *, source: str) -> None:
        """Take over the history of :meth:`to_bytes`."""
        return


_ROUNDING = 1e-9


class CohortJudge(Judge):
    """Compares each cohort with the best one that true means can buy in the same round.

    The genie decides on the history of the policy that is judged, not on one of its own. The gap
    is between expectations, ``min mu + alpha Phi_g + gamma Phi_p`` (BSFL Eq. 6; PAUSE Eq. 10), so
    it is 0 for the genie's own choice and free of the round's luck.
    """

    def __init__(self, genie: Genie, problem: Problem, *, seed: int) -> None:
        self.genie = genie
        self.seed = seed
        self.state = genie.init(problem)

    def assess(self, view: RoundView, selection: Selection) -> Verdict:
        """See :class:`Judge`."""
        if len(selection.clients) == 0:
            return Verdict(regret=0.0, additive=0.0)
        instance = self.genie.instance(self.state, view)
        candidates = view.candidates()
        chosen = selection.clients
        if not isinstance(candidates, slice):
            chosen = np.searchsorted(candidates, chosen)
        speed, additive = instance.parts(chosen)
        best = Exact().solve(instance, stream(self.seed, JUDGE, view.round))
        most = instance.energy(best)
        gap = most - (speed + additive)
        if gap < -_ROUNDING * (1.0 + abs(most)):
            raise PolicyError(
                f"round {view.round}: the genie was beaten by {-gap}, so it is no genie"
            )
        return Verdict(regret=max(gap, 0.0), additive=additive)

    def reward(self, verdict: Verdict, feedback: Feedback, *, tau_min_seconds: float) -> float:
        """``min tau_min/tau + alpha Phi_g + gamma Phi_p`` (BSFL Eq. 5; PAUSE Eq. 9)."""
        return tau_min_seconds / _slowest_seconds(feedback) + verdict.additive

    def record(self, selection: Selection, feedback: Feedback) -> None:
        """See :class:`Judge`."""
        self.genie.observe(self.state, selection, feedback)

    def to_bytes(self) -> bytes:
        """See :class:`Judge`."""
        return states.to_bytes(states.learned_arrays(self.state), {})

    def load(self, image: bytes, *, source: str) -> None:
        """See :class:`Judge`."""
        arrays, _ = states.from_bytes(image, source=source)
        states.load_arrays(self.state, arrays)


def _slowest_seconds(feedback: Feedback) -> float:
    """Latency of the slowest client; infinite if one did not answer or the cohort is empty."""
    answered = feedback.answered
    if len(answered) == 0 or not answered.all():
        return float(np.inf)
    return float(feedback.latency_seconds.max())


class PlacementJudge(Judge):
    """Compares each placement with the best that true probabilities can buy (COCS Eq. 11).

    The gap is between the utilities of expected participants, so it is free of the round's luck.
    The best placement is found by a solver that proves it optimal in small networks; in large ones
    it is the best known, which is short of the optimum by a certified fraction of a percent.
    """

    def __init__(self, utility: EdgeUtility, problem: Problem, *, seed: int) -> None:
        self.utility = utility
        self.num_edges = problem.num_edges
        self.seed = seed

    def assess(self, view: RoundView, selection: Selection) -> Verdict:
        """See :class:`Judge`."""
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
        """The utility of the participants (COCS Eq. 8, 19)."""
        return self._worth(float(np.count_nonzero(participated(feedback))))

    def _worth(self, participants: float) -> float:
        return self.utility.of(participants, num_edges=self.num_edges)


def judge_for(genie: Genie | EdgeUtility, problem: Problem, *, seed: int) -> Judge:
    """The judge with this genie, or with this utility where there are edge servers."""
    if isinstance(genie, EdgeUtility) != (problem.num_edges > 0):
        raise ConfigError(
            f"regret is measured by {type(genie).__name__}, expected an EdgeUtility where there "
            "are edge servers, and a Genie where there are none"
        )
    if isinstance(genie, EdgeUtility):
        return PlacementJudge(genie, problem, seed=seed)
    return CohortJudge(genie, problem, seed=seed)

"""Regret against the genie, on the policy's own history."""

import numpy as np

from fedmuster.core import state as states
from fedmuster.core.errors import PolicyError
from fedmuster.core.records import Feedback, Problem, RoundView, Selection
from fedmuster.core.streams import JUDGE, stream
from fedmuster.policies.genie import Genie
from fedmuster.regret.judge import Verdict
from fedmuster.solvers.bottleneck import Exact

_ROUNDING = 1e-9


class CohortJudge:
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
        """The verdict on a cohort; ``view`` must hold the truth."""
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
        """Learn what the policy did."""
        self.genie.observe(self.state, selection, feedback)

    def to_bytes(self) -> bytes:
        """An image of the history."""
        return states.to_bytes(states.learned_arrays(self.state), {})

    def load(self, image: bytes, *, source: str) -> None:
        """Take over the history of :meth:`to_bytes`."""
        arrays, _ = states.from_bytes(image, source=source)
        states.load_arrays(self.state, arrays)


def _slowest_seconds(feedback: Feedback) -> float:
    """Latency of the slowest of the cohort; infinite if one did not answer or none was asked."""
    answered = feedback.answered
    if len(answered) == 0 or not answered.all():
        return float(np.inf)
    return float(feedback.latency_seconds.max())

"""How fast each client is, relative to the fastest answer that is possible."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.blocks import blocks, tabulate
from fedmuster.core.config import require
from fedmuster.core.records import Feedback, FloatArray, IntArray
from fedmuster.core.state import shared
from fedmuster.estimators.confidence import confidence_radius, log_rounds
from fedmuster.estimators.mean import MeanEstimator, MeanState


@dataclass(slots=True)
class SpeedState:
    """Mean of ``1/tau`` of each client, and the smallest latency that anybody ever had."""

    inverse: MeanState
    fastest_seconds: FloatArray = shared()


def check_speed(config: object) -> None:
    """Check those hyper-parameters of a :class:`SpeedEstimator` that ``config`` has."""
    given = getattr(config, "tau_min_seconds", None)
    require(given is None or 0 < given < np.inf, config, "tau_min_seconds", "seconds > 0")
    require(0 < getattr(config, "zeta", 1) < np.inf, config, "zeta", "a number > 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedEstimator:
    """Mean and upper confidence bound of the speed ``s = tau_min / tau`` (BSFL Eq. 8–12).

    ``tau_min`` is rarely known. It is kept outside the mean, so that a new running minimum
    re-scales the past for free. A client that did not complete had speed 0: if failures were not
    counted, a client that never answers would stay unseen, and be chosen for ever.

    Args:
        estimator: which samples count.
        tau_min_seconds: the shortest conceivable latency; None for the shortest seen so far.
        zeta: factor on the mean, > 1 to exploit more (PAUSE section V.D).
    """

    estimator: MeanEstimator
    tau_min_seconds: float | None
    zeta: float = 1.0

    def __post_init__(self) -> None:
        check_speed(self)

    def init(self, num_clients: int) -> SpeedState:
        """Nobody observed yet."""
        return SpeedState(
            inverse=self.estimator.init(num_clients), fastest_seconds=np.array(np.inf)
        )

    def update(self, state: SpeedState, feedback: Feedback) -> None:
        """Count the answers, and the missing ones, of a round."""
        answered = feedback.answered
        inverse = np.zeros(len(answered))
        np.divide(1.0, feedback.latency_seconds, out=inverse, where=answered)
        self.estimator.update(state.inverse, feedback.clients, inverse, round_=feedback.round)
        if answered.any():
            fastest = feedback.latency_seconds[answered].min()
            np.minimum(state.fastest_seconds, fastest, out=state.fastest_seconds)

    def upper_bound(
        self,
        state: SpeedState,
        rows: IntArray | slice,
        *,
        round_: int,
        cohort_size: int,
        out: FloatArray | None = None,
    ) -> FloatArray:
        """``ucb(k, t-1)``, with which round t chooses; ``+inf`` for the unseen (BSFL Eq. 9, 13)."""
        # PAUSE Eq. 13 is the same index; its large networks multiply the mean by zeta.
        bound = self._radius(state, rows, round_, cohort_size, out)
        mean, scale = state.inverse.mean[rows], self.zeta * self._tau_min(state)
        for block in blocks(len(bound)):
            bound[block] += mean[block] * scale  # BSFL Eq. 12
        return bound

    def terms(
        self, state: SpeedState, rows: IntArray | slice, *, round_: int, cohort_size: int
    ) -> tuple[FloatArray, FloatArray]:
        """Mean speed (times zeta) and confidence radius, whose sum is the upper bound."""
        mean = state.inverse.mean[rows] * (self.zeta * self._tau_min(state))
        return mean, self._radius(state, rows, round_, cohort_size)

    def _radius(
        self,
        state: SpeedState,
        rows: IntArray | slice,
        round_: int,
        cohort_size: int,
        out: FloatArray | None = None,
    ) -> FloatArray:
        log_term = (cohort_size + 1) * log_rounds(self.estimator.horizon(round_ - 1))
        count = self.estimator.effective_count(state.inverse, rows, round_=round_ - 1)
        if np.issubdtype(count.dtype, np.integer):
            whole = count.astype(np.int64, copy=False)
            return tabulate(whole, lambda c: confidence_radius(c, log_term), out)
        return confidence_radius(count, log_term)

    def _tau_min(self, state: SpeedState) -> float:
        if self.tau_min_seconds is not None:
            return self.tau_min_seconds
        fastest = float(state.fastest_seconds)
        return fastest if fastest < np.inf else 0.0  # nobody answered yet: all means are 0

"""How likely each tier is to be drawn: by its credits, and by how well the model serves it."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.state import shared


@dataclass(slots=True)
class OddsState:
    """Of each tier: probability, how often it was drawn, accuracy when it was last looked at."""

    probability: FloatArray = shared()
    drawn: IntArray = shared()
    accuracy: FloatArray = shared()


@dataclass(frozen=True, kw_only=True, slots=True)
class TierOdds:
    """TiFL's adaptive choice of a tier (Alg. 2).

    Args:
        num_tiers: T.
        credits: how often each tier may be drawn before all have spent theirs, and get them
            anew; none for any number of times.
    """

    num_tiers: int
    credits: tuple[int, ...] = ()

    def init(self) -> OddsState:
        """All tiers are equally likely."""
        return OddsState(
            probability=np.full(self.num_tiers, 1.0 / self.num_tiers),
            drawn=np.zeros(self.num_tiers, dtype=np.int64),
            accuracy=np.full(self.num_tiers, -np.inf),
        )

    def chances(self, state: OddsState) -> FloatArray:
        """[T], P(drawn now): tiers without credits left have none."""
        open_ = state.probability * (state.drawn < (self.credits or np.inf))
        return np.asarray(open_ / open_.sum())

    def credits_left(self, state: OddsState) -> FloatArray:
        """[T], how often each may be drawn before credits are given anew; NaN for any number."""
        return np.asarray((self.credits or np.nan) - state.drawn, dtype=np.float64)

    def spend(self, state: OddsState, tier: int) -> None:
        """``tier`` was drawn."""
        state.drawn[tier] += 1
        if self.credits and (state.drawn >= self.credits).all():
            state.drawn[:] = 0

    def adapt(self, state: OddsState, tier: int, accuracy: FloatArray) -> None:
        """Change the probabilities, if that of ``tier`` is not above what it was the last time.

        The lowest of the T accuracies gets T shares, …, the highest 1; equals get the same.
        """
        if accuracy[tier] <= state.accuracy[tier]:
            shares = np.count_nonzero(accuracy >= accuracy[:, None], axis=1)
            state.probability[:] = shares / shares.sum()  # TiFL Alg. 2
        state.accuracy[:] = accuracy

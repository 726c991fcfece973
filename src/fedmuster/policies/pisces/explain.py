"""Pisces' rule in words."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray
from fedmuster.core.explaining import Moment, Rule, rank
from fedmuster.core.words import number, percent, several


@dataclass(frozen=True, kw_only=True, slots=True)
class ByStaleUtility(Rule):
    """Some slots to clients never tried, the others by utility over staleness.

    Args:
        robust: whether clients without credits are excluded.
    """

    robust: bool

    needs = ("score", "utility", "mean_staleness", "exploration")

    def about(self, moment: Moment) -> str:
        """The rule, and how much is explored."""
        share = float(moment.column("exploration")[0])
        new = "no client is left that was never tried"
        if (moment.available & self._untried(moment)).any():
            new = f"each slot goes with a chance of {percent(share)} to a client never tried"
        rule = "the others go to the highest scores, utility / (mean_staleness + 1)^staleness_power"
        return f"{new}; {rule}"

    def merit(self, moment: Moment) -> FloatArray:
        """The score; clients that were never tried after all others."""
        return np.nan_to_num(moment.column("score"), nan=-np.inf)

    def worth(self, moment: Moment) -> str | None:
        """How many were exploited and explored."""
        explored = int(np.count_nonzero(self._untried(moment)[moment.cohort]))
        exploited = len(moment.cohort) - explored
        return f"{exploited:,} of the cohort were exploited and {explored:,} explored"

    def chosen(self, moment: Moment, client: int) -> str:
        """Exploited, or explored."""
        if self._untried(moment)[client]:
            return f"explored: {self._new(moment)}"
        return f"exploited: {self._standing(moment, client)}"

    def passed_over(self, moment: Moment, client: int) -> str:
        """Never tried and unlucky, without credits, or of a lower score."""
        if self._untried(moment)[client]:
            return f"it could have been explored: {self._new(moment)}"
        if self.robust and moment.column("credits")[client] == 0:
            return "its losses were outliers too often: it has no credits left"
        return self._standing(moment, client)

    def _untried(self, moment: Moment) -> BoolArray:
        return np.isnan(moment.column("utility"))

    def _standing(self, moment: Moment, client: int) -> str:
        score, utility, staleness = (moment.column(name) for name in self.needs[:3])
        tried = np.flatnonzero(moment.available & np.isfinite(score))
        taken = np.count_nonzero(np.isfinite(score[moment.cohort]))
        return (
            f"its score {number(float(score[client]))}, of utility "
            f"{number(float(utility[client]))} and mean_staleness "
            f"{number(float(staleness[client]))}, is rank {rank(score, tried, client):,} of "
            f"{len(tried):,}; {several(int(taken), 'client')} are taken by score"
        )

    def _new(self, moment: Moment) -> str:
        new = self._untried(moment)
        there = int(np.count_nonzero(moment.available & new))
        places = int(np.count_nonzero(new[moment.cohort]))
        return (
            f"it was never tried; {several(places, 'slot')} went to such clients, drawn from "
            f"{there:,} that were available"
        )

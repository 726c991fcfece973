"""Oort: who was exploited, and who explored."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.arrays import FloatArray
from fedmuster.core.explaining import Moment, rank
from fedmuster.core.words import number, percent, several
from fedmuster.policies.oort.policy import Oort


@dataclass(frozen=True, kw_only=True, slots=True)
class Guided:
    """Oort: most places by score, with some luck, the others to clients never tried."""

    policy: Oort

    needs = ("score", "statistical_utility", "staleness_bonus", "speed_factor")

    def about(self, moment: Moment) -> str:
        """The rule, and how much is explored."""
        policy = self.policy
        decayed = policy.exploration * policy.exploration_decay ** (moment.round - 1)
        share = max(decayed, policy.exploration_floor)
        new = "nobody is left who was never tried"
        if (moment.available & np.isnan(moment.column("score"))).any():
            new = f"{percent(share)} of the places go to clients never tried, by expected speed"
        return (
            f"{new}; for the others score = (statistical_utility + staleness_bonus) · "
            f"speed_factor, and those with at least {policy.cut_off:g} times the last score that "
            "would be taken are drawn by it"
        )

    def merit(self, moment: Moment) -> FloatArray:
        """The score; the unexplored after all others."""
        return np.nan_to_num(moment.column("score"), nan=-np.inf)

    def worth(self, moment: Moment) -> str | None:
        """How many were exploited and explored."""
        exploited = int(np.isfinite(moment.column("score")[moment.cohort]).sum())
        explored = len(moment.cohort) - exploited
        told = f"{exploited:,} of the cohort were exploited and {explored:,} explored"
        bar = self._bar(moment)
        return told if bar is None else f"{told}; the bar was a score of {number(bar)}"

    def chosen(self, moment: Moment, client: int) -> str:
        """Exploited, or explored."""
        if np.isnan(moment.column("score")[client]):
            return f"explored: {self._new(moment, client)}"
        return f"exploited: {self._score(moment, client)}"

    def passed_over(self, moment: Moment, client: int) -> str:
        """Never tried and unlucky, too often asked, below the bar, or above it and unlucky."""
        score = float(moment.column("score")[client])
        if np.isnan(score):
            return f"it could have been explored: {self._new(moment, client)}"
        most, times = self.policy.blacklist_rounds, float(moment.column("times_asked")[client])
        if most is not None and times > most:
            return (
                f"it was asked {times:.0f} times, more than blacklist_rounds = {most}, and such "
                "clients are left out"
            )
        told, bar = self._score(moment, client), self._bar(moment)
        if bar is None:
            return f"{told}; no place was left to exploit"
        if score < bar:
            return f"{told}, below the bar of {number(bar)}"
        return f"{told}, above the bar of {number(bar)}, but the draw among these took others"

    def _bar(self, moment: Moment) -> float | None:
        score = moment.column("score")
        places = int(np.isfinite(score[moment.cohort]).sum())
        if places == 0:
            return None
        known = np.sort(score[moment.available & np.isfinite(score)])
        return float(self.policy.cut_off * known[-places])

    def _score(self, moment: Moment, client: int) -> str:
        score = moment.column("score")
        explored = np.flatnonzero(moment.available & np.isfinite(score))
        utility, bonus, factor = (float(moment.column(name)[client]) for name in self.needs[1:])
        return (
            f"its score {number(float(score[client]))} = (statistical_utility {number(utility)} + "
            f"staleness_bonus {number(bonus)}) · speed_factor {number(factor)} is rank "
            f"{rank(score, explored, client):,} of {len(explored):,} explored"
        )

    def _new(self, moment: Moment, client: int) -> str:
        new = np.isnan(moment.column("score"))
        there = int(np.count_nonzero(moment.available & new))
        places = int(np.count_nonzero(new[moment.cohort]))
        share = float(moment.column("exploration_share")[client])
        return (
            f"it was never tried; {several(places, 'place')} went to such clients, of whom "
            f"{there:,} were available, in proportion to expected speed (its share is "
            f"{percent(share)})"
        )

"""TiFL: which tier was drawn, and who of it."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray
from fedmuster.policies.tifl import TiFL
from fedmuster.report.explain.moment import Moment
from fedmuster.report.explain.words import number, percent, several


@dataclass(frozen=True, kw_only=True, slots=True)
class ByTier:
    """TiFL: a tier is drawn, and the cohort from it."""

    policy: TiFL

    needs = ("tier", "tier_probability", "times_asked")

    def about(self, moment: Moment) -> str:
        """The rule."""
        return (
            f"one of {self.policy.num_tiers} tiers of about equally fast clients is drawn, and the "
            "cohort uniformly from it; clients that are not yet profiled come first"
        )

    def merit(self, moment: Moment) -> FloatArray:
        """As the policy orders clients, for the tier that it must have drawn."""
        drawn = self._drawn(moment)
        return self._priority(moment, 0 if drawn is None else drawn)

    def worth(self, moment: Moment) -> str | None:
        """Which tier was drawn."""
        fitting = self.fitting(moment)
        if not fitting:
            return "All of the cohort are to be profiled, whichever tier was drawn"
        mine = moment.column("tier") == fitting[0]
        members = int(np.count_nonzero(moment.available & mine))
        others = "".join(f" or {tier}" for tier in fitting[1:])
        told = f"Tier {fitting[0]}{others} was drawn, as the cohort shows"
        if mine.any():
            told += f"; its chance was {percent(float(moment.column('tier_probability')[mine][0]))}"
        return f"{told}, and {several(members, 'client')} of it could be chosen"

    def chosen(self, moment: Moment, client: int) -> str:
        """To be profiled, or of the tier that was drawn, or to help out."""
        tier, drawn = float(moment.column("tier")[client]), self._drawn(moment)
        if self._lacking(moment)[client] > 0:
            return f"it must be profiled; {self._luck(moment, client)}"
        if np.isnan(tier):
            return f"it was never asked, and may help any tier; {self._luck(moment, client)}"
        if tier == drawn:
            return f"it is of tier {tier:.0f}, which was drawn; {self._luck(moment, client)}"
        return f"it is of tier {tier:.0f}, and tier {drawn}, which was drawn, had too few"

    def passed_over(self, moment: Moment, client: int) -> str:
        """Of another tier, or unlucky within its own."""
        tier, drawn = float(moment.column("tier")[client]), self._drawn(moment)
        if self._lacking(moment)[client] > 0:
            return f"it is to be profiled; {self._luck(moment, client)}"
        if np.isnan(tier):
            return f"it was never asked, and may help any tier; {self._luck(moment, client)}"
        if drawn is None:
            return f"it is profiled (tier {tier:.0f}), and those who are not come first"
        if tier == drawn:
            return f"it is of tier {tier:.0f}, which was drawn; {self._luck(moment, client)}"
        own = float(moment.column("tier_probability")[client])
        return (
            f"it is of tier {tier:.0f} (mean latency "
            f"{number(float(moment.column('mean_seconds')[client]))} s), and tier {drawn} was "
            f"drawn; its own would have been with a chance of {percent(own)}"
        )

    def fitting(self, moment: Moment) -> list[int]:
        """The tiers for which this cohort is the best there is, most of its clients first."""
        cohort, others = moment.cohort, moment.passed_over
        if len(cohort) == 0 or (self._lacking(moment)[cohort] > 0).all():
            return []
        fitting = []
        for tier in range(self.policy.num_tiers):
            merit = self._priority(moment, tier)
            if merit[cohort].min() >= merit[others].max(initial=-np.inf):
                fitting.append((int(np.count_nonzero(moment.column("tier")[cohort] == tier)), tier))
        return [tier for _, tier in sorted(fitting, reverse=True)]

    def _luck(self, moment: Moment, client: int) -> str:
        merit = self.merit(moment)
        alike = np.flatnonzero(moment.available & (merit == merit[client]))
        taken = int(np.isin(alike, moment.cohort).sum())
        return (
            f"{taken:,} of {several(len(alike), 'such client')} were taken, by chance "
            f"({percent(taken / len(alike))} each)"
        )

    def _lacking(self, moment: Moment) -> FloatArray:
        """How often each must still be asked to be profiled; 0 when enough are."""
        lacking = self.policy.profiling_rounds - np.nan_to_num(moment.column("times_asked"))
        done = np.count_nonzero(lacking <= 0) >= self.policy.profiled_share * len(lacking)
        return np.zeros(len(lacking)) if done else np.maximum(lacking, 0.0)

    def _priority(self, moment: Moment, drawn: int) -> FloatArray:
        """The tier that was drawn is 0, then the next faster, the next slower, …"""
        slower_by = np.nan_to_num(moment.column("tier"), nan=drawn) - drawn
        of_tier = (slower_by < 0) - 2.0 * np.abs(slower_by)
        lacking = self._lacking(moment)
        return np.where(lacking > 0, lacking, of_tier)

    def _drawn(self, moment: Moment) -> int | None:
        """The tier that fits best; None if all of the cohort are to be profiled."""
        fitting = self.fitting(moment)
        return fitting[0] if fitting else None

"""How FedSUV explains its choice."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.explaining import Moment, Rule, rank
from fedmuster.core.words import number, several

_WHY = {
    1.0: "another is certainly more likely to answer in time",
    2.0: "another is certainly as good in validity and in utility",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class UncertainAndUseful(Rule):
    """The least-known candidate, and the candidates with the highest possible utility."""

    needs = ("validity_low", "utility_high", "diagonal", "left_by")

    def about(self, moment: Moment) -> str:
        """The rule."""
        there = int(np.count_nonzero(self._candidates(moment)))
        return (
            "the candidate with the longest diagonal (of whom least is known), and those with the "
            f"highest utility_high; {several(there, 'candidate')} were available"
        )

    def merit(self, moment: Moment) -> FloatArray:
        """The upper utility, infinite for unknown clients; candidates come first."""
        upper = np.nan_to_num(moment.column("utility_high"), nan=np.inf)
        return np.where(moment.column("left_by") == 0, upper, np.minimum(upper, 0.0) - 1e100)

    def worth(self, moment: Moment) -> str | None:
        """The client that is explored."""
        explored = self._explored(moment)
        if explored is None:
            return None
        return f"{moment.name(explored)} is there because least is known of it"

    def chosen(self, moment: Moment, client: int) -> str:
        """The most uncertain, or one of the highest upper utilities."""
        if self._left(moment, client):
            return f"{self._left(moment, client)}, but there were too few candidates"
        if client == self._explored(moment):
            return f"of it least is known: its diagonal is {self._value(moment, client)}"
        return self._utility(moment, client)

    def passed_over(self, moment: Moment, client: int) -> str:
        """No candidate, or not useful enough."""
        if self._left(moment, client):
            return self._left(moment, client)
        return f"{self._utility(moment, client)}, and its diagonal {self._value(moment, client)}"

    def _candidates(self, moment: Moment) -> BoolArray:
        return np.asarray(moment.available & (moment.column("left_by") == 0))

    def _explored(self, moment: Moment) -> int | None:
        inside = moment.cohort[moment.column("left_by")[moment.cohort] == 0]
        if len(inside) == 0:
            return None
        width = np.nan_to_num(moment.column("diagonal"), nan=np.inf)
        if np.isinf(width[inside]).all():
            return None
        explored = int(inside[np.argmax(width[inside])])
        # Of clients that are chosen one by one, most are there for their utility.
        wider = width[self._candidates(moment)] > width[explored]
        return None if moment.num_edges == 0 and wider.any() else explored

    def _left(self, moment: Moment, client: int) -> str:
        why = _WHY.get(float(moment.column("left_by")[client]))
        if why is None:
            return ""
        since = moment.column("left_round")[client]
        return f"it is no candidate since round {since:.0f}, because {why}"

    def _utility(self, moment: Moment, client: int) -> str:
        upper = float(moment.column("utility_high")[client])
        if np.isnan(upper):
            return "nothing is known of it yet, so that chance decides"
        inside = np.flatnonzero(self._candidates(moment))
        place = rank(self.merit(moment), inside, client)
        low, high = (float(moment.column(f"validity_{end}")[client]) for end in ("low", "high"))
        return (
            f"its utility_high {number(upper)} is rank {place:,} of {len(inside):,} candidates "
            f"(validity {number(low)} … {number(high)}){self._tie(moment, client, inside)}"
        )

    def _tie(self, moment: Moment, client: int, inside: IntArray) -> str:
        alike = inside[self.merit(moment)[inside] == self.merit(moment)[client]]
        tied = 0 < int(np.isin(alike, moment.cohort).sum()) < len(alike)
        return f", as that of {len(alike) - 1:,} others; chance decided" if tied else ""

    def _value(self, moment: Moment, client: int) -> str:
        inside = np.flatnonzero(self._candidates(moment))
        width = np.nan_to_num(moment.column("diagonal"), nan=np.inf)
        return (
            f"{number(float(width[client]))}, rank {rank(width, inside, client):,} of "
            f"{len(inside):,}"
        )

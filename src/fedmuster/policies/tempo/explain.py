"""Tempo's rule in words."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.arrays import FloatArray
from fedmuster.core.explaining import Moment, Rule, rank
from fedmuster.core.words import number, percent


@dataclass(frozen=True, kw_only=True, slots=True)
class ByTempo(Rule):
    """The highest value per slot-second; some places by coverage.

    Args:
        coverage: the share of places for the clients with the largest age times chance.
        waits_for_all: whether a round waits for its whole cohort.
    """

    coverage: float
    waits_for_all: bool

    needs = ("score", "value", "slot_seconds", "price")

    def about(self, moment: Moment) -> str:
        """The rule, and the price of a slot-second."""
        price = number(float(moment.column("price")[0]))
        rule = "the others go to the highest scores, value / slot_seconds"
        if self.waits_for_all:
            rule += (
                "; in rounds, to the cohort with the largest sum of values less the price of the "
                "slot-seconds until its slowest client answers"
            )
        return (
            f"places go first to clients below their minimum share; if there are none, each goes, "
            f"with a chance of {percent(self.coverage)}, to the client with the largest age · "
            f"chance; {rule}; the last answers earned {price} a slot-second"
        )

    def merit(self, moment: Moment) -> FloatArray:
        """The value per slot-second."""
        return np.nan_to_num(moment.column("score"), nan=-np.inf)

    def chosen(self, moment: Moment, client: int) -> str:
        """By its score, or by coverage."""
        score = moment.column("score")
        others = score[moment.passed_over]
        told = self._standing(moment, client)
        if not self.waits_for_all and len(others) > 0 and score[client] < others.max():
            return f"it was chosen for coverage, or it is below its minimum share: {told}"
        return told

    def passed_over(self, moment: Moment, client: int) -> str:
        """Its score is too low."""
        return self._standing(moment, client)

    def _standing(self, moment: Moment, client: int) -> str:
        score, value, seconds, price = (float(moment.column(name)[client]) for name in self.needs)
        available = np.flatnonzero(moment.available)
        place = rank(moment.column("score"), available, client)
        return (
            f"a value of {number(value)} for {number(seconds)} s is {number(score)} a slot-second, "
            f"rank {place:,} of {len(available):,}; with the price {number(price)} of a "
            f"slot-second it gains {number(value - price * seconds)}"
        )

"""Rule of policies that choose a cohort one client after the other."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.arrays import FloatArray
from fedmuster.core.explaining import Moment, Rule, rank
from fedmuster.core.words import number, several


@dataclass(frozen=True, kw_only=True, slots=True)
class OneByOne(Rule):
    """In each turn the client of the highest gain, given the clients of the turns before.

    The term "turn" says in which turn a client is chosen, and "gain" what it adds in its turn; for
    clients that are not chosen, what it would add to the whole cohort.

    Args:
        formula: the rule in words.
        unseen: why a client without a gain is chosen.
    """

    formula: str
    unseen: str = "it has never answered, and such clients come first, or it fills up the cohort"

    needs = ("gain", "turn")

    def merit(self, moment: Moment) -> FloatArray:
        """The turns in their order, then what clients would add to the cohort."""
        turn, gain = moment.column("turn"), moment.column("gain")
        first = np.nanmax(np.abs(gain), initial=0.0) + len(turn) - turn
        return np.where(np.isnan(gain), np.inf, np.where(np.isnan(turn), gain, first))

    def chosen(self, moment: Moment, client: int) -> str:
        """Its turn, and its gain in that turn."""
        turn, gain = moment.column("turn"), moment.column("gain")
        if np.isnan(gain[client]):
            return self.unseen
        if np.isnan(turn[client]):
            return "luck decided between clients of the same gain"
        return (
            f"it was chosen in turn {int(turn[client]):,}, with a gain of "
            f"{number(float(gain[client]))} beyond the clients of the turns before"
        )

    def passed_over(self, moment: Moment, client: int) -> str:
        """What it would add to the cohort, and the least that a chosen client added."""
        turn, gain = moment.column("turn"), moment.column("gain")
        if np.isnan(gain[client]):
            return "other clients came first, and it has no gain: it failed lately, or luck decided"
        others = np.flatnonzero(moment.available & np.isnan(turn) & np.isfinite(gain))
        told = (
            f"it would add {number(float(gain[client]))} to the cohort, rank "
            f"{rank(gain, others, client):,} of {several(len(others), 'client')} not chosen by gain"
        )
        least = np.nanmin(gain[np.isfinite(turn)], initial=np.inf)
        return told if least == np.inf else f"{told}; the last turn added {number(float(least))}"

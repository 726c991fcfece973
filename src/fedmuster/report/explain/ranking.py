"""Policies that take the highest of some number."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray
from fedmuster.report.explain.moment import Moment, rank
from fedmuster.report.explain.rule import Parts, parts_in_words
from fedmuster.report.explain.words import number, percent, several


@dataclass(frozen=True, kw_only=True, slots=True)
class Highest:
    """The m highest values of one term.

    Args:
        term: which.
        formula: the rule in words.
        parts: what adds up to it, if anything does.
        lowest: whether the lowest are taken instead.
        unseen: why clients without the term come first; None if they come last.
        drawn: who was drawn before that, where not everybody is looked at.
    """

    term: str
    formula: str
    parts: Parts = ()
    lowest: bool = False
    unseen: str | None = "it was never tried, and such clients come first"
    drawn: Callable[[Moment], str | None] = lambda _: None

    @property
    def needs(self) -> tuple[str, ...]:
        """The term and its parts."""
        return (self.term, *(name for name, _ in self.parts))

    @property
    def unlimited(self) -> tuple[str, ...]:
        """The term, where the unseen come first."""
        return () if self.unseen is None or self.lowest else (self.term,)

    def about(self, moment: Moment) -> str:
        """The rule."""
        drawn = self.drawn(moment)
        return self.formula if drawn is None else f"{self.formula}, {drawn}"

    def merit(self, moment: Moment) -> FloatArray:
        """The term, infinite for the unseen."""
        values = -moment.column(self.term) if self.lowest else moment.column(self.term)
        return np.nan_to_num(values, nan=-np.inf if self.unseen is None else np.inf)

    def worth(self, moment: Moment) -> str | None:
        """A cohort is no more than its clients."""
        return None

    def chosen(self, moment: Moment, client: int) -> str:
        """Its value, its rank, who is next."""
        merit, others = self.merit(moment), moment.passed_over
        if len(others) == 0:
            return f"all {several(moment.num_available, 'client')} that were available are taken"
        if merit[client] == np.inf and self.unseen is not None:
            return self.unseen + self._luck(moment, client)
        next_one = int(others[np.argmax(merit[others])])
        return (
            f"{self._standing(moment, client)}; the best of those not chosen, "
            f"{moment.name(next_one)}, has {self._value(moment, next_one)}"
            + self._luck(moment, client)
        )

    def passed_over(self, moment: Moment, client: int) -> str:
        """Its value, its rank, and what it lacks, part by part."""
        merit, cohort = self.merit(moment), moment.cohort
        if len(cohort) == 0:
            return "nobody was"
        weakest = int(cohort[np.argmin(merit[cohort])])
        if merit[client] > merit[weakest]:
            reason = self.drawn(moment) or "the policy does not look at this number alone"
            return f"{self._standing(moment, client)}, higher than some that were; but {reason}"
        told = self._standing(moment, client)
        if merit[client] == np.inf and self.unseen is not None:
            return self.unseen + self._luck(moment, client)
        if merit[weakest] == np.inf and self.unseen is not None:
            new = int(np.count_nonzero(merit[cohort] == np.inf))
            return (
                f"{told}; all {several(len(cohort), 'place')} went to clients that come first"
                if new == len(cohort)
                else told
            )
        told += (
            f"; {several(len(cohort), 'client')} are taken, of which {moment.name(weakest)} has "
            f"the {'highest' if self.lowest else 'lowest'}, {self._value(moment, weakest)}"
        )
        return told + (self._luck(moment, client) or self._lack(moment, client, weakest))

    def _standing(self, moment: Moment, client: int) -> str:
        everyone = np.flatnonzero(moment.available)
        place = rank(self.merit(moment), everyone, client)
        return (
            f"its {self.term} {self._value(moment, client)} is rank {place:,} of the "
            f"{several(len(everyone), 'client')} available"
        )

    def _value(self, moment: Moment, client: int) -> str:
        value = float(moment.column(self.term)[client])
        made_of = "" if np.isnan(value) else parts_in_words(moment, client, self.parts)
        return f"{number(value)}{made_of}"

    def _lack(self, moment: Moment, client: int, weakest: int) -> str:
        told = []
        for name, factor in self.parts:
            column = moment.column(name)
            gap = factor * float(column[weakest] - column[client])
            if number(abs(gap)) != "0":
                told.append(f"{number(abs(gap))} {'less' if gap > 0 else 'more'} by {name}")
        return f". It has {' and '.join(told)}" if told else ""

    def _luck(self, moment: Moment, client: int) -> str:
        """Of those with the same value, chance takes some."""
        merit = self.merit(moment)
        tied = np.flatnonzero(moment.available & (merit == merit[client]))
        taken = int(np.isin(tied, moment.cohort).sum())
        if taken in (0, len(tied)) or len(tied) == 1:
            return ""
        return (
            f"; {several(len(tied), 'client')} are alike in that, of whom chance took {taken:,} "
            f"({percent(taken / len(tied))} each)"
        )

"""Rules that many policies follow: the highest value, by chance, everyone, or nothing told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fedmuster.core.arrays import FloatArray
from fedmuster.core.explaining import Moment, Parts, Rule, parts_in_words, rank
from fedmuster.core.policy import Policy
from fedmuster.core.words import number, percent, several


@dataclass(frozen=True, kw_only=True, slots=True)
class Highest(Rule):
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

    def chosen(self, moment: Moment, client: int) -> str:
        """Its value, its rank, and the best client that was not chosen."""
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
            return f"{told}; all {several(len(cohort), 'place')} went to clients that come first"
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ByChance(Rule):
    """Drawn with chances that do not depend on what was observed.

    Args:
        formula: the rule in words.
        term: what the chances follow from; None if they are equal.
        exact: whether the term is the chance itself.
    """

    formula: str
    term: str | None = None
    exact: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """What the chances follow from."""
        return () if self.term is None else (self.term,)

    def merit(self, moment: Moment) -> FloatArray:
        """The chances, or nothing."""
        if self.term is None:
            return np.zeros(moment.num_clients)
        return np.nan_to_num(moment.column(self.term), nan=0.0)

    def chosen(self, moment: Moment, client: int) -> str:
        """Luck decided; the chance of the client."""
        size, there = len(moment.cohort), moment.num_available
        if self.term is None and moment.num_edges:
            chance = (
                f"clients are drawn one after the other while budgets last, and {size:,} of the "
                f"{there:,} available were placed"
            )
        elif self.term is None:
            chance = f"{size:,} of {there:,} are drawn, a chance of {percent(size / max(there, 1))}"
        else:
            share = percent(float(moment.column(self.term)[client]))
            chance = f"its chance was {share}"
            if not self.exact:
                chance = (
                    f"it has {share} of the data of the {there:,} available clients; {size:,} "
                    "clients are drawn in proportion to their data"
                )
        return f"luck decided; {chance}"

    passed_over = chosen


@dataclass(frozen=True, kw_only=True, slots=True)
class Everyone(Rule):
    """All available clients; ``term`` orders them, if given."""

    formula: str
    term: str | None = None

    def merit(self, moment: Moment) -> FloatArray:
        """The term, or nothing."""
        if self.term is None:
            return np.zeros(moment.num_clients)
        return np.nan_to_num(moment.column(self.term))

    def chosen(self, moment: Moment, client: int) -> str:
        """It was available; whether the round waits for it."""
        if self.term is None or np.isnan(moment.column(self.term)[client]):
            return "it was available"
        waits = "the round waits" if moment.column(self.term)[client] else "nobody waits"
        return f"it was available; {waits} for its answer"

    def passed_over(self, moment: Moment, client: int) -> str:
        """The budgets of edge servers had no room for it."""
        return "there was no room for it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Untold(Rule):
    """A policy that publishes no terms, or a journal that does not hold them all.

    Args:
        missing: the terms that are not there.
        partly: whether they are there for some clients only.
        otherwise: whether the cohort is not that of the highest scores.
    """

    missing: tuple[str, ...] = ()
    partly: bool = False
    otherwise: bool = False

    def about(self, moment: Moment) -> str:
        """What is missing."""
        if self.otherwise:
            return "it does not choose by its score alone: some with higher scores were not taken"
        if self.partly:
            return "what it chooses by is written down for some clients only"
        if self.missing:
            return f"what it chooses by ({', '.join(self.missing)}) is not written down"
        if moment.terms:
            return "it does not say how it chooses by its terms (Policy.rule, or a column score)"
        return "it publishes nothing that it chooses by (Policy.scores)"

    def merit(self, moment: Moment) -> FloatArray:
        """The score, if there is one."""
        return np.nan_to_num(moment.column("score"), nan=-np.inf)

    def chosen(self, moment: Moment, client: int) -> str:
        """How its score stands among those that are written down."""
        score = moment.column("score")
        if np.isnan(score[client]):
            return "the journal does not say why"
        written = np.flatnonzero(moment.available & np.isfinite(score))
        return (
            f"its score {number(float(score[client]))} is rank {rank(score, written, client):,} of "
            f"{len(written):,} that are written down"
        )

    passed_over = chosen


BY_SCORE: Final = Highest(term="score", formula="the highest scores are taken")


def rule_of(policy: Policy[Any]) -> Rule:
    """How ``policy`` chooses; a policy without a rule of its own is taken to follow its score."""
    return policy.rule() or BY_SCORE

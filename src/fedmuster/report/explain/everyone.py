"""Policies that ask everybody, and those that tell nothing of their choice."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray
from fedmuster.report.explain.moment import Moment, rank
from fedmuster.report.explain.words import number


@dataclass(frozen=True, kw_only=True, slots=True)
class Everyone:
    """All who are available.

    Args:
        formula: the rule in words.
        term: what orders them, if anything.
    """

    formula: str
    term: str | None = None
    needs: tuple[str, ...] = ()

    def about(self, moment: Moment) -> str:
        """The rule."""
        return self.formula

    def merit(self, moment: Moment) -> FloatArray:
        """The term, or nothing."""
        if self.term is None:
            return np.zeros(moment.num_clients)
        return np.nan_to_num(moment.column(self.term))

    def worth(self, moment: Moment) -> str | None:
        """Nothing."""
        return None

    def chosen(self, moment: Moment, client: int) -> str:
        """Because it was there."""
        if self.term is None or np.isnan(moment.column(self.term)[client]):
            return "it was available"
        waits = "the round waits" if moment.column(self.term)[client] else "nobody waits"
        return f"it was available; {waits} for its answer"

    def passed_over(self, moment: Moment, client: int) -> str:
        """At edge servers not everybody fits."""
        return "there was no room for it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Untold:
    """A policy that publishes no terms, or a journal that does not hold them all.

    Args:
        missing: the terms that are not there.
        partly: whether they are there for some clients only.
    """

    missing: tuple[str, ...] = ()
    partly: bool = False
    needs: tuple[str, ...] = ()

    def about(self, moment: Moment) -> str:
        """What is missing."""
        if self.partly:
            return "what it chooses by is written down for some clients only"
        if self.missing:
            return f"what it chooses by ({', '.join(self.missing)}) is not written down"
        return "it publishes nothing that it chooses by (Policy.scores)"

    def merit(self, moment: Moment) -> FloatArray:
        """The score, if there is one."""
        return np.nan_to_num(moment.column("score"), nan=-np.inf)

    def worth(self, moment: Moment) -> str | None:
        """Unknown."""
        return None

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

    def passed_over(self, moment: Moment, client: int) -> str:
        """The same."""
        return self.chosen(moment, client)

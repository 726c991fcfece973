"""How FedCS and MAB-CS explain a short schedule of uploads."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.explaining import Moment, Rule, rank
from fedmuster.core.words import number, percent, several
from fedmuster.solvers.schedule import finish_seconds, greedy_schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class ShortSchedule(Rule):
    """One client after the other, each time the one that prolongs the round least.

    Args:
        formula: the rule in words.
        update: the term that says how long training takes.
        upload: the term that says how long the upload takes.
        unseen_first: whether clients never tried are chosen before; or else they count as 0 s.
        unit: of both terms.
        request_fraction: which share of the clients is drawn to be looked at.
    """

    formula: str
    update: str
    upload: str
    unseen_first: bool
    unit: str
    request_fraction: float = 1.0

    @property
    def needs(self) -> tuple[str, ...]:
        """Both times, and what the first choice is made by."""
        return ("score", self.update, self.upload)

    @property
    def unlimited(self) -> tuple[str, ...]:
        """The score, where the unseen come before all others and do not count as 0 s."""
        return ("score",) if self.unseen_first else ()

    def about(self, moment: Moment) -> str:
        """The rule."""
        drawn = drawn_words(moment, self.request_fraction)
        return self.formula if drawn is None else f"{self.formula}, {drawn}"

    def merit(self, moment: Moment) -> FloatArray:
        """The score of the first choice; the unseen before all others."""
        return np.nan_to_num(moment.column("score"), nan=np.inf)

    def worth(self, moment: Moment) -> str | None:
        """How long the schedule is."""
        return f"The schedule of the cohort takes {self._told(moment, moment.cohort)}"

    def chosen(self, moment: Moment, client: int) -> str:
        """How long the round would be with the best other in its place."""
        if np.isnan(moment.column("score")[client]):
            return self._unseen(moment)
        others = moment.passed_over
        told = self._terms(moment, client)
        if len(others) == 0:
            return f"{told}; everybody who was available is taken"
        best = int(others[np.argmax(self.merit(moment)[others])])
        return f"{told}. {self._swap(moment, out=client, into=best)}"

    def passed_over(self, moment: Moment, client: int) -> str:
        """How long the round would be with it in place of the weakest."""
        if len(moment.cohort) == 0:
            return "nobody was"
        merit = self.merit(moment)
        if np.isnan(moment.column("score")[client]):
            drawn = drawn_words(moment, self.request_fraction)
            return f"{self._unseen(moment)}, but {drawn or 'chance took others'}"
        weakest = int(moment.cohort[np.argmin(merit[moment.cohort])])
        told = f"{self._terms(moment, client)}. {self._swap(moment, out=weakest, into=client)}"
        drawn = drawn_words(moment, self.request_fraction)
        if drawn is not None and merit[client] > merit[weakest]:
            told += f". It may not have been looked at: {drawn}"
        return told

    def _swap(self, moment: Moment, *, out: int, into: int) -> str:
        swapped = np.append(moment.cohort[moment.cohort != out], into)
        return (
            f"With {moment.name(into)} in place of {moment.name(out)} the schedule would take "
            f"{self._told(moment, swapped)} instead of {self._told(moment, moment.cohort)}"
        )

    def _unseen(self, moment: Moment) -> str:
        new = int(np.count_nonzero(moment.available & np.isnan(moment.column("score"))))
        counts = "come first" if self.unseen_first else f"count as 0 {self.unit}, and so go first"
        return f"it was never tried, and such clients ({new:,} of the available) {counts}"

    def _terms(self, moment: Moment, client: int) -> str:
        everyone = np.flatnonzero(moment.available)
        place = rank(self.merit(moment), everyone, client)
        update, upload = (
            number(float(moment.column(name)[client])) for name in (self.update, self.upload)
        )
        alone = number(-float(moment.column("score")[client]))
        return (
            f"{self.update} {update} and {self.upload} {upload} would make a round of {alone} "
            f"{self.unit} with it alone, rank {place:,} of {len(everyone):,}; who is added later "
            "is judged by what it adds to those before"
        )

    def _told(self, moment: Moment, cohort: IntArray) -> str:
        update, upload = (moment.column(name)[cohort] for name in (self.update, self.upload))
        seen = np.isfinite(update)
        if self.unseen_first:
            update, upload = update[seen], upload[seen]
        update, upload = np.nan_to_num(update), np.nan_to_num(upload)
        order = greedy_schedule(update, upload, len(update), np.random.default_rng(0))
        length = finish_seconds(update[order], upload[order])[-1] if len(order) else 0.0
        new = len(cohort) - int(np.count_nonzero(seen))
        unknown = f", without {several(new, 'client')} never tried" if new else ""
        return f"{number(float(length))} {self.unit}{unknown}"


def drawn_words(moment: Moment, fraction: float) -> str | None:
    """How many clients the resource request reaches; None if it reaches all."""
    if fraction >= 1:
        return None
    count = max(int(np.ceil(fraction * moment.num_clients - 1e-9)), len(moment.cohort))
    if count >= moment.num_available:
        return None
    return (
        f"only {several(count, 'client')} drawn at random are asked for their times "
        f"(a chance of {percent(count / moment.num_available)})"
    )

"""Flat policies at edge servers."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray
from fedmuster.report.explain.moment import Moment
from fedmuster.report.explain.rule import Rule, unlimited_terms
from fedmuster.report.explain.words import number


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A flat policy that chooses; who does not fit at any edge leaves room for others.

    Args:
        flat: how it chooses.
    """

    flat: Rule

    @property
    def needs(self) -> tuple[str, ...]:
        """What the flat policy needs."""
        return self.flat.needs

    @property
    def unlimited(self) -> tuple[str, ...]:
        """Those of the flat policy."""
        return unlimited_terms(self.flat)

    def about(self, moment: Moment) -> str:
        """The flat policy's rule, in turns where there are edge servers."""
        told = self.flat.about(moment)
        if moment.num_edges == 0:
            return told
        return f"{told}; in turns, among those whom some edge can pay, until nothing more fits"

    def merit(self, moment: Moment) -> FloatArray:
        """The flat policy's."""
        return self.flat.merit(moment)

    def worth(self, moment: Moment) -> str | None:
        """The flat policy's, and what the edges have left."""
        told = self.flat.worth(moment)
        if moment.num_edges == 0:
            return told
        left = f"The edges have {', '.join(map(number, moment.left().tolist()))} left"
        return left if told is None else f"{told}. {left}"

    def chosen(self, moment: Moment, client: int) -> str:
        """By the flat policy, and what it costs."""
        edge, told = moment.edge_of(client), self.flat.chosen(moment, client)
        if edge is None:
            return told
        cost = float(moment.at_edges("cost")[client, edge])
        return f"{told}. At edge {edge} it costs {number(cost)}"

    def passed_over(self, moment: Moment, client: int) -> str:
        """By the flat policy, or for lack of budget."""
        if moment.num_edges == 0:
            return self.flat.passed_over(moment, client)
        cost, left = moment.at_edges("cost")[client], moment.left()
        covered = np.flatnonzero(np.isfinite(cost))
        told = ", ".join(
            f"{number(float(cost[edge]))} of {number(float(left[edge]))} left at edge {edge}"
            for edge in covered
        )
        if not (cost[covered] <= left[covered]).any():
            told = f"{told}: with this cohort there is no room for it"
        return f"{self.flat.passed_over(moment, client)}. It costs {told}"

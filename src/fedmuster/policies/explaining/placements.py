"""The rule of policies that place clients at edge servers, within budgets."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray
from fedmuster.core.explaining import Moment, Rule
from fedmuster.core.words import capital, number, several

_FIRST = 1e6
"""What a pair that must be explored is worth, more than any other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BestPlacement(Rule):
    """The largest sum of values of pairs, each client once, each edge within its budget.

    Args:
        formula: the rule in words.
        terms: what a value is made of, at each edge.
        value: [K, M], what a pair is worth; NaN where there is none.
        first: bool[K, M], which pairs come before all others (COCS: under-explored).
    """

    formula: str
    terms: tuple[str, ...]
    value: Callable[[Moment], FloatArray]
    first: Callable[[Moment], BoolArray] = lambda moment: np.zeros(
        moment.at_edges("cost").shape, dtype=np.bool_
    )

    @property
    def needs(self) -> tuple[str, ...]:
        """The terms."""
        return self.terms

    def merit(self, moment: Moment) -> FloatArray:
        """The best pair of each client; under-explored ones first."""
        best: FloatArray = self._worths(moment).max(axis=1)
        return best

    def worth(self, moment: Moment) -> str | None:
        """The sum, and what the edges have left."""
        if len(moment.cohort) == 0:
            return None
        edges = np.zeros_like(moment.cohort) if moment.edges is None else moment.edges
        total = float(np.nansum(self.value(moment)[moment.cohort, edges]))
        exploring = int(np.count_nonzero(self.first(moment)[moment.cohort, edges]))
        told = f"The placement is worth {number(total)} in all"
        if exploring:
            told += f"; {several(exploring, 'pair')} of it explore"
        if moment.budget is not None:
            told += f"; the edges have {', '.join(map(number, moment.left().tolist()))} left"
        return told

    def chosen(self, moment: Moment, client: int) -> str:
        """What it is worth where it trains, and what it costs."""
        edge = moment.edge_of(client) or 0
        return f"{self._pair(moment, client, edge)}{self._elsewhere(moment, client, edge)}"

    def passed_over(self, moment: Moment, client: int) -> str:
        """For each edge that covers it: its value, its cost, the client it would replace."""
        edges = np.flatnonzero(np.isfinite(self.value(moment)[client]) | self.first(moment)[client])
        if len(edges) == 0:
            return "it is worth nothing at any edge that covers it"
        told = [
            f"{self._pair(moment, client, int(edge))}; {self._room(moment, client, int(edge))}"
            for edge in edges
        ]
        return ". ".join([told[0], *map(capital, told[1:])])

    def _worths(self, moment: Moment) -> FloatArray:
        """[K, M], one order for all pairs: those to explore first, and all of them alike."""
        value = np.nan_to_num(self.value(moment), nan=-np.inf)
        return np.where(self.first(moment), _FIRST, value)

    def _pair(self, moment: Moment, client: int, edge: int) -> str:
        parts = (
            f"{name} {number(float(moment.at_edges(name)[client, edge]))}" for name in self.terms
        )
        where = f"at edge {edge} it has " if moment.num_edges else "it has "
        told = where + ", ".join(parts)
        if self.first(moment)[client, edge]:
            told += ", so it is under-explored, and such pairs come first"
        cost = float(moment.at_edges("cost")[client, edge])
        return told if np.isnan(cost) else f"{told}; it costs {number(cost)}"

    def _elsewhere(self, moment: Moment, client: int, edge: int) -> str:
        values = self.value(moment)[client]
        others = [e for e in np.flatnonzero(np.isfinite(values)).tolist() if e != edge]
        if not others:
            return ""
        told = (f"{number(float(values[e]))} at edge {e}" for e in others)
        return f". It would be worth {', '.join(told)} instead of {number(float(values[edge]))}"

    def _room(self, moment: Moment, client: int, edge: int) -> str:
        """Whether it would have fitted, and which client it would replace."""
        cost, worth = np.nan_to_num(moment.at_edges("cost")), self._worths(moment)
        left = float(moment.left()[edge])
        there = moment.cohort if moment.edges is None else moment.cohort[moment.edges == edge]
        mine = float(cost[client, edge])
        if moment.budget is not None and mine > float(moment.budget[edge]):
            return f"that is more than the whole budget of {number(float(moment.budget[edge]))}"
        left_words = f"{number(left)} of the budget are left; " if moment.num_edges else ""
        making_room = there[cost[there, edge] >= mine - left]
        if len(making_room) == 0:
            return f"{left_words}no single client there would make room for it"
        weakest = int(making_room[np.argmin(worth[making_room, edge])])
        change = float(worth[client, edge] - worth[weakest, edge])
        where = f"{left_words}in place of {moment.name(weakest)}"
        if change == 0:
            return f"{where} it would be worth as much: chance decided, or what fits beside it"
        if abs(change) > _FIRST / 2:
            return (
                f"{where}, which is {'not ' * (change > 0)}to be explored, it would be worth "
                + ("more, but others would have to move" if change > 0 else "less")
            )
        told = f"{where} it would be worth {number(abs(change))} "
        return told + ("less" if change < 0 else "more, but others would have to move")

"""Take pairs one after the other where they fit: the greedy step of all assignment solvers."""

import numpy as np

from fedmuster.core.records import BoolArray, FloatArray, IntArray
from fedmuster.solvers.assignment.offers import Offers, density, sum_by_edge


class Filling:
    """A placement that grows. Budgets hold up to rounding."""

    def __init__(self, offers: Offers, chosen: IntArray) -> None:
        self._offers = offers
        self._parts = [chosen]
        self._free: BoolArray = np.ones(offers.num_clients, dtype=np.bool_)
        self._free[offers.client[chosen]] = False
        self._left: FloatArray = 1.0 - sum_by_edge(
            offers.edge[chosen], offers.share[chosen], offers.num_edges
        )
        self._room = offers.size - len(chosen)

    @property
    def chosen(self) -> IntArray:
        """All pairs taken so far."""
        return np.concatenate(self._parts)

    def fitting(self, pairs: IntArray) -> IntArray:
        """Those of ``pairs`` of which each by itself still fits."""
        if self._room <= 0:
            return pairs[:0]
        offers = self._offers
        fits = self._free[offers.client[pairs]]
        fits &= offers.share[pairs] <= self._left[offers.edge[pairs]]
        return pairs[fits]

    def take_most(self, pairs: IntArray) -> IntArray:
        """Takes a good part of fitting ``pairs``, first come first served, and returns it.

        Each edge takes pairs until its budget would break, each client its first offer that was
        taken. So not all that fit need be taken, but at least one.
        """
        offers = self._offers
        by_edge = np.argsort(offers.edge[pairs], kind="stable")
        edge = offers.edge[pairs[by_edge]]
        starts = np.flatnonzero(np.diff(edge, prepend=-1))
        run = np.cumsum(offers.share[pairs[by_edge]])
        before = np.concatenate(([0.0], run))[starts]
        within = run - np.repeat(before, np.diff(starts, append=len(edge))) <= self._left[edge]
        within[starts] = True  # it fits by itself, whatever rounding makes of the running sum
        taken: IntArray = pairs[np.sort(by_edge[within])]
        _, first = np.unique(offers.client[taken], return_index=True)
        taken = taken[np.sort(first)][: self._room]
        self._parts.append(taken)
        self._free[offers.client[taken]] = False
        self._left -= sum_by_edge(offers.edge[taken], offers.share[taken], offers.num_edges)
        self._room -= len(taken)
        return taken


def fill(offers: Offers, order: IntArray, chosen: IntArray | None = None) -> IntArray:
    """``chosen`` and, in this ``order``, whatever fits beside it."""
    filling = Filling(offers, np.empty(0, dtype=np.int64) if chosen is None else chosen)
    while len(order := filling.fitting(order)):
        filling.take_most(order)
    return filling.chosen


def by_density(offers: Offers) -> IntArray:
    """All pairs, those of most value for their cost first, then the more valuable."""
    return np.lexsort((-offers.value, -density(offers.value, offers.share)))

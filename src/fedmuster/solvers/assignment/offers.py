"""The pairs of a problem by client, in random order and scaled; the greedy step of solvers."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.solvers.assignment.problem import AssignmentProblem

_NEARLY_NOTHING = 1e-250


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Offers:
    """The affordable pairs of each client.

    Clients and edges are numbered at random, so that solvers favour no client among equals. Pairs
    that cost more than their edge's whole budget are left out. Values are divided by the largest
    (``unit``), costs by their edge's budget: each edge has 1 to spend.

    Of each of the P pairs, ``origin`` is the position in the problem, ``client`` 0 … n-1
    (increasing), ``edge`` 0 … M-1, ``value`` in 0 … 1, ``share`` the part of its edge's budget (0
    where there is no budget or one of 0). ``first`` [n] is the first pair of each client; ``size``,
    at most n, the most clients.
    """

    origin: IntArray
    client: IntArray
    first: IntArray
    edge: IntArray
    value: FloatArray
    share: FloatArray
    num_edges: int
    size: int
    unit: float

    @classmethod
    def of(cls, problem: AssignmentProblem, rng: Generator) -> "Offers":
        """The offers in ``problem``, numbered by ``rng``."""
        affordable = np.flatnonzero(problem.cost <= problem.budget[problem.edges])
        names, client = np.unique(problem.clients[affordable], return_inverse=True)
        num_edges = problem.num_edges
        client = rng.permutation(len(names))[client]
        edge = rng.permutation(num_edges)[problem.edges[affordable]]
        order = np.argsort(client * num_edges + edge, kind="stable")
        origin, client, edge = affordable[order], client[order], edge[order]
        value, cost = problem.value[origin], problem.cost[origin]
        budget = problem.budget[problem.edges[origin]]
        share = np.divide(cost, budget, out=np.zeros(len(cost)), where=budget > 0)
        unit = float(value.max(initial=0.0)) or 1.0
        return cls(
            origin=origin,
            client=client,
            first=np.flatnonzero(np.diff(client, prepend=-1)),
            edge=edge,
            value=value / unit,
            share=share,
            num_edges=num_edges,
            size=min(problem.size, len(names)),
            unit=unit,
        )

    @property
    def num_clients(self) -> int:
        """How many clients have anything to offer."""
        return len(self.first)


def sum_by_edge(edge: IntArray, amount: FloatArray, num_edges: int) -> FloatArray:
    """[M], the ``amount`` at each edge."""
    # Of nothing at all, bincount makes integers, whatever its weights.
    return np.bincount(edge, amount, num_edges).astype(np.float64, copy=False)


def density(value: FloatArray, share: FloatArray) -> FloatArray:
    """The value for each part of a budget; finite, also of what takes nothing."""
    dense: FloatArray = value / np.maximum(share, _NEARLY_NOTHING)
    return dense


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
        """Take fitting ``pairs`` in their order, at least one, and return those that were taken.

        Each edge takes pairs until its budget would break, and each client its first offer that was
        taken.
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

"""The pairs of a problem as solvers want them: grouped by client, in random order, scaled."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.solvers.assignment.problem import AssignmentProblem

_NEARLY_NOTHING = 1e-250


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Offers:
    """What each client offers: itself, at one of several edges.

    Clients and edges are numbered at random, so whatever a solver does with equals, it favours
    nobody. Pairs that cost more than their edge's whole budget are left out. Values are divided by
    the largest, costs by their edge's budget: each edge has 1 to spend.

    Args:
        origin: int64[P], the position of each pair in the problem.
        client: int64[P], 0 … n-1, increasing.
        first: int64[n], the first pair of each client.
        edge: int64[P], 0 … M-1.
        value: [P], in 0 … 1.
        share: [P], the part of its edge's budget that the pair takes, in 0 … 1; 0 where there is
            no budget, or one of 0.
        num_edges: M.
        size: the most clients, at most n.
        unit: what a value of 1 was worth in the problem.
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

"""Small edge networks of every kind, and rounds of any policy in them, through the Selector."""

from collections.abc import Iterator
from math import fsum
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from fedmuster.core.edges import EdgeView
from fedmuster.core.policy import Policy
from fedmuster.core.records import BoolArray, Feedback, FloatArray, Problem, Selection, Truth
from fedmuster.core.selector import Selector
from fedmuster.core.streams import stream

KINDS = (
    "overlapping",
    "disjoint",
    "total coverage",
    "no budgets",
    "whole prices",
    "nobody covered",
    "nobody affordable",
)
INFEASIBLE = KINDS[-2:]


def network(kind: str, rng: Generator, *, num_clients: int = 12, num_edges: int = 3) -> EdgeView:
    """Budgets pay for two or three clients at an edge, unless ``kind`` says otherwise."""
    shape = (num_clients, num_edges)
    coverage = rng.random(shape) < 0.5
    cost = rng.uniform(0.5, 2.0, shape)
    budget = rng.uniform(2.0, 4.0, num_edges)
    if kind == "disjoint":
        coverage = rng.integers(num_edges, size=num_clients)[:, None] == np.arange(num_edges)
    elif kind == "total coverage":
        coverage = np.ones(shape, dtype=np.bool_)
    elif kind == "no budgets":
        budget = np.full(num_edges, np.inf)
    elif kind == "whole prices":
        cost, budget = rng.integers(0, 3, shape) / 10, rng.integers(0, 6, num_edges) / 10
    elif kind == "nobody covered":
        coverage = np.zeros(shape, dtype=np.bool_)
    elif kind == "nobody affordable":
        cost = cost + budget
    return EdgeView(coverage=coverage, cost=cost, budget=budget)


class Round(NamedTuple):
    """One round: what there was to choose from, and what was chosen."""

    edges: EdgeView
    available: BoolArray
    truth: Truth
    selection: Selection

    def more_fits(self) -> bool:
        """Whether one more client could be put at some edge."""
        edges, chosen = self.edges, self.selection
        assert chosen.edges is not None
        others = self.available.copy()
        others[chosen.clients] = False
        paid = edges.cost[chosen.clients, chosen.edges]
        at = [paid[chosen.edges == m].tolist() for m in range(edges.num_edges)]
        return any(
            edges.coverage[k, m] and fsum([*at[m], float(edges.cost[k, m])]) <= edges.budget[m]
            for k in np.flatnonzero(others)
            for m in range(edges.num_edges)
        )

    def best_total(self, value: FloatArray, size: int) -> float:
        """The optimum of P2, by trying for each client every edge and none."""
        edges = self.edges

        def search(client: int, paid: tuple[tuple[float, ...], ...], size: int) -> float:
            if client == edges.num_clients or size == 0:
                return 0.0
            best = search(client + 1, paid, size)
            possible = edges.coverage[client] & self.available[client]
            for m in np.flatnonzero(possible).tolist():
                costs = (*paid[m], float(edges.cost[client, m]))
                if fsum(costs) <= edges.budget[m]:
                    rest = search(client + 1, (*paid[:m], costs, *paid[m + 1 :]), size - 1)
                    best = max(best, float(value[client, m]) + rest)
            return best

        return search(0, ((),) * edges.num_edges, size)


def rounds(
    policy: Policy[Any],
    kind: str,
    count: int,
    *,
    num_clients: int = 12,
    num_edges: int = 3,
    cohort_size: int | None = None,
    seed: int = 0,
    rest_after: int = 0,
) -> Iterator[Round]:
    """``count`` rounds in networks of ``kind``, each another, checked by the Selector.

    Args:
        policy: who plays.
        kind: one of :data:`KINDS`, or "mixed" for one after the other.
        count: how many rounds.
        num_clients: K.
        num_edges: M.
        cohort_size: m; None for K.
        seed: of networks and policy.
        rest_after: after how many unanswered jobs in a row a client rests; 0 for never.
    """
    rng = stream(seed, "small networks")
    problem = Problem(
        num_clients=num_clients,
        cohort_size=cohort_size or num_clients,
        num_edges=num_edges,
        num_features=2,
    )
    selector = Selector(policy, problem, seed=seed, rest_after=rest_after)
    for t in range(count):
        this = KINDS[t % len(KINDS)] if kind == "mixed" else kind
        edges = network(this, rng, num_clients=num_clients, num_edges=num_edges)
        success = rng.random((num_clients, num_edges))
        seconds = rng.uniform(0.1, 1.0, num_clients)
        available = rng.random(num_clients) < 0.9
        truth = Truth(
            mean_latency_seconds=seconds,
            mean_speed=0.1 / seconds,
            success=success,
            succeeds=rng.random(success.shape) < success,
        )
        selection = selector.select(
            available=available,
            edges=edges,
            features=rng.random((num_clients, num_edges, 2)),
            truth=truth,
        )
        yield Round(edges, available, truth, selection)
        assert truth.succeeds is not None
        done = truth.succeeds[selection.clients, selection.edges]
        taken = seconds[selection.clients]
        selector.observe(
            Feedback(
                round=selection.round,
                clients=selection.clients,
                latency_seconds=np.where(done, taken, np.inf),
                completed=done,
                signals={"loss": np.where(done, 1.0, np.nan)},
            )
        )

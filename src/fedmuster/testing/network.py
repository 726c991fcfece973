"""The edge servers of the tiny federation."""

from typing import Literal

import numpy as np
from numpy.random import Generator

from fedmuster.core.edges import EdgeView

Layout = Literal["varied", "apart", "together"]
"""How edge servers and clients stand to each other.

- "varied": who is covered by whom, costs and budgets change from round to round; budgets do not
  pay for everybody, and at times somebody is not covered at all;
- "apart": each client is covered by one edge, all cost the same, and the budgets pay for a cohort;
- "together": every edge covers every client, all are alike, and each could pay for a whole cohort.
"""

_REACH = 0.6
_DEAREST = 5
_POOREST, _RICHEST = 3, 8


def edges_of(
    layout: Layout, num_clients: int, num_edges: int, cohort_size: int, rng: Generator
) -> EdgeView:
    """The edge servers in one round."""
    pairs = (num_clients, num_edges)
    if layout == "varied":
        # In tenths, which binary numbers are not: 0.1 + 0.2 > 0.3, and a budget of 0.3 is exceeded.
        return EdgeView(
            coverage=rng.random(pairs) < _REACH,
            cost=rng.integers(1, _DEAREST, size=pairs, endpoint=True) / 10,
            budget=rng.integers(_POOREST, _RICHEST, size=num_edges, endpoint=True) / 10,
        )
    budget = np.full(num_edges, float(cohort_size))
    coverage = np.ones(pairs, dtype=np.bool_)
    if layout == "apart":
        home = np.arange(num_clients) % num_edges
        coverage = home[:, np.newaxis] == np.arange(num_edges)
        budget = np.bincount(home[:cohort_size], minlength=num_edges).astype(np.float64)
    return EdgeView(coverage=coverage, cost=np.ones(num_clients), budget=budget)

"""The exact solver of the bottleneck problem, for any number of clients.

The papers hold BSFL Eq. 13 and PAUSE Eq. 22 to be infeasible beyond small networks. They are
not: see :mod:`fedmuster.solvers.sweep`.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import IntArray
from fedmuster.solvers.checks import check_values
from fedmuster.solvers.instance import Instance
from fedmuster.solvers.pruning import best_thresholds
from fedmuster.solvers.sweep import Field, adjusted, compact
from fedmuster.solvers.top_k import top_k


@dataclass(frozen=True, kw_only=True, slots=True)
class Exact:
    """A best cohort (BSFL Eq. 13; PAUSE Eq. 14 with 18 or 22), one at random among equals.

    With at least m unseen clients (u infinite) every cohort of them ties at ``+inf``, and the
    additive part decides; fewer are ordinary members that never bind.

    Example:
        >>> speed, weight = np.array([3.0, 1.0, 2.0]), np.array([0.0, 5.0, 1.0])
        >>> instance = Instance(bottleneck=speed, weight=weight, size=2)
        >>> Exact().solve(instance, np.random.default_rng(0))
        array([1, 2])
    """

    name: ClassVar[str] = "exact"

    def solve(self, instance: Instance, rng: Generator) -> IntArray:
        """Increasing positions of the best cohort."""
        highest, heaviest = check_values(instance)
        u, w, size = instance.bottleneck, instance.weight, instance.size
        if size == len(u):
            return np.arange(size)
        clusters, charge, ceiling = None, 0.0, heaviest
        if instance.penalty > 0 and instance.clusters is not None:
            clusters, num_clusters = compact(instance.clusters)
            charge = size * instance.penalty
            # With fewer than m clusters some of the m must pay.
            ceiling -= instance.penalty * max(0, size - num_clusters)
        field = Field(u, w, clusters, size, charge, ceiling)
        if highest == np.inf:
            unseen = u == np.inf
            num_unseen = np.count_nonzero(unseen)
            if num_unseen >= size:
                everyone = num_unseen == len(u)
                return _largest(field, slice(None) if everyone else np.flatnonzero(unseen), rng)
        pivots, near = best_thresholds(field)
        pivot = pivots[int(rng.integers(len(pivots)))] if len(pivots) > 1 else pivots[0]
        above = np.flatnonzero(u[near] >= pivot)
        return _largest(field, above if isinstance(near, slice) else near[above], rng)


def _largest(field: Field, clients: IntArray | slice, rng: Generator) -> IntArray:
    """The m largest adjusted weights of ``clients``, ties at random."""
    values = field.weight[clients]
    if field.clusters is not None:
        values = adjusted(values, field.clusters[clients], field.charge, rng)
    chosen = top_k(values, field.size, rng)
    return chosen if isinstance(clients, slice) else clients[chosen]

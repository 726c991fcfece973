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
from fedmuster.solvers.sweep import Field, adjusted
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
        highest = check_values(instance)
        u, size = instance.bottleneck, instance.size
        if size == len(u):
            return np.arange(size)
        penalised = instance.penalty > 0
        field = Field(
            u,
            instance.weight,
            instance.clusters if penalised else None,
            size,
            size * instance.penalty,
        )
        if highest == np.inf:
            unseen = u == np.inf
            if np.count_nonzero(unseen) >= size:
                return _largest(field, np.flatnonzero(unseen), rng)
        pivots = best_thresholds(field).pivots
        pivot = pivots[int(rng.integers(len(pivots)))] if len(pivots) > 1 else pivots[0]
        return _largest(field, np.flatnonzero(u >= pivot), rng)


def _largest(field: Field, positions: IntArray, rng: Generator) -> IntArray:
    """The m largest adjusted weights at ``positions``, ties at random."""
    everyone = len(positions) == len(field.weight)
    values = field.weight if everyone else field.weight[positions]
    if field.clusters is not None:
        values = adjusted(values, field.clusters[positions], field.charge, rng)
    return positions[top_k(values, field.size, rng)]

"""Try every set: the reference that all other solvers are checked against."""

from dataclasses import dataclass
from itertools import chain, combinations
from math import comb
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.errors import DataError
from fedmuster.core.records import IntArray
from fedmuster.solvers.checks import check_values
from fedmuster.solvers.instance import Instance

MOST_SETS = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class BruteForce:
    """The best of all m-sets, one of them at random where several are best.

    Infinite energies tie, so sets of unseen clients alone are compared on their additive part.

    Example:
        >>> speed, weight = np.array([3.0, 1.0, 2.0]), np.array([0.0, 5.0, 1.0])
        >>> instance = Instance(bottleneck=speed, weight=weight, size=2)
        >>> BruteForce().solve(instance, np.random.default_rng(0))
        array([1, 2])
    """

    name: ClassVar[str] = "brute-force"

    def solve(self, instance: Instance, rng: Generator) -> IntArray:
        """Increasing positions of the best cohort."""
        check_values(instance)
        num_clients, size = len(instance.bottleneck), instance.size
        num_sets = comb(num_clients, size)
        if num_sets > MOST_SETS:
            raise DataError(
                f"BruteForce: {size} of {num_clients} clients are {num_sets} sets, more than "
                f"{MOST_SETS}; use Exact, which finds the same optimum without trying them"
            )
        members = chain.from_iterable(combinations(range(num_clients), size))
        sets = np.fromiter(members, np.int64, num_sets * size).reshape(num_sets, size)
        slowest = instance.bottleneck[sets].min(axis=1)
        rest = instance.weight[sets].sum(axis=1) / size
        if instance.penalty > 0 and instance.clusters is not None:
            labels = np.sort(instance.clusters[sets], axis=1)
            rest -= instance.penalty * (labels[:, 1:] == labels[:, :-1]).sum(axis=1)
        energy = slowest + rest
        if np.isinf(energy.max()):
            energy = np.where(np.isinf(slowest), rest, -np.inf)
        best = np.flatnonzero(energy == energy.max())
        chosen: IntArray = sets[rng.choice(best)]
        return chosen

"""Refuse values that no solver can order, before one of them yields a silent wrong answer."""

import numpy as np

from fedmuster.core.blocks import blocks
from fedmuster.core.errors import DataError
from fedmuster.core.exact_sums import LARGEST_SUMMAND
from fedmuster.core.records import FloatArray
from fedmuster.solvers.instance import Instance


def check_values(instance: Instance) -> tuple[float, float]:
    """Complain unless u is finite or ``+inf`` and w finite; returns the largest u and w.

    Minima and maxima hand a NaN on, so reductions without temporaries see everything.
    """
    u, w = instance.bottleneck, instance.weight
    return (
        _largest("bottleneck", u, np.inf, "finite, or +inf for unseen clients"),
        _largest("weight", w, LARGEST_SUMMAND, f"within ±{LARGEST_SUMMAND:g}"),
    )


def _largest(name: str, values: FloatArray, limit: float, expected: str) -> float:
    fits, highest = True, -np.inf
    for block in blocks(len(values)):  # which stays in cache between its minimum and its maximum
        part = values[block]
        low, high = np.minimum.reduce(part), np.maximum.reduce(part)
        fits = fits and bool(low > -np.inf and high <= limit)  # no comparison with NaN is true
        highest = max(highest, high)
    if not fits:
        wrong = np.flatnonzero(~((values > -np.inf) & (values <= limit)))
        raise DataError(
            f"Instance: {name} holds {values[wrong[0]]} at position {wrong[0]} "
            f"({len(wrong)} such values), expected numbers that are {expected}"
        )
    return float(highest)

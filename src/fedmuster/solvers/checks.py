"""Refuse values that no solver can order, before one of them yields a silent wrong answer."""

import numpy as np

from fedmuster.core.errors import DataError
from fedmuster.solvers.instance import Instance


def check_values(instance: Instance) -> float:
    """Complain unless u is finite or ``+inf`` and w finite; returns the largest u.

    Minima and maxima hand a NaN on, so four reductions without temporaries see everything.
    """
    for name, values, highest in (
        ("bottleneck", instance.bottleneck, np.inf),
        ("weight", instance.weight, np.finfo(np.float64).max),
    ):
        low, high = np.minimum.reduce(values), np.maximum.reduce(values)
        if not (low > -np.inf and high <= highest):
            wrong = np.flatnonzero(~((values > -np.inf) & (values <= highest)))
            expected = "finite" if name == "weight" else "finite, or +inf for unseen clients"
            raise DataError(
                f"Instance: {name} holds {values[wrong[0]]} at position {wrong[0]} "
                f"({len(wrong)} such values), expected numbers that are {expected}"
            )
    return float(np.maximum.reduce(instance.bottleneck))

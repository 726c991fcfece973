"""Cohorts that are spread over clusters: access points, subnets, regions."""

import numpy as np

from fedmuster.core.records import IntArray


def repeats(labels: IntArray) -> int:
    """``sum_r max(0, |S ∩ C_r| - 1)``: clients beyond the first of their cluster (PAUSE Eq. 22).

    Example:
        >>> repeats(np.array([4, 1, 4, 4, 2, 1]))
        3
    """
    return len(labels) - len(np.unique(labels))

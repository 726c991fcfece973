"""Whose answers enter a round's model where a policy prefers some (SAFA)."""

import numpy as np

from fedmuster.core.arrays import BoolArray, IntArray


def fill_quota(arrivals: IntArray, preferred: BoolArray, quota: int) -> BoolArray:
    """bool[m]: the first ``quota`` preferred answers; while there is room, others as they came.

    Args:
        arrivals: positions in the cohort of those that answered, in order of arrival.
        preferred: bool[m], whose answers count first.
        quota: how many enter.

    Example:
        >>> arrivals = np.array([3, 0, 2, 1])
        >>> fill_quota(arrivals, np.array([True, False, True, False]), 3)
        array([ True, False,  True,  True])
    """
    used = np.zeros(len(preferred), dtype=np.bool_)
    first = arrivals[preferred[arrivals]][:quota]
    used[first] = True
    others = arrivals[~preferred[arrivals]]
    used[others[: quota - len(first)]] = True
    return used

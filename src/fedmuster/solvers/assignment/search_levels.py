"""What searches by levels have in common: looking ahead, and walking back from the last one."""

import numpy as np

from fedmuster.core.records import FloatArray, IntArray

ROUNDING = 1e-11
"""Sums of shares may be so far off; who breaks a budget by less is let pass, so bounds hold."""
OUT = -1
"""Stands for no pair: the client stays out."""

Trail = list[tuple[IntArray, IntArray]]
"""Of each level: from which partial placement of the last each one comes, and the pair it added."""


def from_here_on(rows: FloatArray, add_up: np.ufunc, nothing: float) -> FloatArray:
    """[n + 1, …], ``rows`` accumulated from each of them to the last, and from behind it."""
    behind = np.full((1, rows.shape[1]), nothing)
    total: FloatArray = add_up.accumulate(np.concatenate((rows, behind))[::-1], axis=0)[::-1]
    return total


def usable(left: FloatArray, least: FloatArray, most: FloatArray) -> FloatArray:
    """What can be spent of ``left``: no less than the smallest share, no more than all together."""
    spendable: FloatArray = np.clip(left, 0.0, most)
    spendable[left < least - ROUNDING] = 0.0
    return spendable


def walk_back(trail: Trail, last: IntArray) -> IntArray:
    """The pairs of the partial placements ``last`` of the last level."""
    found = [np.empty(0, dtype=np.int64)]
    for origin, pairs in reversed(trail):
        found.append(pairs[last])
        last = origin[last]
    chosen = np.concatenate(found)
    pairs_in: IntArray = chosen[chosen != OUT]
    return pairs_in

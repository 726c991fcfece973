"""Whom to leave out if possible, and how to fill a cohort up if it is not."""

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import BoolArray, IntArray, RoundView, Selection
from fedmuster.solvers.top_k import top_k


def not_too_often(times: IntArray, most: int | None, share: float, rng: Generator) -> BoolArray:
    """bool[K]: who was asked at most ``most`` times (None: everybody).

    No more than ``share`` of all clients are left out, those who were asked most often.

    Example:
        >>> not_too_often(np.array([9, 1, 8, 7]), 5, 0.5, np.random.default_rng(0))
        array([False,  True, False,  True])
    """
    allowed = np.ones(len(times), dtype=np.bool_)
    if most is not None:
        tired = np.flatnonzero(times > most)
        count = min(len(tired), int(share * len(times)))
        allowed[tired[top_k(times[tired].astype(np.float64), count, rng)]] = False
    return allowed


def filled_up(view: RoundView, chosen: IntArray, first: BoolArray, rng: Generator) -> Selection:
    """``chosen`` and as many others as are missing: uniformly, those in ``first`` (bool[K]) first.

    Example:
        >>> view = RoundView(round=1, cohort_size=3, available=np.array([1, 1, 0, 1, 1], bool))
        >>> first = np.array([False, True, True, True, False])
        >>> filled_up(view, np.array([4]), first, np.random.default_rng(0)).clients
        array([1, 3, 4])
    """
    missing = view.num_to_choose - len(chosen)
    if missing > 0:
        others = np.setdiff1d(np.flatnonzero(view.available), chosen)
        added = others[top_k(first[others].astype(np.float64), missing, rng)]
        chosen = np.concatenate([chosen, added])
    return Selection.of(view, slice(None), chosen)

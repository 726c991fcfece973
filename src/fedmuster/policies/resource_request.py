"""What FedCS and MAB-CS have in common: who is asked for its resources, and who uploads when."""

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from fedmuster.core.counting import ceil_of
from fedmuster.core.records import IntArray, RoundView, Selection
from fedmuster.policies.random import draw


def requested(view: RoundView, fraction: float, rng: Generator) -> IntArray | slice:
    """Whom the resource request reaches: ``ceil(K C)`` random clients, if so many are available.

    Never fewer than the round can use. To be called before anything else is drawn, so that all
    policies ask the same clients under the same seed.

    Args:
        view: of the round.
        fraction: C.
        rng: the policy's.
    """
    count = max(ceil_of(fraction * len(view.available)), view.num_to_choose)
    if count >= view.num_available:
        return view.candidates()
    return np.flatnonzero(view.available)[draw(np.array(1.0), view, count, rng)]


def in_order(view: RoundView, rows: IntArray | slice, positions: IntArray) -> Selection:
    """The clients of ``rows`` at ``positions``, who upload in this order."""
    chosen = positions if isinstance(rows, slice) else rows[positions]
    cohort = Selection.of(view, rows, positions)
    return replace(cohort, order=np.searchsorted(cohort.clients, chosen))

"""How far a mean may be from the truth."""

import math

import numpy as np

from fedmuster.core.records import FloatArray, IntArray


def confidence_radius(count: IntArray | FloatArray, log_term: float) -> FloatArray:
    """``sqrt(log_term / count)``, ``+inf`` for clients never seen (BSFL Eq. 9; PAUSE Eq. 13).

    Example:
        >>> confidence_radius(np.array([0, 1, 4]), 4.0)
        array([inf,  2.,  1.])
    """
    # ln 1 = 0 in the second round; the tiniest number keeps the unseen at +inf instead of 0/0.
    with np.errstate(divide="ignore"):
        radius = np.divide(max(log_term, np.finfo(np.float64).tiny), count)
    return np.sqrt(radius, out=radius)  # BSFL Eq. 9


def log_rounds(rounds: float) -> float:
    """``ln t``, 0 before the first round is over."""
    return math.log(rounds) if rounds > 1 else 0.0

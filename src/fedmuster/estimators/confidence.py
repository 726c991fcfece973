"""How far an estimate may be from the truth."""

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


def validity_radius(delta: float) -> float:
    """alpha, how many ``||x||_{H^-1}`` the validity may be off (FedSUV Eq. 4).

    Example:
        >>> round(validity_radius(0.1), 6)
        2.358102
    """
    return 1.0 + math.sqrt(math.log(4.0 / delta) / 2.0)  # FedSUV Eq. 4


def utility_radius(num_clients: int, round_: int, delta: float) -> float:
    """The root of beta_t, how many standard deviations the utility may be off (FedSUV Eq. 5).

    Example:
        >>> round(utility_radius(2500, 1, 0.1) ** 2, 6)  # 2 ln(2500 pi² / 0.3)
        22.634957
    """
    # Two logarithms, because t² |X| would leave the floats one day.
    beta = 2.0 * (math.log(num_clients * math.pi**2 / (3.0 * delta)) + 2.0 * math.log(round_))
    return math.sqrt(beta)  # FedSUV Eq. 5

"""How much a client adds to the generalisation of the model, judged by how often it took part."""

import numpy as np

from fedmuster.core.records import FloatArray, IntArray


def generalisation(
    count: IntArray, round_: int, target_share: FloatArray, *, beta: float
) -> FloatArray:
    """``g = |x|^beta sgn(x)`` with ``x = target share - count / t`` (BSFL Eq. 3, 4).

    Positive for clients that took part less often than their share of the data deserves.

    Args:
        count: rounds each client took part in before this one, ``c_k``.
        round_: t, this round.
        target_share: ``m d_k / sum d``, 0-d where all clients count alike.
        beta: > 0; the larger, the less small differences matter.

    Example:
        >>> generalisation(np.array([0, 2, 4]), 8, np.array(0.25), beta=2.0)
        array([ 0.0625,  0.    , -0.0625])
    """
    x = target_share - count / round_
    if beta == 1.0:
        return x
    return np.copysign(np.abs(x) ** beta, x)  # BSFL Eq. 3, 4; PAUSE Eq. 8

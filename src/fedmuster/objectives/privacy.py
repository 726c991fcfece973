"""The privacy that a client has left."""

import numpy as np

from fedmuster.core.records import FloatArray, IntArray


def remaining_privacy(count: IntArray, *, eta: float) -> FloatArray:
    """``p = 1 - spent / eps_bar`` under the geometric schedule (PAUSE Eq. 6, 7).

    With ``eps_i = eps_bar (e^eta - 1) e^(-eta i)`` the first c participations spend
    ``eps_bar (1 - e^(-eta c))``, so that ``p = e^(-eta c)`` whatever the budget: 1 before the
    first round (Algorithm 1's initial 0 contradicts Eq. 7).
    """
    remaining: FloatArray = np.exp(-eta * count)  # PAUSE Eq. 7
    return remaining

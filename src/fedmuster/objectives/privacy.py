"""The privacy that a client has left."""

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.privacy.schedule import SpendingRule


def remaining_privacy(count: IntArray, rule: SpendingRule) -> FloatArray:
    """``p = 1 - spent / eps_bar`` after ``count`` participations (PAUSE Eq. 7).

    Under the geometric schedule (PAUSE Eq. 6) that is ``e^(-eta c)`` whatever the budget: 1
    before the first round (Algorithm 1's initial 0 contradicts Eq. 7).
    """
    return 1.0 - rule.spent_share(count)  # PAUSE Eq. 7

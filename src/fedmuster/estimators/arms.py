"""A few arms, of which one is played each round: UCB1."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.state import shared
from fedmuster.estimators.confidence import confidence_radius, log_rounds


@dataclass(slots=True)
class ArmsState:
    """Of each arm how often it was played and what it brought in all.

    ``least`` and ``most`` are what any round has brought.
    """

    count: IntArray = shared()
    total: FloatArray = shared()
    least: FloatArray = shared()
    most: FloatArray = shared()


def index_terms(state: ArmsState) -> tuple[FloatArray, FloatArray]:
    """Of each arm the mean, on a scale from ``least`` to ``most``, and the confidence bonus.

    The bonus is ``sqrt(2 ln t / n)`` (Auer et al., UCB1), ``+inf`` of an arm never played.

    Example:
        >>> state = ArmsState(np.array([1, 4]), np.array([3.0, 4.0]), np.array(1.0), np.array(3.0))
        >>> mean, bonus = index_terms(state)
        >>> mean, bonus.round(3)
        (array([1., 0.]), array([1.794, 0.897]))
    """
    mean = state.total / np.maximum(state.count, 1)
    least, most = float(state.least), float(state.most)
    scaled = (mean - least) / (most - least) if most > least else np.zeros_like(mean)
    return scaled, confidence_radius(state.count, 2.0 * log_rounds(float(state.count.sum())))


def best_arm(state: ArmsState) -> int:
    """The highest index; of equal arms the first."""
    mean, bonus = index_terms(state)
    return int(np.argmax(bonus + mean))

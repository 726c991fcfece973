"""Utility of clients: by losses (Oort), by gain (FedSUV), by answers in time (COCS)."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types
from fedmuster.core.records import Feedback


def reported_loss(feedback: Feedback) -> FloatArray:
    """[n], the signal "root_mean_square_loss", or else "loss", which is the same where all samples
    are alike; NaN for clients that did not answer or of which no loss is known."""
    loss = signal(feedback, "root_mean_square_loss", signal(feedback, "loss"))
    return np.where(feedback.answered, loss, np.nan)


def statistical_utility(feedback: Feedback, num_samples: FloatArray | IntArray) -> FloatArray:
    """``|B| sqrt(mean loss²)`` of each row, over the samples that it was trained on (Oort).

    From :func:`reported_loss` and the signal "trained_samples" (or else ``num_samples``, [n] or
    0-d). NaN for those who did not answer or of whom no loss is known.

    Example:
        >>> feedback = Feedback(
        ...     round=1,
        ...     clients=np.array([4, 7]),
        ...     latency_seconds=np.ones(2),
        ...     signals={"root_mean_square_loss": np.array([0.5, 2.0])},
        ... )
        >>> statistical_utility(feedback, np.array([10, 30]))
        array([ 5., 60.])
    """
    samples = signal(feedback, "trained_samples", np.asarray(num_samples, dtype=np.float64))
    return samples * reported_loss(feedback)


def gained_utility(feedback: Feedback, num_samples: FloatArray | IntArray) -> FloatArray:
    """``u = L Delta`` of each row (FedSUV Eq. 3), or the signal "utility" where one is sent.

    ``L`` is :func:`statistical_utility`, ``Delta`` the signal "accuracy_gain", or 1 where no such
    signal is sent. NaN as there.
    """
    gain = signal(feedback, "accuracy_gain", np.array(1.0))
    product = statistical_utility(feedback, num_samples) * gain  # FedSUV Eq. 3
    return np.where(feedback.answered, signal(feedback, "utility", product), np.nan)


def known_utility(feedback: Feedback, num_samples: FloatArray | IntArray) -> FloatArray:
    """:func:`statistical_utility`, with ``num_samples`` in place of NaN; never below 0."""
    utility = statistical_utility(feedback, num_samples)
    return np.clip(np.where(np.isnan(utility), num_samples, utility), 0.0, _LARGEST)


_LARGEST = 1e100
"""A loss that makes more than this was not measured; the sums of such could overflow."""


def signal(feedback: Feedback, name: str, otherwise: FloatArray | float = np.nan) -> FloatArray:
    """[n], the signal row by row; ``otherwise`` in rows (or for all) where none was sent."""
    sent = feedback.signals.get(name, np.full(len(feedback.clients), np.nan))
    return np.where(np.isnan(sent), otherwise, sent)


def participated(feedback: Feedback) -> BoolArray:
    """bool[n], the clients that answered in time (``X = 1``, in the text below COCS Eq. 6).

    A federation that waits for answers beyond its deadline (COCS Eq. 6) marks late answers by 0 in
    the signal "in_time"; they count as failures. Without the signal every answer was in time.

    Example:
        >>> feedback = Feedback(
        ...     round=1,
        ...     clients=np.arange(3),
        ...     latency_seconds=np.array([1.0, 5.0, np.inf]),
        ...     completed=np.array([True, True, False]),
        ...     signals={"in_time": np.array([1.0, 0.0, np.nan])},
        ... )
        >>> participated(feedback)
        array([ True, False, False])
    """
    in_time = feedback.signals.get("in_time")
    return feedback.answered if in_time is None else feedback.answered & (in_time > 0)


UtilityName = Literal["linear", "square-root"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeUtility:
    """Participants for each edge server, or the square root of that.

    A participant is a client whose answer reaches its edge server by the deadline.

    Args:
        utility: "linear" in strongly convex learning (COCS Eq. 8), "square-root" in non-convex
            learning (Eq. 19), as fast as either converges.

    Example:
        >>> EdgeUtility().of(6, num_edges=3), EdgeUtility(utility="square-root").of(12, num_edges=3)
        (2.0, 2.0)
    """

    utility: UtilityName = "linear"

    def __post_init__(self) -> None:
        check_types(self)

    def of(self, participants: float, *, num_edges: int) -> float:
        """The utility of a number of participants, or of an expected number."""
        mean = participants / num_edges  # COCS Eq. 8
        return mean if self.utility == "linear" else math.sqrt(mean)  # COCS Eq. 19

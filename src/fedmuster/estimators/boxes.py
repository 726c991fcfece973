"""What is known of each client's validity and utility: a box that only shrinks (FedSUV 4.3, 4.4).

Utility is kept in the unit in which it was observed, so that the boxes of the past stay right
when its scale changes. Order and dominance do not depend on that scale; only the diagonal does,
which adds a utility to a probability.
"""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.core.state import shared

Interval = tuple[FloatArray, FloatArray]
"""Lower and upper bounds of every client."""

_MAXIMUM = 0.9
"""The quantile of a round's utilities that counts as their maximum."""
_MOST_SCALES = 10.0
_MOST = 1e100
"""A utility counts as at most so many scales, and so much: its square must not overflow."""


@dataclass(slots=True)
class BoxState:
    """Corners of each client's box R_t, infinite where nothing is known (Eq. 8, 9).

    And the scale of utility: its largest value so far, but for outliers; 0 before there is any.
    """

    validity_low: FloatArray
    validity_high: FloatArray
    utility_low: FloatArray
    utility_high: FloatArray
    utility_scale: FloatArray = shared()


def whole_plane(num_clients: int) -> BoxState:
    """R_0: nothing is known of anybody."""
    low, high = np.full(num_clients, -np.inf), np.full(num_clients, np.inf)
    return BoxState(
        validity_low=low,
        validity_high=high,
        utility_low=low.copy(),
        utility_high=high.copy(),
        utility_scale=np.array(0.0),
    )


def interval(centre: FloatArray, radius: FloatArray) -> Interval:
    """``centre ± radius``: one side of the rectangles Q_t (Eq. 6)."""
    return centre - radius, centre + radius


def intersect(boxes: BoxState, validity: Interval, utility: Interval) -> None:
    """``R_t = R_{t-1} ∩ Q_t`` for everybody, in place (Eq. 8).

    Where an objective's interval becomes empty, one of its confidence bounds has failed (or the
    client has changed), and it starts anew from Q_t. The other objective is estimated by a model
    of its own, of which that says nothing, and keeps what it knows.

    Args:
        boxes: R_{t-1}, which becomes R_t.
        validity: the bounds of Q_t (Eq. 4).
        utility: the same (Eq. 5).
    """
    _narrow(boxes.validity_low, boxes.validity_high, *validity)
    _narrow(boxes.utility_low, boxes.utility_high, *utility)


def _narrow(low: FloatArray, high: FloatArray, new_low: FloatArray, new_high: FloatArray) -> None:
    np.maximum(low, new_low, out=low)
    np.minimum(high, new_high, out=high)
    empty = np.flatnonzero(low > high)
    low[empty], high[empty] = new_low[empty], new_high[empty]


def diagonals(boxes: BoxState, rows: IntArray | slice) -> FloatArray:
    """How much is left to learn of each client, ``w_t``; infinite for the unknown (Eq. 10)."""
    scale = float(boxes.utility_scale) or 1.0
    validity = boxes.validity_high[rows] - boxes.validity_low[rows]
    utility = (boxes.utility_high[rows] - boxes.utility_low[rows]) / scale
    return np.sqrt(validity * validity + utility * utility)  # Eq. 10


def raise_scale(boxes: BoxState, utilities: FloatArray) -> None:
    """Let a round's utilities raise the scale, in place.

    Their 90 % quantile (rounded down to an observation) stands for the maximum, so that one absurd
    value in a round does not make all others look alike. The scale never falls: diagonals would
    grow, where Theorem 5.4 needs them to shrink.

    Example:
        >>> boxes = whole_plane(5)
        >>> raise_scale(boxes, np.array([1.0, 3.0, 1e9]))
        >>> boxes.utility_scale
        array(3.)
    """
    if len(utilities) > 0:
        highest = np.quantile(np.abs(utilities), _MAXIMUM, method="lower")
        np.maximum(boxes.utility_scale, min(highest, _MOST), out=boxes.utility_scale)


def clipped(utilities: FloatArray, scale: float) -> FloatArray:
    """What exceeds ten times the scale is cut off there; a scale of 0 says nothing yet.

    Example:
        >>> clipped(np.array([1.0, 3.0, 1e9]), 3.0)
        array([ 1.,  3., 30.])
    """
    limit = min(_MOST_SCALES * scale or _MOST, _MOST)
    return np.clip(utilities, -limit, limit)


def describe(boxes: BoxState) -> dict[str, FloatArray]:
    """The corners and the diagonal of each client for reports, NaN for infinite ones."""
    everybody = slice(None)
    columns = {
        "validity_low": boxes.validity_low,
        "validity_high": boxes.validity_high,
        "utility_low": boxes.utility_low,
        "utility_high": boxes.utility_high,
        "diagonal": diagonals(boxes, everybody),
    }
    return {name: np.where(np.isfinite(of), of, np.nan) for name, of in columns.items()}

"""FedSUV's boxes of validity and utility, and the candidates that they leave (FedSUV 4.3, 4.4).

Utility is kept in the unit of its observations, so that old boxes stay valid when the scale
changes. Only the diagonal depends on the scale: it adds a utility to a probability.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.state import shared
from fedmuster.solvers.pareto import dominated_boxes

Interval = tuple[FloatArray, FloatArray]
"""Lower and upper bounds of every client."""

_MAXIMUM = 0.9
"""The quantile of a round's utilities that counts as their maximum."""
_MOST_SCALES = 10.0
_MOST = 1e100
"""Utilities are clipped at ten scales and at 1e100, so that their squares do not overflow."""


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

    If the interval of an objective becomes empty, one of its confidence bounds has failed (or the
    client has changed), and the interval starts anew from Q_t. The other objective has a model of
    its own and keeps its interval. ``validity`` (Eq. 4) and ``utility`` (Eq. 5) are the sides of
    Q_t.
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
    """Let the utilities of a round, or of all clients heard of, raise the scale, in place.

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


ELIMINATED: Final = 1
"""The client left because another is certainly more likely to answer in time."""
DOMINATED: Final = 2
"""The client left because another is certainly as good in validity and in utility."""


@dataclass(slots=True)
class CandidateState:
    """The first round in which each client was no candidate, and why; 0 and 0 if it is one."""

    left_round: IntArray
    left_by: IntArray

    def remaining(self) -> IntArray:
        """The candidates."""
        return np.flatnonzero(self.left_by == 0)

    def columns(self) -> dict[str, FloatArray]:
        """Both columns for reports; ``left_round`` is NaN for a candidate."""
        when = np.where(self.left_by == 0, np.nan, self.left_round)
        return {"left_round": when, "left_by": self.left_by.astype(np.float64)}


def everyone(num_clients: int) -> CandidateState:
    """X_1: all clients are candidates."""
    return CandidateState(
        left_round=np.zeros(num_clients, dtype=np.int64),
        left_by=np.zeros(num_clients, dtype=np.int64),
    )


def eliminate(state: CandidateState, validity: Interval, *, round_: int, floor: int) -> None:
    """Remove candidates whose upper validity is below another's lower one (Eq. 7).

    ``validity`` has the bounds of Q_t; ``round_`` is the first round without the removed clients.
    The lowest upper validity leaves first, as long as at least ``floor`` candidates remain.
    """
    rows = state.remaining()
    low, high = validity[0][rows], validity[1][rows]
    best = low.max(initial=-np.inf)
    # The best candidate stays, even if nothing at all is uncertain about it.
    hopeless = (high <= best) & (low < best)  # Eq. 7
    _leave(state, rows, hopeless, high, round_=round_, floor=floor, reason=ELIMINATED)


def drop_dominated(state: CandidateState, boxes: BoxState, *, round_: int, floor: int) -> None:
    """Remove candidates whose best corner another's worst dominates (Algorithm 1, lines 10–18).

    The lowest upper utility leaves first, as long as at least ``floor`` candidates remain.
    """
    rows = state.remaining()
    high = boxes.validity_high[rows], boxes.utility_high[rows]
    dominated = dominated_boxes((boxes.validity_low[rows], boxes.utility_low[rows]), high)
    _leave(state, rows, dominated, high[1], round_=round_, floor=floor, reason=DOMINATED)


def _leave(
    state: CandidateState,
    rows: IntArray,
    leaving: BoolArray,
    merit: FloatArray,
    *,
    round_: int,
    floor: int,
    reason: int,
) -> None:
    may_leave, willing = max(len(rows) - floor, 0), np.flatnonzero(leaving)
    if len(willing) > may_leave:
        # All who are tied at the boundary stay: any other choice among them would favour ids.
        merits = merit[willing]
        willing = willing[merits < np.partition(merits, may_leave)[may_leave]]
    state.left_round[rows[willing]] = round_
    state.left_by[rows[willing]] = reason

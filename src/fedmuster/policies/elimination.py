"""FedSUV's candidates, who leave for good: too unlikely to answer, or dominated (section 4.4)."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fedmuster.core.records import BoolArray, FloatArray, IntArray
from fedmuster.estimators.boxes import BoxState, Interval
from fedmuster.solvers.pareto import dominated_boxes

ELIMINATED: Final = 1
"""Left because another is certainly more likely to answer in time."""
DOMINATED: Final = 2
"""Left because another is certainly as good in validity and in utility."""


@dataclass(slots=True)
class CandidateState:
    """The first round in which each client was no candidate, and why; 0 and 0 if it is one."""

    left_round: IntArray
    left_by: IntArray

    def remaining(self) -> IntArray:
        """Who is a candidate."""
        return np.flatnonzero(self.left_by == 0)

    def columns(self) -> dict[str, FloatArray]:
        """The same for reports: of a candidate, when it left is NaN."""
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

    Lowest upper validity first, as long as at least ``floor`` remain.

    Args:
        state: the candidates.
        validity: the bounds of Q_t.
        round_: the round for which they are no candidates any more.
        floor: how many must remain.
    """
    rows = state.remaining()
    low, high = validity[0][rows], validity[1][rows]
    best = low.max(initial=-np.inf)
    # Whoever is the best itself stays, even if nothing at all is uncertain about it.
    hopeless = (high <= best) & (low < best)  # Eq. 7
    _leave(state, rows, hopeless, high, round_=round_, floor=floor, reason=ELIMINATED)


def drop_dominated(state: CandidateState, boxes: BoxState, *, round_: int, floor: int) -> None:
    """Remove candidates whose best corner another's worst dominates (Algorithm 1, lines 10–18).

    Lowest upper utility first, as long as at least ``floor`` remain: who stays would be asked for
    its upper utility.
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

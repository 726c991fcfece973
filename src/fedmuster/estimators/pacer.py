"""Oort's pacer: how slow clients may be, by whether the data of quick ones still teach anything."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.config import check_types, require
from fedmuster.core.records import FloatArray
from fedmuster.core.state import shared


@dataclass(slots=True)
class PacerState:
    """The percentile R, and the utility that this window and the last have brought."""

    percentile: FloatArray = shared()
    this_window: FloatArray = shared()
    last_window: FloatArray = shared()


@dataclass(frozen=True, kw_only=True, slots=True)
class Pacer:
    """Clients up to the R-th percentile of durations are quick enough; R follows what they bring.

    What a round brought is the mean utility of the clients that were chosen for theirs. Every W
    rounds the sum A of the last window is compared with B of this one. If
    they are nearly the same, ``|B - A| <= flat A``, there is little left to learn from the quick
    ones, and R rises by a step; if they differ sharply, ``|B - A| >= sharp A``, it falls.

    Args:
        first_percentile: R at first. Authors' code: 30.
        window: W, in rounds. Paper: 20.
        step: by which R rises and falls; it is the lowest R, and 100 the highest. Authors' code: 5.
        flat: authors' code: 0.1.
        sharp: authors' code: 5.
    """

    first_percentile: float = 30.0
    window: int = 20
    step: float = 5.0
    flat: float = 0.1
    sharp: float = 5.0

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("first_percentile", "step"):
            require(0 < getattr(self, name) <= 100, self, name, "a number in (0, 100]")
        require(self.window >= 1, self, "window", "an integer >= 1")
        require(0 <= self.flat < self.sharp < np.inf, self, "flat", "a number >= 0 below sharp")

    def init(self) -> PacerState:
        """Nothing brought yet."""
        return PacerState(
            percentile=np.array(float(self.first_percentile)),
            this_window=np.array(0.0),
            last_window=np.array(0.0),
        )

    def update(self, state: PacerState, utility: float, *, round_: int) -> None:
        """``round_`` has brought so much ``utility``."""
        state.this_window += utility
        if round_ % self.window > 0:
            return
        last, this = float(state.last_window), float(state.this_window)
        change, percentile = abs(this - last), float(state.percentile)
        if round_ >= 2 * self.window:  # before, there is no window to compare with
            # As in the authors' code; Oort Alg. 1 adds to T itself when utility falls.
            if change <= self.flat * last:
                percentile = min(100.0, percentile + self.step)
            elif change >= self.sharp * last:
                percentile = max(self.step, percentile - self.step)
        state.percentile[...] = percentile
        state.last_window[...] = this
        state.this_window[...] = 0.0

"""Candidates as the exact solver reads them: few of them one by one, all of them block by block."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedmuster.core.arrays import LARGEST_SUMMAND, BoolArray, FloatArray, IntArray, blocks
from fedmuster.core.errors import DataError

Clients = IntArray | slice
"""Positions of some candidates, or a slice of all."""
EVERYONE = slice(None)


class Candidates(Protocol):
    """u and w of the candidates, see ``BottleneckProblem``, which need not be kept anywhere."""

    def __len__(self) -> int:
        """How many there are."""

    def bottleneck(self, clients: Clients) -> FloatArray:
        """u of these."""

    def weight(self, clients: Clients) -> FloatArray:
        """w of these."""

    def reaching(self, level: float) -> BoolArray:
        """bool[n], whose u is at least ``level``, or NaN, and perhaps a few others.

        For ``+inf`` it is exactly the unseen. It may complain of a u that is NaN or ``-inf``.
        """

    def weight_bounds(self, clients: Clients) -> tuple[float, float]:
        """A lower bound of the w of these, and their largest w; NaN where there is one."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Candidates whose u and w are at hand."""

    u: FloatArray
    w: FloatArray

    def __len__(self) -> int:
        return len(self.u)

    def bottleneck(self, clients: Clients) -> FloatArray:
        """u of these."""
        return self.u[clients]

    def weight(self, clients: Clients) -> FloatArray:
        """w of these."""
        return self.w[clients]

    def reaching(self, level: float) -> BoolArray:
        """bool[n], whose u is at least ``level``; complains of a u that is NaN or ``-inf``."""
        reaching = np.empty(len(self.u), dtype=np.bool_)
        for block in blocks(len(self.u)):  # stays in cache between two looks at it
            u = self.u[block]
            if not is_ordered(u):
                refuse_unordered(self)
            np.greater_equal(u, level, out=reaching[block])
        return reaching

    def weight_bounds(self, clients: Clients) -> tuple[float, float]:
        """The smallest and the largest w of these; NaN where there is one."""
        w = self.w[clients]
        return bounds(w[block] for block in blocks(len(w)))


def bounds(parts: Iterable[FloatArray | IntArray]) -> tuple[float, float]:
    """The smallest and the largest number of all parts; NaN if there is one."""
    # Each part stays in cache between its minimum and its maximum.
    extremes = [(np.minimum.reduce(part), np.maximum.reduce(part)) for part in parts]
    lows, highs = zip(*extremes, strict=True)
    return float(np.minimum.reduce(lows)), float(np.maximum.reduce(highs))


def is_ordered(u: FloatArray) -> bool:
    """Whether every u is finite or ``+inf``: a minimum hands a NaN on."""
    return bool(np.minimum.reduce(u) > -np.inf)


def refuse_unordered(candidates: Candidates) -> None:
    """Complain unless every u is finite or ``+inf``."""
    u = candidates.bottleneck(EVERYONE)
    _complain("bottleneck", u, u > -np.inf, "finite, or +inf for unseen clients")


def heaviest(candidates: Candidates) -> float:
    """The largest w; complains unless all are finite, and m of them can be added up."""
    low, high = candidates.weight_bounds(EVERYONE)
    if not (low > -np.inf and high <= LARGEST_SUMMAND):  # no comparison with NaN is true
        w = candidates.weight(EVERYONE)
        fits = (w > -np.inf) & (w <= LARGEST_SUMMAND)
        _complain("weight", w, fits, f"within ±{LARGEST_SUMMAND:g}")
    return high


def _complain(name: str, values: FloatArray, fits: BoolArray, expected: str) -> None:
    if not fits.all():
        wrong = np.flatnonzero(~fits)
        raise DataError(
            f"BottleneckProblem: {name} holds {values[wrong[0]]} at position {wrong[0]} "
            f"({len(wrong)} such values), expected numbers that are {expected}"
        )

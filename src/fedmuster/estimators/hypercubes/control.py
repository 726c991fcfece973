"""How many observations are enough: the control function of COCS."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from fedmuster.core.records import FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """``K(t) = factor t^z ln t``: a cube with no more observations than this is under-explored.

    Args:
        holder_alpha: alpha, how smooth success is in the context (COCS Assumption 1).
        exponent: z; None for ``2 alpha / (3 alpha + 2)`` (COCS Theorem 2).
        factor: 1 in the paper.

    Example:
        >>> round(Control().needed(1000), 1)
        109.5
    """

    holder_alpha: float = 1.0
    exponent: float | None = None
    factor: float = 1.0

    @property
    def z(self) -> float:
        """How fast K grows."""
        if self.exponent is not None:
            return self.exponent
        return 2 * self.holder_alpha / (3 * self.holder_alpha + 2)  # COCS Theorem 2

    def needed(self, round_: int) -> float:
        """K(t)."""
        return self.factor * math.pow(round_, self.z) * math.log(round_)

    def halvings(self, round_: int) -> int:
        """How often an axis is worth halving: ``h = t^gamma``, ``gamma = z / (2 alpha)``."""
        return int(self.z / (2 * self.holder_alpha) * math.log2(round_))  # COCS Theorem 2


class Demand(NamedTuple):
    """What is asked of the cubes that a context is in, from the largest (level 0) to the smallest.

    Attributes:
        least: [levels], never decreasing: in force is the smallest cube with so many observations.
        level: of the cube by which exploration judges.
        needed: unless that cube has more observations than this, the context is under-explored.
    """

    least: FloatArray
    level: int
    needed: float

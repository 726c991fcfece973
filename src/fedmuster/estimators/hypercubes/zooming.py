"""Hypercubes that become smaller where more is known: the partition adapts to what was seen."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedmuster.core.config import check_types, require
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.estimators.hypercubes.control import Control, Demand
from fedmuster.estimators.hypercubes.equal import grid_cells, grid_steps


@dataclass(frozen=True, kw_only=True, slots=True)
class ZoomingCubes:
    """A tree of hypercubes: smaller ones take over where enough was observed for them.

    A cube of level l has sides of ``2^-l``. By the Hölder condition success varies within it by
    about ``2^(-alpha l)``; the standard error of a share of C observations is at most
    ``1 / (2 sqrt(C))``. As soon as the second is no longer above the first, at
    ``C >= 2^(2 alpha l) / 4``, the cube blurs more than it is uncertain, so it is opened: the
    zooming rule. **In force for a context is the smallest cube that has so many observations of
    its own** (or else the root), and its share is the estimate. An observation counts in the cubes
    of all levels, so a cube that takes over knows all that was ever seen in it.

    What bandits that zoom have not looked at closely, they are optimistic about, and look again.
    COCS is not optimistic; it would never return to a large cube that is poor on average, however
    good one of its corners. So a depth is forced on all contexts, which grows with time. By
    COCS Theorem 2 an axis is worth ``h = t^(z / (2 alpha))`` cubes after t rounds, and
    ``K(t) = h^(2 alpha) ln t``. So **a context is under-explored while its cube of level
    ``l = floor(log2 h)`` has no more than ``2^(2 alpha l) ln t`` observations**: at most K(t),
    with equality when h is a power of two, and in early rounds far fewer, of fewer cubes. Below
    that depth cubes open only where exploitation goes.

    All cubes are allocated at the beginning, ``(2^(d (depth + 1)) - 1) / (2^d - 1)`` of them.

    Args:
        depth: the level of the smallest cubes, which are 2^depth to an axis.

    References:
        A. Slivkins, Contextual Bandits with Similarity Information, JMLR 15, 2014 (when to open);
        S. Bubeck, R. Munos, G. Stoltz, C. Szepesvári, X-Armed Bandits, JMLR 12, 2011 (the tree);
        C. Tekin, M. van der Schaar, Distributed Online Learning via Cooperative Contextual
        Bandits, IEEE TSP 63(14), 2015 (``2^(2 alpha l) ln t`` observations of a cube of level l).

    Example:
        >>> ZoomingCubes(depth=2).cubes_of(np.array([[0.9, 0.4]]))  # its row of 1, 4 and 16 cubes
        array([[ 0,  3, 18]])
    """

    name: ClassVar[str] = "zooming"
    depth: int = 4

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.depth <= 20, self, "depth", "an integer in 0 … 20")

    def num_cubes(self, dimension: int) -> int:
        """How many cubes of all levels there are for contexts of ``dimension`` numbers."""
        return sum(2 ** (dimension * level) for level in self._levels(dimension))

    def cubes_of(self, context: FloatArray) -> IntArray:
        """[n, levels], the cubes that each context [n, d] is in, from the root to the smallest."""
        dimension = context.shape[1]
        steps, path, first = grid_steps(context, 2**self.depth), [], 0
        for level in self._levels(dimension):
            path.append(first + grid_cells(steps >> (self.depth - level), 2**level))
            first += 2 ** (dimension * level)
        return np.stack(path, axis=1)

    def demand(self, control: Control, round_: int, dimension: int) -> Demand:
        """As much as the size of the cubes, and with it what they can tell apart, is worth."""
        levels = self._levels(dimension)
        worth = np.array([math.pow(2.0, 2 * control.holder_alpha * level) for level in levels])
        level = min(control.halvings(round_), levels[-1])
        needed = control.factor * float(worth[level]) * math.log(round_)
        return Demand(least=worth / 4, level=level, needed=needed)

    def _levels(self, dimension: int) -> range:
        return range(self.depth + 1 if dimension else 1)  # without context there is but the root

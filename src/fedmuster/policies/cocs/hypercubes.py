"""COCS's hypercubes of contexts, and the share of answers in time in each hypercube."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import Problem
from fedmuster.core.state import shared


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
    """How many observations the cubes of a context need; level 0 is the largest cube.

    Attributes:
        least: [levels], never decreasing; the smallest cube with this many observations is used.
        level: the level of the cube that decides about exploration.
        needed: a context is under-explored unless that cube has more observations than this.
    """

    least: FloatArray
    level: int
    needed: float


@dataclass(frozen=True, kw_only=True, slots=True)
class EqualCubes:
    """``[0, 1]^d`` cut into ``h^d`` equal hypercubes (COCS, initialization phase).

    A cube holds its lower faces, the last ones their upper ones as well. Numbers outside of [0, 1]
    belong to the cubes at the border. Without context there is one cube.

    Args:
        cubes_per_axis: h. Paper: 5; COCS Theorem 2 has ``T^(1 / (3 alpha + 2))`` rounded up, which
            is 4 for 1,000 rounds and 5 for 1,880.

    Example:
        >>> corners = np.array([[0.0, 0.19], [0.2, 0.0], [1.0, 1.0]])
        >>> EqualCubes(cubes_per_axis=5).cubes_of(corners)
        array([[ 0],
               [ 5],
               [24]])
    """

    name: ClassVar[str] = "uniform"
    cubes_per_axis: int = 5

    def __post_init__(self) -> None:
        check_types(self)
        require(self.cubes_per_axis >= 1, self, "cubes_per_axis", "an integer >= 1")

    def num_cubes(self, dimension: int) -> int:
        """How many cubes there are for contexts of ``dimension`` numbers."""
        return int(self.cubes_per_axis**dimension)

    def cubes_of(self, context: FloatArray) -> IntArray:
        """[n, 1], the cube that each context [n, d] is in."""
        return grid_cells(grid_steps(context, self.cubes_per_axis), self.cubes_per_axis)[:, None]

    def demand(self, control: Control, round_: int, dimension: int) -> Demand:
        """K(t), of every cube."""
        return Demand(least=np.zeros(1), level=0, needed=control.needed(round_))  # COCS Eq. 13


def grid_steps(context: FloatArray, per_axis: int) -> IntArray:
    """[n, d], how many of ``per_axis`` equal steps each number in [0, 1] has behind it.

    Numbers outside count as the nearest inside.
    """
    steps = (np.clip(context, 0.0, 1.0) * per_axis).astype(np.int64)
    return np.minimum(steps, per_axis - 1)  # 1.0 is in the last


def grid_cells(steps: IntArray, per_axis: int) -> IntArray:
    """[n], a number for each cell of the grid, ``0 … per_axis^d - 1``."""
    cells: IntArray = steps @ per_axis ** np.arange(steps.shape[1] - 1, -1, -1)
    return cells


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


Cubes = EqualCubes | ZoomingCubes
Pool = Literal["pairs", "clients", "edges", "network"]
"""What has statistics of its own: each pair of client and edge, each client, each edge, or all."""

_MOST_CUBES = 2**28
"""The statistics of this many cubes take 4 GiB."""


@dataclass(slots=True)
class OwnRates:
    """[K, M or 1, cubes], selections and answers in time of each client."""

    count: IntArray
    successes: IntArray


@dataclass(slots=True)
class CommonRates:
    """[1, M or 1, cubes], selections and answers in time of all clients together."""

    count: IntArray = shared()
    successes: IntArray = shared()


RatesState = OwnRates | CommonRates


class Estimate(NamedTuple):
    """Estimates for some contexts, one value for each.

    Attributes:
        probability: the share of successes in the cube in force; 0 without observations.
        observations: the number of observations in that cube.
        under_explored: whether ``counter <= needed``.
        counter: the observations in the cube that decides about exploration.
        needed: how many observations that cube must exceed.
    """

    probability: FloatArray
    observations: IntArray
    under_explored: BoolArray
    counter: IntArray
    needed: FloatArray


@dataclass(frozen=True, kw_only=True, slots=True)
class SuccessRates:
    """Counts and successes in each part of the context space (COCS Eq. 12, 13).

    Args:
        cubes: which contexts share statistics.
        pool: which clients and edges share statistics.

    Example:
        >>> rates = SuccessRates(cubes=EqualCubes(cubes_per_axis=2), pool="pairs")
        >>> state = rates.init(Problem(num_clients=2, cohort_size=1, num_features=1))
        >>> who, where, context = np.array([1, 1]), np.array([0, 0]), np.array([[0.6], [0.9]])
        >>> rates.observe(state, who, where, context, np.array([True, False]))
        >>> asked = np.array([[0.7], [0.2]])
        >>> known = rates.estimate(state, who, where, asked, round_=2, control=Control())
        >>> known.probability, known.observations, known.under_explored
        (array([0.5, 0. ]), array([2, 0]), array([False,  True]))
    """

    cubes: Cubes
    pool: Pool

    def init(self, problem: Problem) -> RatesState:
        """No client observed yet."""
        own = self.pool in ("pairs", "clients")
        shape = (
            problem.num_clients if own else 1,
            problem.num_servers if self.pool in ("pairs", "edges") else 1,
            self.cubes.num_cubes(problem.num_features),
        )
        if shape[0] * shape[1] * shape[2] > _MOST_CUBES:
            raise ConfigError(
                f"cubes {self.cubes.name!r}: there are {shape[2]} cubes of {problem.num_features} "
                f"features for each of {shape[0] * shape[1]} {self.pool}, expected at most "
                f"{_MOST_CUBES} in all; cut fewer, or let more pairs share them (pool)",
                key=("cubes",),
            )
        kind = OwnRates if own else CommonRates
        return kind(
            count=np.zeros(shape, dtype=np.int64), successes=np.zeros(shape, dtype=np.int64)
        )

    def observe(
        self,
        state: RatesState,
        clients: IntArray,
        edges: IntArray,
        context: FloatArray,
        success: BoolArray,
    ) -> None:
        """Count the success of clients that were chosen at ``edges`` in their contexts [n, d]."""
        where = self._where(clients, edges, context)
        np.add.at(state.count, where, 1)  # not +=, for pooled rows may be in the same cube
        np.add.at(state.successes, where, success[:, np.newaxis].astype(np.int64))

    def estimate(
        self,
        state: RatesState,
        clients: IntArray,
        edges: IntArray,
        context: FloatArray,
        *,
        round_: int,
        control: Control,
    ) -> Estimate:
        """The estimates for ``clients`` at ``edges`` in their contexts [n, d]."""
        where = self._where(clients, edges, context)
        counts, successes = state.count[where], state.successes[where]
        demand = self.cubes.demand(control, round_, context.shape[1])
        # From cube to smaller cube counts fall and what is asked rises: those that pass come first.
        passing = np.count_nonzero(counts >= demand.least, axis=1)
        in_force = np.maximum(passing - 1, 0)[:, np.newaxis]
        count = np.take_along_axis(counts, in_force, axis=1)[:, 0]
        success = np.take_along_axis(successes, in_force, axis=1)[:, 0]
        counter = counts[:, demand.level]
        return Estimate(
            probability=success / np.maximum(count, 1),  # COCS Eq. 12
            observations=count,
            under_explored=counter <= demand.needed,  # COCS Eq. 13
            counter=counter,
            needed=np.full(len(counter), demand.needed),
        )

    def _where(
        self, clients: IntArray, edges: IntArray, context: FloatArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """The index [n, levels] of the cubes that contexts are in."""
        row = clients if self.pool in ("pairs", "clients") else np.zeros_like(clients)
        column = edges if self.pool in ("pairs", "edges") else np.zeros_like(edges)
        return row[:, np.newaxis], column[:, np.newaxis], self.cubes.cubes_of(context)

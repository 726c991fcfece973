"""How often clients answer in time, by client, edge server and part of the context space."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import BoolArray, FloatArray, IntArray, Problem
from fedmuster.core.state import shared
from fedmuster.estimators.hypercubes.control import Control
from fedmuster.estimators.hypercubes.equal import EqualCubes
from fedmuster.estimators.hypercubes.zooming import ZoomingCubes

Cubes = EqualCubes | ZoomingCubes
Pool = Literal["pairs", "clients", "edges", "network"]
"""For whom statistics of their own are kept: each pair of client and edge, each client, each edge,
or the network as a whole."""

_MOST_CUBES = 2**28
"""Their statistics take 4 GiB."""


@dataclass(slots=True)
class OwnRates:
    """Of each client, at [K, M or 1, cubes], how often it was chosen and how often in time."""

    count: IntArray
    successes: IntArray


@dataclass(slots=True)
class CommonRates:
    """The same of all clients together, at [1, M or 1, cubes]."""

    count: IntArray = shared()
    successes: IntArray = shared()


RatesState = OwnRates | CommonRates


class Estimate(NamedTuple):
    """What is known of some contexts, one value for each.

    Attributes:
        probability: the share of successes in the cube in force; 0 where nothing was observed.
        observations: how many it is the share of.
        under_explored: whether more must be observed.
        counter: how often the cube was observed by which that is judged.
        needed: more often than this it must have been, or else the context is under-explored.
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
        cubes: which contexts are taken to be alike.
        pool: which clients and edges are taken to be alike.

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
        """Nobody observed yet."""
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
        """These clients were chosen at these edges in these contexts [n, d]; with what success."""
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
        """What is known of these clients at these edges, in these contexts [n, d]."""
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

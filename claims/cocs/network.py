"""COCS's policies, the utilities of runs in its networks, and Theorem 2's bound on regret."""

import math
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from claims.growth import first_informative_round
from fedmuster import COCS, CUCB, LinUCB, Oracle, Random
from fedmuster.core.policy import Policy
from fedmuster.core.records import FloatArray
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import Difference, Interval, interval, paired
from fedmuster.solvers.assignment import AssignmentSolver, LagrangianAssignment
from fedmuster.worlds import EdgeNetwork

ORACLE: Final = Oracle.name
OURS: Final = COCS.name
CUCB_: Final = CUCB.name
LINUCB: Final = LinUCB.name
RANDOM: Final = Random.name
RIVALS: Final = (CUCB_, LINUCB, RANDOM)
"""Those whom the paper holds against COCS."""
FIVE: Final = (ORACLE, OURS, *RIVALS)

_NOTHING = 1e-9


def five(solver: AssignmentSolver | None = None) -> dict[str, Policy[Any]]:
    """The five policies of section VI; ``solver`` is that of all who solve P2 or P3."""
    solver = LagrangianAssignment() if solver is None else solver
    return {
        ORACLE: Oracle(solver=solver),
        OURS: COCS(solver=solver),
        CUCB_: CUCB(),
        LINUCB: LinUCB(solver=solver),
        RANDOM: Random(),
    }


def described(world: EdgeNetwork) -> str:
    """The network, in a sentence's part."""
    return (
        f"N = {world.num_clients} clients, M = {world.num_edges} edges, B = {world.budget:g}, "
        f"deadline {world.deadline:g} s"
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Utilities:
    """What runs in one network were worth."""

    comparison: Comparison

    @property
    def world(self) -> EdgeNetwork:
        """The network."""
        world = self.comparison.experiment.world
        assert isinstance(world, EdgeNetwork)
        return world

    def running(self, label: str) -> FloatArray:
        """[seeds, rounds], cumulative utility (Eq. 8, 19)."""
        return np.cumsum(self.comparison.column(label, "utility"), axis=1)

    def total(self, label: str) -> FloatArray:
        """[seeds], cumulative utility of whole runs."""
        return np.asarray(self.comparison.column(label, "utility").sum(axis=1))

    def regret(self, label: str) -> FloatArray:
        """[seeds, rounds], cumulative (Eq. 11)."""
        return np.cumsum(self.comparison.column(label, "regret"), axis=1)

    def has_regret(self, label: str) -> bool:
        """Whether there is more of it than rounding errors; an exact oracle has none."""
        return bool((self.regret(label)[:, -1] > _NOTHING).all())

    def participants(self, label: str) -> FloatArray:
        """[seeds, rounds], how many answers were in time at all edges together (Fig. 4b)."""
        return self.comparison.column(label, "participants")

    def per_round(self, label: str, part: slice = slice(None)) -> FloatArray:
        """[seeds], the mean number of participants in these rounds."""
        return np.asarray(self.participants(label)[:, part].mean(axis=1))

    def shares(self, label: str, part: slice = slice(None)) -> FloatArray:
        """[seeds], utility in these rounds as a share of Oracle's in the same rounds.

        Seeds differ in what clients cost, and so in how many can be had: Oracle is their measure.
        """
        own, best = (
            self.comparison.column(name, "utility")[:, part].sum(axis=1) for name in (label, ORACLE)
        )
        return np.asarray(own / best)

    def share(self, label: str) -> Interval:
        """Cumulative utility as a share of Oracle's."""
        return interval(self.shares(label))

    def times(self, label: str, other: str) -> Interval:
        """How many times another's cumulative utility."""
        return interval(self.total(label) / self.total(other))

    def against(self, label: str, other: str, *, comparisons: int = 1) -> Difference:
        """By how much more of Oracle's utility ``label`` has than ``other``, seed by seed."""
        return paired(self.shares(label), self.shares(other), comparisons=comparisons)

    def quarter(self, number: int) -> slice:
        """The rounds of the first (0) to the last (3) quarter."""
        ends = np.linspace(0, self.comparison.rounds, 5).astype(int)
        return slice(int(ends[number]), int(ends[number + 1]))


@dataclass(frozen=True, kw_only=True, slots=True)
class RegretBound:
    """Theorem 2's bound on COCS's regret, with the Hölder constant L = 0.

    ``4 N² M B / c (ln(T) T^g + T^(2 / (3 alpha + 2))) + N M B / c (sum_k C(N, k)) pi² / 3
    + 2 N M B / c / g T^g`` with ``g = (2 alpha + 2) / (3 alpha + 2)``, c the least cost, and k up
    to B / c. Terms with L only add to it, so what stays below this stays below the theorem's.

    Args:
        num_clients: N.
        num_edges: M.
        budget: B.
        least_cost: c^min.
        holder_alpha: alpha.
    """

    num_clients: int
    num_edges: int
    budget: float
    least_cost: float
    holder_alpha: float = 1.0

    @classmethod
    def of(cls, network: EdgeNetwork) -> Self:
        """The bound in this network: the least cost is the lowest price of the least capacity."""
        return cls(
            num_clients=network.num_clients,
            num_edges=network.num_edges,
            budget=network.budget,
            least_cost=network.price_per_mhz[0] * network.compute_mhz[0],
        )

    @property
    def exponent(self) -> float:
        """g, the exponent of T."""
        return (2 * self.holder_alpha + 2) / (3 * self.holder_alpha + 2)

    def __call__(self, rounds: FloatArray) -> FloatArray:
        """What regret after ``rounds`` cannot exceed in expectation."""
        alpha, g = self.holder_alpha, self.exponent
        share = self.num_clients * self.num_edges * self.budget / self.least_cost
        most = min(self.num_clients, math.floor(self.budget / self.least_cost))
        decisions = sum(math.comb(self.num_clients, k) for k in range(1, most + 1))
        explore = np.log(rounds) * rounds**g + rounds ** (2 / (3 * alpha + 2))
        bound: FloatArray = (
            4 * self.num_clients * share * explore
            + share * decisions * math.pi**2 / 3
            + 2 / g * share * rounds**g
        )
        return bound  # Theorem 2

    @property
    def first_informative_round(self) -> float:
        """The round from which it is below ``T B / c``: an edge can pay for B / c clients."""
        return first_informative_round(self, self.budget / self.least_cost)


def order(rounds: FloatArray, exponent: float) -> FloatArray:
    """``T^g ln T``, as which Theorems 2 and 4 let regret grow."""
    return np.asarray(rounds**exponent * np.log(rounds))

"""What COCS's experiments have in common: the networks, the policies, and what is counted."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fedmuster.core.policy import Policy
from fedmuster.core.records import FloatArray
from fedmuster.policies import COCS, CUCB, LinUCB, Oracle, Random
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


def number(around: Interval, digits: int = 1) -> str:
    """A mean with the half-width of its interval."""
    return f"{around.mean:,.{digits}f} ± {around.half_width:,.{digits}f}"


def percent(around: Interval, digits: int = 1) -> str:
    """The same of a share."""
    return f"{100 * around.mean:.{digits}f} ± {100 * around.half_width:.{digits}f} %"


def points(difference: Difference) -> str:
    """A difference of shares."""
    around = difference.interval
    return f"{100 * around.mean:+.1f} ± {100 * around.half_width:.1f} points"


INTERVALS: Final = "± half-width of the 95 % Student-t interval over the seeds."

"""PAUSE, Theorem 3: how its regret grows, under both rewards and in both networks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmuster.claims.claim import Claim, Evidence, Finding, RunCells, play
from fedmuster.claims.growth import Growth, growth, theorem_1_use
from fedmuster.claims.pause_networks import KAPPA, LARGE, SMALL, Network, sa_pause
from fedmuster.claims.pause_theorem import Theorem3, smallest_difference
from fedmuster.core.policy import Policy
from fedmuster.core.records import FloatArray, Truth
from fedmuster.experiments.spec import Experiment
from fedmuster.policies import FastestInExpectation, Random
from fedmuster.report.runs import Comparison
from fedmuster.report.statistics import interval
from fedmuster.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NETWORKS: Mapping[str, Network] = {
    "small-r1": SMALL.with_rho(0.0),
    "small-r2": SMALL,
    "large-r1": LARGE.with_rho(0.0),
    "large-r2": LARGE,
}
_ANNEALING_STEPS = 500
_UNSCALED = "pause, zeta = 1"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    """What came out in one network."""

    network: Network
    comparison: Comparison
    truth: Truth
    theorem: Theorem3

    def regret(self, label: str) -> FloatArray:
        """[seeds, rounds], cumulative."""
        return np.cumsum(self.comparison.column(label, "regret"), axis=1)

    def final(self, label: str) -> float:
        return float(self.regret(label)[:, -1].mean())

    def growth(self, label: str) -> Growth:
        # Before everybody was seen once there is nothing to exploit.
        start = 2 * self.network.rounds_to_see_all
        return growth(self.regret(label).mean(axis=0), first_round=start)

    @property
    def unscaled(self) -> str:
        """The label of PAUSE as the theorem has it, with zeta = 1."""
        return _UNSCALED if _UNSCALED in self.comparison.labels else "pause"

"""Fast Lazy Greedy, COCS's approximation of P3."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.utility import UtilityName
from fedmuster.core.config import check_types, require
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.solvers.assignment.offers import Filling, Offers, by_density
from fedmuster.solvers.assignment.prices import Incumbent, charge, safe_bound
from fedmuster.solvers.assignment.problem import ASSIGNMENT_SOLVERS, AssignmentProblem, Placement


@ASSIGNMENT_SOLVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FLGreedy:
    """Thresholds that fall by 1 + epsilon, once for each density that the best could have.

    The algorithm of Badanidiyuru and Vondrák for a monotone submodular function f under a p-system
    and l knapsacks; here p = 1 (each client once, at most ``size`` of them) and l = M budgets. For
    each density rho of a grid: begin with nobody; for tau falling from the largest f of one pair,
    take every pair that gains f at least tau, and at least rho for each part of its budget. The
    best of all rho, or of all single pairs, is worth at least ``guarantee`` of the optimum of f
    (COCS Lemma 3), which is the sum of values (``"linear"``, Eq. 8) or its square root (Eq. 19).

    It is kept for comparison. P3 has the same maximiser as P2, which other solvers find.

    Args:
        epsilon: how coarse thresholds and densities are (paper: 0.3).
        utility: f.

    Deviations:
        1. The original ends a run with the first pair that breaks a budget, and compares what it
           had with that pair alone. With M budgets one full edge would end it for all, so here
           the run goes on without such pairs, and the best single pair is compared in the end.
           Both can only be worth more.
        2. Within a threshold, pairs come by value, equals at random; the original leaves it open.
        3. In the end the budgets' rest goes to whoever still fits, by density.

    References:
        A. Badanidiyuru and J. Vondrák, Fast algorithms for maximizing submodular functions,
        SODA 2014.
    """

    name: ClassVar[str] = "fl-greedy"
    epsilon: float = 0.3
    utility: UtilityName = "square-root"

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.epsilon < np.inf, self, "epsilon", "a number > 0")

    def guarantee(self, num_edges: int) -> float:
        """The least part of the optimal f that is found (COCS Lemma 3)."""
        return 1.0 / ((1.0 + self.epsilon) * (2 + 2 * num_edges))

    def solve(self, problem: AssignmentProblem, rng: Generator) -> Placement:
        """The placement; its bound is that of budgets without a price, or of the guarantee."""
        offers = Offers.of(problem, rng)
        if len(offers.client) == 0 or offers.size == 0:
            return Placement(np.empty(0, dtype=np.int64), 0.0)
        incumbent = Incumbent(problem, offers)
        for pairs in self.runs(offers):
            incumbent.propose(pairs)
        incumbent.lower(safe_bound(offers, charge(offers, np.zeros(offers.num_edges))))
        exponent = 1 if self.utility == "linear" else 2
        incumbent.lower(incumbent.value / self.guarantee(offers.num_edges) ** exponent)
        return incumbent.placement(by_density(offers))

    def runs(self, offers: Offers) -> Iterator[IntArray]:
        """The best single pair, then what is found at each density."""
        order = np.argsort(-offers.value, kind="stable")[: np.count_nonzero(offers.value)]
        yield order[:1]
        # f of the best pair is 1, f of the optimum between that and f of as many as there may be
        # clients. The density that proves the guarantee is 2 f / (2 + 2 M).
        density = 2.0 / (2 + 2 * offers.num_edges)
        for power in range(self._num_steps(float(offers.size)) + 1):
            yield self._run(offers, order, density * (1 + self.epsilon) ** power)

    def _run(self, offers: Offers, order: IntArray, density: float) -> IntArray:
        """The pairs taken at one density, of those in ``order`` of falling value."""
        filling, total, value = Filling(offers, order[:0]), 0.0, offers.value

        def gain(pairs: IntArray, before: FloatArray | float) -> FloatArray:
            return self._of(before + value[pairs]) - self._of(before)

        # A gain never grows again: a pair that is not dense enough never will be.
        order = order[gain(order, 0.0) >= density * offers.share[order]]
        # Gains below this cannot add up to what the guarantee leaves open.
        smallest = self.epsilon * self.guarantee(offers.num_edges) / offers.size
        power = 0
        while len(order) and (highest := float(gain(order[:1], total)[0])) >= smallest:
            power = max(power, self._num_steps(1.0 / highest))  # lazily: to one that is reached
            threshold = (1 + self.epsilon) ** -power
            while True:
                # Gains fall with values: those that reach the threshold come first.
                reaching = np.searchsorted(-gain(order, total), -threshold, side="right")
                pairs, order = filling.fitting(order[:reaching]), order[reaching:]
                pairs = pairs[gain(pairs, total) >= density * offers.share[pairs]]
                if len(pairs) == 0:
                    break
                # As if all before were taken: a pair that passes then passes in any case.
                gains = gain(pairs, total + np.cumsum(value[pairs]) - value[pairs])
                passes = (gains >= threshold) & (gains >= density * offers.share[pairs])
                passes[0] = True
                total += float(value[filling.take_most(pairs[passes])].sum())
                order = np.concatenate((pairs, order))
            power += 1
        return filling.chosen

    def _of(self, total: FloatArray | float) -> FloatArray:
        """f, but for the constant 1 / M."""
        return np.asarray(total) if self.utility == "linear" else np.sqrt(total)

    def _num_steps(self, ratio: float) -> int:
        """How often 1 + epsilon divides ``ratio``, rounded up."""
        return int(np.ceil(np.log(max(ratio, 1.0)) / np.log1p(self.epsilon)))

"""The best placement so far and the lowest bound so far, and what is still between them."""

from math import floor, inf

import numpy as np

from fedmuster.core.records import IntArray
from fedmuster.solvers.assignment.filling import fill
from fedmuster.solvers.assignment.offers import Offers
from fedmuster.solvers.assignment.problem import AssignmentProblem, Placement

_SMALLEST_GAIN = 1e-12
"""Relative. Nobody looks for a placement that is better by less, which may be mere rounding."""


class Incumbent:
    """Takes placements and bounds as they come; values are those of the offers, up to 1."""

    def __init__(self, problem: AssignmentProblem, offers: Offers) -> None:
        self._problem, self._offers = problem, offers
        self.pairs: IntArray = np.empty(0, dtype=np.int64)
        self.value = 0.0
        self.bound = inf
        # Where all clients are worth the same, totals are whole numbers of it (COCS Eq. 14, 15).
        self.whole = bool((offers.value[offers.value > 0] == 1.0).all())

    @property
    def gain(self) -> float:
        """The least by which a better placement is better, or is worth looking for."""
        return 1.0 - 1e-6 if self.whole else _SMALLEST_GAIN * (1.0 + self.value)

    @property
    def beat(self) -> float:
        """What a placement must be worth more than, to be of interest."""
        return self.value + self.gain

    @property
    def proved(self) -> bool:
        """Whether nothing is better."""
        return self.bound <= self.beat

    @property
    def gap(self) -> float:
        """How much of the bound is still missing, at most."""
        return 0.0 if self.proved else (self.bound - self.value) / self.bound

    def fits(self, pairs: IntArray) -> bool:
        """Whether the problem allows these offers, exactly."""
        return self._problem.fits(self._offers.origin[pairs])

    def propose(self, pairs: IntArray) -> None:
        """Keeps ``pairs`` if they are the best so far, less what breaks a budget by rounding."""
        offers = self._offers
        if float(offers.value[pairs].sum()) > self.value:
            pairs = self._within_budgets(pairs)
            value = float(offers.value[pairs].sum())
            if value > self.value:
                self.pairs, self.value = pairs, value

    def lower(self, bound: float) -> None:
        """Keeps ``bound`` if it is the lowest so far, a little above where rounding put it."""
        bound *= 1.0 + _SMALLEST_GAIN
        self.bound = min(self.bound, floor(bound) if self.whole else bound)

    def placement(self, order: IntArray) -> Placement:
        """The answer, filled up in this ``order`` with whoever still fits, also for no value."""
        offers, problem = self._offers, self._problem
        chosen = self._within_budgets(fill(offers, order, self.pairs))
        if float(offers.value[chosen].sum()) < self.value:
            chosen = self.pairs
        pairs = np.sort(offers.origin[chosen])
        total = problem.total(pairs)
        if self.proved:
            return Placement(pairs, total * (1.0 + 2 * _SMALLEST_GAIN))
        return Placement(pairs, max(total, self.bound * offers.unit))

    def _within_budgets(self, pairs: IntArray) -> IntArray:
        """``pairs`` less the least valuable at each edge whose budget they break."""
        problem, offers = self._problem, self._offers
        while True:
            chosen = offers.origin[pairs]
            broken = problem.spent(chosen) > problem.budget
            if not broken.any():
                return pairs
            at_fault = np.flatnonzero(broken[problem.edges[chosen]])
            worst = at_fault[np.argmin(offers.value[pairs[at_fault]])]
            pairs = np.delete(pairs, worst)

"""P2 by integer programming, with HiGHS."""

from dataclasses import dataclass
from math import fsum
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import check_types, require
from fedmuster.core.errors import MissingExtraError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.solvers.assignment.knapsacks import Core
from fedmuster.solvers.assignment.offers import Offers
from fedmuster.solvers.assignment.prices import Prices, start
from fedmuster.solvers.assignment.problem import ASSIGNMENT_SOLVERS, AssignmentProblem, Placement

_PRICE_STEPS = 100
_NARROW, _MOST_UNDECIDED = 100, 200
"""A quick search for a good placement: the better it is, the more clients prices decide."""
_SCALE = 1e4
"""HiGHS is content with what is within an absolute 1e-6 of the optimum."""
_ROUNDING = 1e-9
_SOLVED, _STOPPED = 0, 1


@ASSIGNMENT_SOLVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class ExactAssignment:
    """A best placement, proved by HiGHS (``scipy.optimize.milp``).

    Prices on the budgets decide most clients before (reduced-cost fixing). HiGHS lets budgets be
    exceeded by its tolerance; a set of clients that it would place although they break a budget by
    a rounding error is forbidden by a cover inequality, and the rest is solved again.

    Args:
        nodes: branch-and-bound nodes after which HiGHS stops without a proof; None for no limit.
    """

    name: ClassVar[str] = "exact"
    nodes: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        require(self.nodes is None or self.nodes >= 1, self, "nodes", "at least 1")

    def solve(self, problem: AssignmentProblem, rng: Generator) -> Placement:
        """The placement; its bound is its own total, if HiGHS came to an end."""
        begun = start(problem, rng, _PRICE_STEPS)
        if isinstance(begun, Placement):
            return begun
        offers, order, incumbent, prices = begun
        core = Core(offers, prices, incumbent.beat)
        if not incumbent.proved and core.num_clients <= _MOST_UNDECIDED:
            better = core.search(_NARROW, incumbent.fits).pairs
            incumbent.propose(incumbent.pairs if better is None else better)
        program = Program(problem, offers, prices, incumbent.beat)
        while not incumbent.proved:
            chosen, bound = program.solve(self.nodes)
            if chosen is None or not program.forbid_overspending(chosen):
                if chosen is not None:
                    incumbent.propose(chosen)
                incumbent.lower(max(bound, incumbent.value))
                break
        return incumbent.placement(order)


class Program:
    """The integer program over the pairs that could be in a placement worth more than ``beat``."""

    def __init__(
        self, problem: AssignmentProblem, offers: Offers, prices: Prices, beat: float
    ) -> None:
        self._problem, self._offers = problem, offers
        gap = prices.bound - beat + _ROUNDING
        self._pairs = np.flatnonzero(prices.open_pairs(offers, gap))
        self._rows: list[tuple[IntArray, IntArray, FloatArray]] = []
        self._limits: list[FloatArray] = []
        everyone, ones = np.arange(len(self._pairs)), np.ones(len(self._pairs))
        names, client = np.unique(offers.client[self._pairs], return_inverse=True)
        self._limit(client, everyone, ones, np.ones(len(names)))  # (10d)
        edge, share = offers.edge[self._pairs], offers.share[self._pairs]
        self._limit(edge, everyone, share, np.ones(offers.num_edges))  # (10b)
        self._limit(np.zeros_like(everyone), everyone, ones, np.array([float(offers.size)]))

    def solve(self, nodes: int | None) -> tuple[IntArray | None, float]:
        """The pairs that HiGHS places, if it finds any, and the bound it proves."""
        try:
            from scipy.optimize import Bounds, LinearConstraint, milp
            from scipy.sparse import coo_array
        except ImportError:
            raise MissingExtraError(
                "scipy", extra="scipy", purpose="placing clients at edges by HiGHS"
            ) from None
        if len(self._pairs) == 0:
            return None, -np.inf
        row, column, entry = (np.concatenate(part) for part in zip(*self._rows, strict=True))
        limits = np.concatenate(self._limits)
        matrix = coo_array((entry, (row, column)), shape=(len(limits), len(self._pairs)))
        result: Any = milp(
            -_SCALE * self._offers.value[self._pairs],
            integrality=np.ones(len(self._pairs)),
            bounds=Bounds(0.0, 1.0),
            constraints=LinearConstraint(matrix.tocsr(), ub=limits),
            options={"mip_rel_gap": 0.0} | ({} if nodes is None else {"node_limit": nodes}),
        )
        if result.status not in (_SOLVED, _STOPPED):
            raise RuntimeError(f"HiGHS gave up on a solvable problem: {result.message}")
        chosen = None if result.x is None else self._pairs[result.x > 0.5]
        if result.status == _SOLVED:
            return chosen, -np.inf
        bound = result.mip_dual_bound
        return chosen, np.inf if bound is None else -float(bound) / _SCALE + _ROUNDING

    def forbid_overspending(self, chosen: IntArray) -> bool:
        """Adds a cover inequality for each edge that cannot pay for its part of ``chosen``."""
        problem, offers = self._problem, self._offers
        candidates, positions = offers.origin[self._pairs], offers.origin[chosen]
        broken = np.flatnonzero(problem.spent(positions) > problem.budget)
        for edge in broken:
            cover = positions[problem.edges[positions] == edge]
            cover = cover[np.argsort(problem.cost[cover])]
            while fsum(problem.cost[cover[1:]].tolist()) > problem.budget[edge]:
                cover = cover[1:]  # the fewer there are, the more it forbids
            # A client that costs as much as the dearest of the cover can replace any of them.
            dear = problem.cost[candidates] >= problem.cost[cover[-1]]
            dear &= problem.edges[candidates] == edge
            columns = np.flatnonzero(dear | np.isin(candidates, cover))
            limit = np.array([len(cover) - 1.0])
            self._limit(np.zeros_like(columns), columns, np.ones(len(columns)), limit)
        return len(broken) > 0

    def _limit(self, row: IntArray, column: IntArray, entry: FloatArray, at: FloatArray) -> None:
        first = sum(map(len, self._limits))
        self._rows.append((row + first, column, entry))
        self._limits.append(at)

"""Which clients at which edge server, within the edges' budgets: the problem P2 of COCS."""

from dataclasses import dataclass, replace
from math import fsum
from typing import ClassVar, Final, NamedTuple, Protocol, Self

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import LARGEST_SUMMAND, BoolArray, FloatArray, IntArray, exact_sums
from fedmuster.core.errors import DataError
from fedmuster.core.records import RoundView, is_integer
from fedmuster.core.registry import Registry


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AssignmentProblem:
    """The largest sum of values, each client once, each edge within its budget (COCS Eq. 10).

    Only pairs of a client and an edge that can reach each other are listed, so coverage (10c)
    holds for every choice of pairs. P3 (Eq. 20) is the square root of the same sum and has the
    same maximiser.

    Args:
        clients: int64[P], the client of each pair.
        edges: int64[P], the edge of each pair, 0 … M-1.
        value: [P], what the pair is worth; finite, >= 0.
        cost: [P], what the pair takes of its edge's budget; finite, >= 0.
        budget: [M], >= 0, ``+inf`` for none.
        size: the most clients that all edges together may use.

    Example:
        >>> problem = AssignmentProblem(
        ...     clients=np.array([0, 0, 1]), edges=np.array([0, 1, 1]),
        ...     value=np.array([0.9, 0.8, 0.5]), cost=np.array([2.0, 2.0, 1.5]),
        ...     budget=np.array([3.5, 3.5]), size=2,
        ... )
        >>> problem.fits(np.array([1, 2])), problem.total(np.array([1, 2]))
        (True, 1.3)
        >>> problem.fits(np.array([0, 1]))  # client 0 cannot serve two edges
        False
    """

    clients: IntArray
    edges: IntArray
    value: FloatArray
    cost: FloatArray
    budget: FloatArray
    size: int

    def __post_init__(self) -> None:
        for name in ("clients", "edges", "value", "cost", "budget"):
            kind = np.int64 if name in ("clients", "edges") else np.float64
            object.__setattr__(self, name, _column(name, getattr(self, name), kind))
        if not len(self.clients) == len(self.edges) == len(self.value) == len(self.cost):
            raise DataError(
                f"AssignmentProblem: clients ({len(self.clients)}), edges ({len(self.edges)}), "
                f"value ({len(self.value)}) and cost ({len(self.cost)}) must be of the same length"
            )
        _check("clients", self.clients, 0, np.inf, "numbers >= 0")
        _check("edges", self.edges, 0, self.num_edges - 1, f"0 … {self.num_edges - 1}")
        limited = f"numbers in 0 … {LARGEST_SUMMAND:g}"
        _check("value", self.value, 0.0, LARGEST_SUMMAND, limited)
        _check("cost", self.cost, 0.0, LARGEST_SUMMAND, limited)
        _check("budget", self.budget, 0.0, np.inf, "numbers >= 0, +inf for none")
        if not is_integer(self.size, least=0):
            raise DataError(f"AssignmentProblem: size is {self.size!r}, expected an integer >= 0")

    @classmethod
    def of(cls, view: RoundView, value: FloatArray, *, among: BoolArray | None = None) -> Self:
        """The problem of a round: pairs that are available, covered and affordable by themselves.

        ``value`` [K, M] is the worth of each pair; ``among`` bool[K, M] further restricts the
        pairs. Flat FL is one edge without a budget.
        """
        network = view.network
        if value.shape != network.coverage.shape:
            raise DataError(
                f"AssignmentProblem: value has shape {value.shape}, expected "
                f"{network.coverage.shape}: a number for each client and edge"
            )
        open_pairs = network.coverage & view.available[:, None] & (network.cost <= network.budget)
        clients, edges = np.nonzero(open_pairs if among is None else open_pairs & among)
        return cls(
            clients=clients,
            edges=edges,
            value=value[clients, edges],
            cost=network.cost[clients, edges],
            budget=network.budget,
            size=view.cohort_size,
        )

    @property
    def num_edges(self) -> int:
        """M."""
        return len(self.budget)

    def total(self, pairs: IntArray) -> float:
        """What the pairs at these positions are worth together."""
        return fsum(self.value[pairs].tolist())

    def spent(self, pairs: IntArray) -> FloatArray:
        """[M], what the pairs at these positions cost each edge, each sum rounded once."""
        return exact_sums(self.edges[pairs], self.cost[pairs], self.num_edges)

    def fits(self, pairs: IntArray) -> bool:
        """Whether they obey (10b), (10d) and ``size``, without any tolerance."""
        clients = self.clients[pairs]
        return bool(
            len(clients) <= self.size
            and len(np.unique(clients)) == len(clients)
            and (self.spent(pairs) <= self.budget).all()
        )

    def part(self, pairs: IntArray) -> Self:
        """The problem of the pairs at these positions alone."""
        columns = ("clients", "edges", "value", "cost")
        return replace(self, **{name: getattr(self, name)[pairs] for name in columns})

    def others(self, taken: IntArray) -> BoolArray:
        """bool[P], the pairs of clients of whom no pair was taken."""
        return ~np.isin(self.clients, self.clients[taken])

    def after(self, taken: IntArray) -> Self:
        """The same pairs with what is left of budgets (COCS Eq. 16) and ``size``."""
        return replace(self, budget=self._left(taken), size=self.size - len(taken))

    def _left(self, taken: IntArray) -> FloatArray:
        """[M], the most that, added to what was spent, is rounded to the budget at most."""
        left = self.budget.copy()
        for edge in np.unique(self.edges[taken]):
            budget = float(left[edge])
            if budget < np.inf:
                spent = self.cost[taken[self.edges[taken] == edge]]
                most = fsum([budget, 0.5 * float(np.spacing(budget)), *-spent])
                # Half way between two numbers, the even one is taken, which may be above it.
                left[edge] = most if fsum([*spent, most]) <= budget else np.nextafter(most, 0.0)
        return left


class Placement(NamedTuple):
    """Increasing positions of the chosen pairs; no placement is worth more than the ``bound``."""

    pairs: IntArray
    bound: float


class AssignmentSolver(Protocol):
    """A frozen, keyword-only dataclass with a ``name`` that solves an assignment problem."""

    name: ClassVar[str]

    def solve(self, problem: AssignmentProblem, rng: Generator, /) -> Placement:
        """The placement and its bound; ``rng`` decides between equals."""


ASSIGNMENT_SOLVERS: Final[Registry[AssignmentSolver]] = Registry(
    "assignment solver",
    AssignmentSolver,
    modules=("fedmuster.solvers.assignment",),
    methods=("solve",),
    group="fedmuster.assignment_solvers",
)


def _column(name: str, values: object, kind: type) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(f"AssignmentProblem: {name} must hold numbers: {error}") from None
    expected = np.integer if kind is np.int64 else np.number
    fits = np.issubdtype(array.dtype, expected) and not np.iscomplexobj(array)
    if array.ndim != 1 or not (fits or array.size == 0):
        what = "integers" if kind is np.int64 else "numbers"
        raise DataError(
            f"AssignmentProblem: {name} is {array.dtype}{array.shape}, expected a list of {what}"
        )
    return array.astype(kind, copy=False)


def _check(
    name: str, values: IntArray | FloatArray, low: float, high: float, expected: str
) -> None:
    # Minima and maxima hand a NaN on, and no comparison with NaN is true.
    if values.size and not (values.min() >= low and values.max() <= high):
        wrong = np.flatnonzero(~((values >= low) & (values <= high)))[0]
        raise DataError(
            f"AssignmentProblem: {name} holds {values[wrong]} at position {wrong}, "
            f"expected {expected}"
        )

"""What a network operator sees of its edge servers before it chooses."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.arrays import (
    LARGEST_SUMMAND,
    BoolArray,
    FloatArray,
    IntArray,
    exact_sums,
    real_numbers,
)
from fedmuster.core.errors import DataError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EdgeView:
    """The edge servers in one round: coverage, cost of each client, budget of each edge.

    Flat federated learning is one edge server that reaches everybody and has no budget, see
    :meth:`flat`.

    Args:
        coverage: bool[K, M], who can train at which edge.
        cost: [K, M], what the operator pays for a client at an edge (COCS: ``c_n(y_n)``), or [K]
            if it is the same at all of them.
        budget: [M], what each edge may spend in this round (COCS: ``B``); infinite for no limit.

    Example:
        >>> reach = np.array([[True, False], [True, True]])
        >>> network = EdgeView(coverage=reach, cost=np.array([1.0, 2.5]), budget=np.full(2, 3.0))
        >>> network.num_edges, network.cost[1]
        (2, array([2.5, 2.5]))
    """

    coverage: BoolArray
    cost: FloatArray
    budget: FloatArray

    def __post_init__(self) -> None:
        coverage = np.asarray(self.coverage)
        if coverage.dtype != np.bool_ or coverage.ndim != 2 or coverage.shape[1] == 0:
            raise DataError(
                f"EdgeView: coverage is {coverage.dtype}{coverage.shape}, expected bool(K, M): for "
                "each client whether each of M >= 1 edges covers it"
            )
        clients, edges = coverage.shape
        budget = _numbers("budget", self.budget)
        # A comparison with NaN is false, so NaN is refused here too.
        if budget.shape != (edges,) or not np.all(budget >= 0):
            raise DataError(
                f"EdgeView: budget is {budget!r}, expected a number >= 0 (or infinity) for each of "
                f"{edges} edges"
            )
        cost = _numbers("cost", self.cost)
        if cost.shape not in ((clients,), coverage.shape):
            raise DataError(
                f"EdgeView: cost has shape {cost.shape}, expected ({clients},) or {coverage.shape}"
            )
        wrong = ~((cost >= 0) & (cost <= LARGEST_SUMMAND))
        if wrong.any():
            client = int(np.argwhere(wrong)[0, 0])
            raise DataError(
                f"EdgeView: cost of client {client} is {cost[client].tolist()}, expected numbers "
                f"from 0 to {LARGEST_SUMMAND:g}"
            )
        # Copies: what was seen stays as it was seen, whatever the caller does to its arrays.
        coverage, cost, budget = coverage.copy(), cost.copy(), budget.copy()
        if cost.ndim == 1:
            cost = np.broadcast_to(cost[:, np.newaxis], coverage.shape)
        for name, array in (("coverage", coverage), ("cost", cost), ("budget", budget)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def flat(cls, num_clients: int) -> "EdgeView":
        """One edge server that covers everybody, costs nothing and has no budget.

        It is what policies for edge servers see in flat federated learning. A federation without
        edge servers says nothing of edges: ``Problem.num_edges`` is 0.
        """
        return cls(
            coverage=np.ones((num_clients, 1), dtype=np.bool_),
            cost=np.zeros(num_clients),
            budget=np.array([np.inf]),
        )

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.coverage)

    @property
    def num_edges(self) -> int:
        """M."""
        return len(self.budget)

    @property
    def covered(self) -> BoolArray:
        """bool[K], the clients that at least one edge covers."""
        return np.asarray(self.coverage.any(axis=1))

    def spent(self, clients: IntArray, edges: IntArray) -> FloatArray:
        """[M], what these clients cost at their edges: the correctly rounded sum, in any order."""
        return exact_sums(edges, self.cost[clients, edges], self.num_edges)


def _numbers(name: str, values: object) -> FloatArray:
    try:
        return real_numbers(values)
    except ValueError as error:
        raise DataError(f"EdgeView: {name} must hold numbers: {error}") from None

"""COCS, Theorems 2 and 4: the bounds on regret, in numbers."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedmuster.core.records import FloatArray
from fedmuster.worlds import EdgeNetwork


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
        """g, that of T."""
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
        """From when on it is below ``T B / c``: no edge can pay for more than B / c clients."""
        most, rounds = self.budget / self.least_cost, np.array(1e60)
        for _ in range(200):  # the bound grows slower than T, so this falls to where they cross
            rounds = self(rounds) / most
        return float(rounds)

    def use(self, gaps: FloatArray) -> float:
        """The largest share of the bound that a run with these gaps used, after any round."""
        rounds = np.arange(1.0, len(gaps) + 1)
        return float((np.cumsum(gaps) / self(rounds)).max())


def order(rounds: FloatArray, exponent: float) -> FloatArray:
    """``T^g ln T``, as which Theorems 2 and 4 let regret grow."""
    return np.asarray(rounds**exponent * np.log(rounds))

"""What clients cost beside their seconds, by their own reports."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.records import LONGEST_SECONDS


@dataclass(slots=True)
class CostState:
    """[K] the mean of the costs that each client has reported, and how many these are."""

    mean: FloatArray
    reports: IntArray


def init(num_clients: int) -> CostState:
    """Nothing reported yet."""
    return CostState(mean=np.zeros(num_clients), reports=np.zeros(num_clients, dtype=np.int64))


def learn(state: CostState, clients: IntArray, cost: FloatArray) -> None:
    """The costs that clients reported; a cost that is no number >= 0 counts as not reported."""
    told = np.isfinite(cost) & (cost >= 0)
    clients, cost = clients[told], np.minimum(cost[told], LONGEST_SECONDS)
    state.reports[clients] += 1
    state.mean[clients] += (cost - state.mean[clients]) / state.reports[clients]


def in_seconds(state: CostState, rows: IntArray | slice, seconds_each: float) -> FloatArray:
    """[n], the cost of each client in seconds; without a report, the median of the others'."""
    known = state.reports > 0
    typical = np.median(state.mean[known]) if known.any() else 0.0  # few lies do not move it
    costs = seconds_each * np.where(known[rows], state.mean[rows], typical)
    return np.asarray(np.minimum(costs, LONGEST_SECONDS))

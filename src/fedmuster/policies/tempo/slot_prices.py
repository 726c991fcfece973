"""What a second in a slot is worth, and what clients cost beside their seconds."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.records import LONGEST_SECONDS
from fedmuster.core.state import shared

_FORGETTING: Final = 0.95
"""What each batch of answers leaves of the older value and slot-seconds; fresh and late answers
are two batches."""


@dataclass(slots=True)
class PriceState:
    """The price of a slot-second, and the costs of clients.

    Attributes:
        value: of the last jobs.
        slot_seconds: which they have held.
        cost: [K], mean of the costs that each client has reported.
        charged: int64[K], how many those are.
    """

    cost: FloatArray
    charged: IntArray
    value: FloatArray = shared()
    slot_seconds: FloatArray = shared()


def init(num_clients: int) -> PriceState:
    """No job yet."""
    return PriceState(
        cost=np.zeros(num_clients),
        charged=np.zeros(num_clients, dtype=np.int64),
        value=np.array(0.0),
        slot_seconds=np.array(0.0),
    )


def price(state: PriceState) -> float:
    """The value per slot-second of the last jobs; 0 before any."""
    return float(state.value / state.slot_seconds) if state.slot_seconds > 0 else 0.0


def learn_jobs(state: PriceState, value: float, slot_seconds: float) -> None:
    """The jobs that just ended, by their value together and the slot-seconds they held."""
    state.value[...] = _FORGETTING * state.value + value
    state.slot_seconds[...] = _FORGETTING * state.slot_seconds + slot_seconds


def learn_costs(state: PriceState, clients: IntArray, cost: FloatArray) -> None:
    """The costs that clients reported; a cost that is no number >= 0 counts as not reported."""
    told = np.isfinite(cost) & (cost >= 0)
    clients, cost = clients[told], np.minimum(cost[told], LONGEST_SECONDS)
    state.charged[clients] += 1
    state.cost[clients] += (cost - state.cost[clients]) / state.charged[clients]


def cost_seconds(state: PriceState, rows: IntArray | slice, seconds_each: float) -> FloatArray:
    """[n], the cost of each client in seconds; without a report, the median of the others'."""
    known = state.charged > 0
    typical = np.median(state.cost[known]) if known.any() else 0.0  # few lies do not move it
    costs = seconds_each * np.where(known[rows], state.cost[rows], typical)
    return np.asarray(np.minimum(costs, LONGEST_SECONDS))

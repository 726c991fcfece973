"""The price of a slot-second: what the jobs that were answered lately have earned in it."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from fedmuster.core.arrays import FloatArray
from fedmuster.core.state import shared

_KEPT: Final = 0.95
"""The share of the older sums that each call keeps; answers in time and late ones are two calls."""


@dataclass(slots=True)
class PriceState:
    """The price of a slot-second.

    Attributes:
        value: of the last jobs that were answered.
        slot_seconds: for which these have held their slots; of a round that waits for everybody,
            for which all its clients have.
    """

    value: FloatArray = shared()
    slot_seconds: FloatArray = shared()


def init() -> PriceState:
    """No job yet."""
    return PriceState(value=np.array(0.0), slot_seconds=np.array(0.0))


def current(state: PriceState) -> float:
    """The value per slot-second of the last jobs; 0 before any."""
    return float(state.value / state.slot_seconds) if state.slot_seconds > 0 else 0.0


def learn(state: PriceState, value: float, slot_seconds: float) -> None:
    """The jobs that were just answered, by their value together and the slot-seconds they held."""
    state.value[...] = _KEPT * state.value + value
    state.slot_seconds[...] = _KEPT * state.slot_seconds + slot_seconds

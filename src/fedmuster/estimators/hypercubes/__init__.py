"""How often clients answer in time, learned apart in parts of the space of contexts (COCS)."""

from fedmuster.estimators.hypercubes.control import Control
from fedmuster.estimators.hypercubes.equal import EqualCubes
from fedmuster.estimators.hypercubes.success_rates import (
    Cubes,
    Estimate,
    Pool,
    RatesState,
    SuccessRates,
)
from fedmuster.estimators.hypercubes.zooming import ZoomingCubes

__all__ = [
    "Control",
    "Cubes",
    "EqualCubes",
    "Estimate",
    "Pool",
    "RatesState",
    "SuccessRates",
    "ZoomingCubes",
]

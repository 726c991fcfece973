"""How often clients answer in time, learned apart in parts of the space of contexts (COCS)."""

from fedmuster.estimators.partition.control import Control
from fedmuster.estimators.partition.success_rates import (
    Estimate,
    Partition,
    Pool,
    RatesState,
    SuccessRates,
)
from fedmuster.estimators.partition.uniform import UniformPartition
from fedmuster.estimators.partition.zooming import ZoomingPartition

__all__ = [
    "Control",
    "Estimate",
    "Partition",
    "Pool",
    "RatesState",
    "SuccessRates",
    "UniformPartition",
    "ZoomingPartition",
]

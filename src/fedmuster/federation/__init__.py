"""The loop: a policy in a world, with rounds or without, judged against the genie, training."""

from fedmuster.federation.rows import (
    UNLIMITED,
    Checkpoint,
    EdgeRow,
    Horizon,
    JobRows,
    RoundRow,
    Watch,
)
from fedmuster.federation.settings import Federation
from fedmuster.federation.simulation import Simulation

__all__ = [
    "UNLIMITED",
    "Checkpoint",
    "EdgeRow",
    "Federation",
    "Horizon",
    "JobRows",
    "RoundRow",
    "Simulation",
    "Watch",
]

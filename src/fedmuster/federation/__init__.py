"""The round loop: a policy in a world, judged against the genie, training a model."""

from fedmuster.federation.rows import Checkpoint, EdgeRow, Horizon, RoundRow, Watch
from fedmuster.federation.simulation import Simulation

__all__ = ["Checkpoint", "EdgeRow", "Horizon", "RoundRow", "Simulation", "Watch"]

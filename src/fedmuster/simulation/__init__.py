"""The round loop: a policy in a world, judged against the genie, training a model."""

from fedmuster.simulation.loop import Simulation
from fedmuster.simulation.progress import Checkpoint, Horizon
from fedmuster.simulation.rows import EdgeRow, RoundRow
from fedmuster.simulation.watch import Watch

__all__ = ["Checkpoint", "EdgeRow", "Horizon", "RoundRow", "Simulation", "Watch"]

"""One client after the other in PyTorch, for networks and modules of your own; needs torch."""

from fedmuster.learning.torch_engine.engine import TorchEngine

__all__ = ["TorchEngine"]

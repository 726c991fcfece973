"""All selected clients of a round at once in NumPy, for linear models and MLPs."""

from fedmuster.learning.numpy_engine.engine import NumpyEngine

__all__ = ["NumpyEngine"]

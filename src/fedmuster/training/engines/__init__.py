"""Engines that train clients: NumPy for linear models and MLPs, PyTorch for networks."""

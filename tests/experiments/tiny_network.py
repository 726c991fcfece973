"""A user's own module, named by an experiment."""

from torch import nn


def make() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(16, 10),
    )

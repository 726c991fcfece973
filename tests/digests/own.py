"""A user's own data and network, which cases name as ``module:function``."""

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import nn


def points(seed: int) -> Any:
    """Two features, three classes, eight owners."""
    return _data_set(seed, shape=(2,), count=200, num_classes=3, num_owners=8)


def images(seed: int) -> Any:
    """Small pictures in colour, of noise."""
    return _data_set(seed, shape=(3, 32, 32), count=30, num_classes=10, num_owners=6)


def network() -> "nn.Module":
    """For handwritten digits."""
    from torch import nn

    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(16, 10),
    )


def _data_set(
    seed: int, *, shape: tuple[int, ...], count: int, num_classes: int, num_owners: int
) -> Any:
    random = np.random.default_rng(seed)
    data_set = _data_set_class()
    targets = random.integers(num_classes, size=count)
    inputs = random.random((count, *shape), dtype=np.float32)
    inputs.reshape(count, -1)[:, 0] += targets
    tests = count // 5
    return data_set(
        train_inputs=inputs[tests:],
        train_targets=targets[tests:],
        test_inputs=inputs[:tests],
        test_targets=targets[:tests],
        num_classes=num_classes,
        train_owners=random.integers(num_owners, size=count - tests),
    )


def _data_set_class() -> Any:
    """fedmuster's ``DataSet``, in whichever of its modules the class lies."""
    modules = (module for name, module in sys.modules.items() if name.startswith("fedmuster."))
    return next(module.DataSet for module in modules if hasattr(module, "DataSet"))

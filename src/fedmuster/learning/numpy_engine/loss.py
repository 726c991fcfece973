"""Losses of samples and their derivatives by the scores, both at once."""

from typing import Protocol

import numpy as np

from fedmuster.learning.numpy_engine.dense import Floats
from fedmuster.learning.records import Targets


class Loss(Protocol):
    """A loss of ``scores`` [..., outputs], given ``targets`` [...]."""

    def __call__(self, scores: Floats, targets: Targets) -> Floats:
        """The losses [...]; ``scores`` become the losses' derivatives, in place."""
        ...


def cross_entropy(scores: Floats, targets: Targets) -> Floats:
    """Of softmax: ``log sum_j exp(s_j) - s_y``; its derivative is ``softmax(s) - onehot(y)``."""
    scores -= scores.max(axis=-1, keepdims=True)  # so that no exponential overflows
    flat = scores.reshape(-1)
    position = np.arange(targets.size) * scores.shape[-1] + targets.reshape(-1)
    chosen = flat[position].reshape(targets.shape)
    np.exp(scores, out=scores)
    total = scores.sum(axis=-1)
    scores /= total[..., None]
    flat[position] -= 1.0
    losses: Floats = np.log(total) - chosen
    return losses


def squared_error(scores: Floats, targets: Targets) -> Floats:
    """``(s - y)²``; its derivative is ``2 (s - y)``."""
    scores -= targets[..., None]
    losses: Floats = np.square(scores[..., 0])
    scores *= 2.0
    return losses

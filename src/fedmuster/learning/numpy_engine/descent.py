"""The update rule of local SGD on a stack of arrays, one for each client."""

import numpy as np

from fedmuster.learning.local import LocalSGD
from fedmuster.learning.numpy_engine.dense import Floats


class Descent:
    """Weights [n, …] on their way, in place: see :class:`LocalSGD` for the rule.

    Args:
        weights: where each client is; all start from ``anchor``.
        anchor: where FedProx's term pulls to.
        local: hyper-parameters.
        rate: learning rate of the round.
    """

    def __init__(
        self, weights: Floats, anchor: Floats | float, local: LocalSGD, rate: float
    ) -> None:
        self.weights = weights
        self._anchor = anchor
        self._local = local
        self._rate = rate
        self._velocity = np.zeros_like(weights) if local.momentum else None

    def step(self, gradient: Floats) -> None:
        """Move the first ``len(gradient)`` clients; ``gradient`` is overwritten."""
        weights = self.weights[: len(gradient)]
        if self._local.weight_decay:
            gradient += self._local.weight_decay * weights
        if self._local.proximal:
            gradient += self._local.proximal * (weights - self._anchor)
        if self._velocity is not None:
            velocity = self._velocity[: len(gradient)]
            velocity *= self._local.momentum
            velocity += gradient
            np.multiply(velocity, self._rate, out=gradient)
        else:
            gradient *= self._rate
        weights -= gradient

"""The first weight matrix of every client in a stack: most of the numbers, most of the work.

Two forms compute the same thing and differ in rounding and speed: weights that are kept and
moved in every step (here), or never built before the end (``gram.py``).
"""

from typing import NamedTuple, Protocol

import numpy as np

from fedmuster.core.records import IntArray
from fedmuster.learning.local import LocalSGD
from fedmuster.learning.numpy_engine.dense import Floats
from fedmuster.learning.numpy_engine.descent import Descent
from fedmuster.learning.records import Inputs


class Work(NamedTuple):
    """What some clients do in a round, most steps first.

    Args:
        inputs: [N, d], those of all clients.
        starts: [n], where each client's samples begin in ``inputs``.
        sizes: [n], how many they are.
        rows: [n, steps, width], its batches, counted from its first sample; -1 is padding.
        weight: [outputs, d], the first weight matrix of the global model.
        local: hyper-parameters.
        rate: learning rate of the round.
    """

    inputs: Inputs
    starts: IntArray
    sizes: IntArray
    rows: IntArray
    weight: Floats
    local: LocalSGD
    rate: float

    def part(self, clients: slice) -> "Work":
        """That of some of the clients."""
        return self._replace(
            starts=self.starts[clients], sizes=self.sizes[clients], rows=self.rows[clients]
        )


class FirstLayer(Protocol):
    """The first weight matrices of n clients, of which the first ``count`` still train."""

    def forward(self, step: int, out: Floats) -> None:
        """``out`` [count, width, outputs]: the batch of this step times the weights."""
        ...

    def step(self, step: int, errors: Floats) -> None:
        """Move the weights, given the loss's derivative by what :meth:`forward` gave."""
        ...

    def write(self, out: list[Floats]) -> None:
        """``out[i]`` [outputs, d]: by how much the weights of client number i have moved."""
        ...


class Weights:
    """Weights that are kept for each client; all clients' products in one call."""

    def __init__(self, work: Work) -> None:
        self._work = work
        # A padding reads the client's first sample; its error is 0.
        self._index = work.starts[:, None, None] + np.maximum(work.rows, 0)
        weights = np.repeat(work.weight[None], len(work.starts), axis=0)
        self._descent = Descent(weights, work.weight, work.local, work.rate)
        self._gradient = np.empty_like(weights)
        self._batch: Inputs = work.inputs[:0]

    def forward(self, step: int, out: Floats) -> None:
        """``out`` [count, width, outputs]: the batch of this step times the weights."""
        self._batch = np.take(self._work.inputs, self._index[: len(out), step], axis=0)
        np.matmul(self._batch, self._descent.weights[: len(out)].swapaxes(1, 2), out=out)

    def step(self, step: int, errors: Floats) -> None:
        """Move the weights, given the loss's derivative by what :meth:`forward` gave."""
        gradient = self._gradient[: len(errors)]
        np.matmul(errors.swapaxes(1, 2), self._batch, out=gradient)
        self._descent.step(gradient)

    def write(self, out: list[Floats]) -> None:
        """``out[i]`` [outputs, d]: by how much the weights of client number i have moved."""
        for trained, moved in zip(self._descent.weights, out, strict=True):
            np.subtract(trained, self._work.weight, out=moved)

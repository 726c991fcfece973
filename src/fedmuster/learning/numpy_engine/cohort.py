"""Local SGD of a whole cohort: clients are sorted into stacks, and stacks trained one by one."""

from collections.abc import Iterator, Sequence

import numpy as np

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.learning.local import LocalSGD
from fedmuster.learning.numpy_engine.dense import Floats, first_weight, head_of
from fedmuster.learning.numpy_engine.first_layer import FirstLayer, Weights, Work
from fedmuster.learning.numpy_engine.gram import Coefficients, GramMatrices
from fedmuster.learning.numpy_engine.loss import Loss
from fedmuster.learning.numpy_engine.stack import Part, train_stack
from fedmuster.learning.numpy_engine.stacking import Stacking
from fedmuster.learning.records import Inputs, Parameters, Targets

_STACK = 32
"""Clients in a stack: more would save few calls and fall out of the processor's cache."""


class Cohorts:
    """Trains any cohort of the clients.

    Args:
        inputs: [N, d].
        targets: [N].
        offsets: [K+1], client k owns rows ``offsets[k]:offsets[k+1]``.
        shapes: how each client trains.
        local: hyper-parameters.
        widths: of the model.
        loss: of a sample.
    """

    def __init__(
        self,
        inputs: Inputs,
        targets: Targets,
        offsets: IntArray,
        *,
        shapes: Stacking,
        local: LocalSGD,
        widths: Sequence[int],
        loss: Loss,
    ) -> None:
        self._inputs = inputs
        self._targets = targets
        self._offsets = offsets
        self._shapes = shapes
        self._local = local
        self._widths = widths
        self._loss = loss
        self._grams = GramMatrices(inputs, offsets, shapes.kept)

    def train(
        self, parameters: Parameters, clients: IntArray, rows: IntArray, rate: float
    ) -> tuple[Floats, FloatArray, FloatArray]:
        """Train ``clients`` on their batches, see :class:`fedmuster.learning.batches.Batches`.

        Returns:
            Updates [n, P]; [n] mean loss and mean squared loss of the samples as they were
            trained on. All are 0 for a client without samples.
        """
        deltas = np.zeros((len(clients), len(parameters)), dtype=np.float32)
        loss, square = np.zeros((2, len(clients)))
        for members in self._stacks(clients):
            work = self._work(parameters, clients[members], rows[members], rate)
            parts = list(self._parts(clients[members], work))
            heads = np.repeat(head_of(parameters, self._widths)[None], len(members), axis=0)
            loss[members], square[members] = train_stack(
                work, parts, heads, self._targets, widths=self._widths, loss=self._loss
            )
            head_of(deltas, self._widths)[members] = heads - head_of(parameters, self._widths)
            for part in parts:
                part.layer.write(
                    [first_weight(deltas[i], self._widths) for i in members[part.clients]]
                )
        return deltas, loss, square

    def _stacks(self, clients: IntArray) -> Iterator[IntArray]:
        """Positions in ``clients`` of those that are stacked, largest first.

        The largest take the most steps, so those that still train stand in front. A stack has
        batches of one width.
        """
        sizes = self._offsets[clients + 1] - self._offsets[clients]
        order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
        for alike in _runs(self._shapes.widths[clients[order]]):
            for begin in range(alike.start, alike.stop, _STACK):
                yield order[begin : min(begin + _STACK, alike.stop)]

    def _work(self, parameters: Parameters, clients: IntArray, rows: IntArray, rate: float) -> Work:
        steps = int(np.count_nonzero(rows[0, :, 0] >= 0))
        width = int(self._shapes.widths[clients[0]])
        own = np.full((len(clients), steps, width), -1, dtype=np.int64)
        filled = min(width, rows.shape[2])
        own[:, :, :filled] = rows[:, :steps, :filled]
        return Work(
            inputs=self._inputs,
            starts=self._offsets[clients],
            sizes=self._offsets[clients + 1] - self._offsets[clients],
            rows=own,
            weight=first_weight(parameters, self._widths),
            local=self._local,
            rate=rate,
        )

    def _parts(self, clients: IntArray, work: Work) -> Iterator[Part]:
        """Clients of a stack whose first layers have the same form and shape."""
        sides = self._shapes.sides[clients]
        for alike in _runs(sides):
            layer: FirstLayer
            if sides[alike.start]:
                layer = Coefficients(work.part(alike), *self._grams.of(clients[alike]))
            else:
                layer = Weights(work.part(alike))
            yield Part(alike, layer)


def _runs(values: IntArray) -> Iterator[slice]:
    """Of equal neighbours."""
    edges = np.flatnonzero(np.diff(values, prepend=-1, append=-1))
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        yield slice(begin, end)

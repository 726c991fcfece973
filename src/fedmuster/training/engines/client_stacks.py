"""In which shape and form each client trains: by a rule of the configuration and the data.

Never by measured time: shapes and forms differ in rounding, and a run must repeat its bits.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.training.engines.dense_layers import (
    Descent,
    Floats,
    Loss,
    backward,
    first_weight,
    forward,
    head,
    head_of,
)
from fedmuster.training.engines.first_layer import (
    Coefficients,
    FirstLayer,
    GramMatrices,
    Weights,
    Work,
    gram_sides,
    padded,
)
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.training_records import Inputs, Parameters, Targets

Form = Literal["auto", "stacked", "gram"]

_MOVING = 12
"""What it costs to move one weight by one step, in multiply-adds."""

_COPYING = 16
"""What it costs to gather one number of a batch, in multiply-adds."""

_KEPT_BYTES = 2**28
"""The kept Gram matrices may take this, or a quarter of what the inputs take if that is more."""


class Stacking(NamedTuple):
    """How each client trains, [K] each.

    Args:
        widths: samples in a padded batch.
        sides: of its Gram matrix, 0 where the first layer keeps its weights instead.
        kept: whether the Gram matrix is kept between rounds.
    """

    widths: IntArray
    sides: IntArray
    kept: BoolArray


def stacking(form: Form, local: LocalSGD, sizes: IntArray, layers: Sequence[int]) -> Stacking:
    """The form of the first layer that takes less arithmetic, for each client.

    Args:
        form: "auto" for this rule, or one form for all.
        local: how a client trains.
        sizes: [K], samples of each client.
        layers: how many numbers enter each layer of the model.
    """
    inputs, outputs = layers[:2]
    widths = padded(np.maximum(sizes, 1))
    if local.batch_size:
        widths = np.minimum(widths, local.batch_size)
    steps = local.steps or -(-sizes // widths) * (local.epochs or 1)
    sides = gram_sides(sizes)
    by_weights = steps * inputs * ((2 * widths + _MOVING) * outputs + widths * _COPYING)
    by_gram = 2 * sizes * inputs * outputs + steps * widths * sides * (outputs + _COPYING)
    gram = by_gram < by_weights if form == "auto" else np.full(len(sizes), form == "gram")
    kept = gram & _fits(np.where(gram, sides, 0), max(_KEPT_BYTES, int(sizes.sum()) * inputs))
    if form == "auto":
        gram &= kept | (by_gram + sizes**2 * inputs < by_weights)
    return Stacking(widths, np.where(gram, sides, 0), kept)


def _fits(sides: IntArray, limit: int) -> BoolArray:
    """Whose matrices fit into ``limit`` bytes: smallest first, all of a side or none."""
    side, which, count = np.unique(sides, return_inverse=True, return_counts=True)
    fits: BoolArray = (np.cumsum(4 * side**2 * count) <= limit)[which]
    return fits


# Local SGD of a stack of clients, step by step, all of them in each step.


class Part(NamedTuple):
    """Clients of a stack whose first layers have the same form and shape."""

    clients: slice
    layer: FirstLayer


def train_stack(
    work: Work,
    parts: Sequence[Part],
    heads: Floats,
    targets: Targets,
    *,
    widths: Sequence[int],
    loss: Loss,
) -> tuple[FloatArray, FloatArray]:
    """Train ``parts`` and ``heads`` [n, H] (all start from the same) in place.

    Returns:
        [n], mean loss and mean squared loss of each client's samples as they were trained on.
    """
    real = work.rows >= 0
    counts = np.count_nonzero(real, axis=2)
    # Every batch counts its mean loss: a sample weighs 1/size in the gradient, a padding nothing.
    weights = (real / np.maximum(counts, 1)[..., None]).astype(np.float32)
    targets = targets[work.starts[:, None, None] + np.maximum(work.rows, 0)]
    losses = np.zeros(work.rows.shape, dtype=np.float32)
    descent = Descent(heads, heads[:1].copy(), work.local, work.rate)
    gradients = np.empty_like(heads)
    for step, count in enumerate(np.count_nonzero(counts, axis=0).tolist()):
        models, gradient = head(heads[:count], widths), gradients[:count]
        sums = np.empty((count, work.rows.shape[2], widths[1]), dtype=np.float32)
        for part in parts:
            if part.clients.start < count:
                part.layer.forward(step, sums[part.clients])
        outputs = forward(models, sums)
        scores = outputs[-1]
        losses[:count, step] = loss(scores, targets[:count, step])
        scores *= weights[:count, step, :, None]
        errors = backward(models, outputs, scores, head(gradient, widths))
        for part in parts:
            if part.clients.start < count:
                part.layer.step(step, errors[part.clients])
        descent.step(gradient)
    return _means(losses, real)


def _means(losses: Floats, real: BoolArray) -> tuple[FloatArray, FloatArray]:
    client = np.nonzero(real)[0]
    size = np.bincount(client, minlength=len(losses))
    # bincount adds in order and in double precision, whatever the padding around.
    value = losses[real].astype(np.float64)
    total = np.bincount(client, weights=value, minlength=len(losses))
    squares = np.bincount(client, weights=value**2, minlength=len(losses))
    return total / size, squares / size


# Local SGD of a whole cohort: clients are sorted into stacks, and stacks trained one by one.

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
        """Train ``clients`` on their batches, see :class:`fedmuster.training.local_sgd.Batches`.

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

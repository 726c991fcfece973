"""The first weight matrix of every client in a stack: most of the numbers, most of the work.

Two forms compute the same thing and differ in rounding and speed: weights that are kept and
moved in every step (:class:`Weights`), or coefficients of the samples (:class:`Coefficients`), from
which the weights are built at the end. The form follows from the configuration and the data, never
from measured time: a run must repeat its bits.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np

from fedmuster.core.arrays import BoolArray, IntArray
from fedmuster.training.engines.dense_layers import Descent, Floats
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.training_records import Inputs

_SIZES = np.sort(np.concatenate([2 ** np.arange(62), 3 * 2 ** np.arange(61)]))


def padded(sizes: IntArray) -> IntArray:
    """The next of 1, 2, 3, 4, 6, 8, 12, 16, 24, …: less than half is padding."""
    rounded: IntArray = _SIZES[np.searchsorted(_SIZES, sizes)]
    return rounded


def gram_sides(sizes: IntArray) -> IntArray:
    """Of padded Gram matrices: with at least one row of zeros, for padding to point at."""
    return padded(sizes + 1)


Form = Literal["auto", "stacked", "gram"]

_MOVING = 12
"""What it costs to move one weight by one step, in multiply-adds."""

_COPYING = 16
"""What it costs to gather one number of a batch, in multiply-adds."""

_KEPT_BYTES = 2**28
"""The kept Gram matrices may take this, or a quarter of what the inputs take if that is more."""


class Stacking(NamedTuple):
    """How each client trains, [K] each.

    ``widths`` are the samples in a padded batch; ``sides`` those of its Gram matrix, 0 where the
    first layer keeps its weights instead; ``kept`` says whether the Gram matrix is kept between
    rounds.
    """

    widths: IntArray
    sides: IntArray
    kept: BoolArray


def stacking(form: Form, local: LocalSGD, sizes: IntArray, layers: Sequence[int]) -> Stacking:
    """The form of the first layer that takes less arithmetic, for each client.

    ``form`` "auto" applies this rule, others are the form for all; ``sizes`` [K] counts the samples
    of each client; ``layers`` are the numbers that enter each layer of the model.
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


class Work(NamedTuple):
    """What some clients do in a round, most steps first.

    The samples of client i stand in ``inputs`` [N, d] from ``starts[i]`` on, ``sizes[i]`` of them;
    ``rows`` [n, steps, width] are its batches, counted from its first sample, with -1 for padding.
    ``weights[i]`` [outputs, d] is the first weight matrix that client i starts from, ``rate`` the
    round's learning rate.
    """

    inputs: Inputs
    starts: IntArray
    sizes: IntArray
    rows: IntArray
    weights: Sequence[Floats]
    local: LocalSGD
    rate: float

    def part(self, clients: slice) -> "Work":
        """That of some of the clients."""
        return self._replace(
            starts=self.starts[clients],
            sizes=self.sizes[clients],
            rows=self.rows[clients],
            weights=self.weights[clients],
        )


class FirstLayer(Protocol):
    """The first weight matrices of n clients, of which the first ``count`` still train."""

    def forward(self, step: int, out: Floats) -> None:
        """``out`` [count, width, outputs]: the batch of this step times the weights."""

    def step(self, step: int, errors: Floats) -> None:
        """Move the weights, given the loss's derivative by what :meth:`forward` gave."""

    def write(self, out: list[Floats]) -> None:
        """``out[i]`` [outputs, d]: by how much the weights of client number i have moved."""


class Weights:
    """Weights that are kept for each client; all clients' products in one call."""

    def __init__(self, work: Work) -> None:
        self._work = work
        # A padding reads the client's first sample; its error is 0.
        self._index = work.starts[:, None, None] + np.maximum(work.rows, 0)
        weights = np.stack(work.weights)
        self._descent = Descent(weights, work.weights, work.local, work.rate)
        self._gradient = np.empty_like(weights)
        self._batch: Inputs = work.inputs[:0]

    def forward(self, step: int, out: Floats) -> None:
        """See :class:`FirstLayer`."""
        self._batch = np.take(self._work.inputs, self._index[: len(out), step], axis=0)
        np.matmul(self._batch, self._descent.weights[: len(out)].swapaxes(1, 2), out=out)

    def step(self, step: int, errors: Floats) -> None:
        """See :class:`FirstLayer`."""
        gradient = self._gradient[: len(errors)]
        np.matmul(errors.swapaxes(1, 2), self._batch, out=gradient)
        self._descent.step(gradient)

    def write(self, out: list[Floats]) -> None:
        """See :class:`FirstLayer`."""
        for trained, start, moved in zip(
            self._descent.weights, self._work.weights, out, strict=True
        ):
            np.subtract(trained, start, out=moved)


class GramMatrices:
    """``X_k X_k^T`` of the clients, padded by zeros, computed when first asked for.

    Client k owns ``inputs[offsets[k]:offsets[k+1]]``. Matrices of clients that are not ``kept`` are
    computed each time; clients with matrices of the same side must be kept together.
    """

    def __init__(self, inputs: Inputs, offsets: IntArray, kept: BoolArray) -> None:
        self._inputs, self._offsets, self._kept = inputs, offsets, kept
        self._sides = gram_sides(np.diff(offsets))
        self._known = np.zeros(len(kept), dtype=np.bool_)
        self._places = np.zeros(len(kept), dtype=np.int64)
        self._matrices: dict[int, Floats] = {}

    def of(self, clients: IntArray) -> tuple[Floats, IntArray]:
        """Matrices [places, side, side], and the places of ``clients``, which share a side."""
        if not self._kept[clients[0]]:
            side = int(self._sides[clients[0]])
            matrices = np.zeros((len(clients), side, side), dtype=np.float32)
            self._fill(matrices, clients, np.arange(len(clients)))
            return matrices, np.arange(len(clients))
        matrices = self._room(int(self._sides[clients[0]]))
        new = np.unique(clients[~self._known[clients]])
        self._fill(matrices, new, self._places[new])
        self._known[new] = True
        return matrices, self._places[clients]

    def _room(self, side: int) -> Floats:
        """For all clients with matrices of this side; zeros cost no memory before they change."""
        if side not in self._matrices:
            (owners,) = np.nonzero(self._kept & (self._sides == side))
            self._places[owners] = np.arange(len(owners))
            self._matrices[side] = np.zeros((len(owners), side, side), dtype=np.float32)
        return self._matrices[side]

    def _fill(self, matrices: Floats, clients: IntArray, places: IntArray) -> None:
        for client, place in zip(clients.tolist(), places.tolist(), strict=True):
            own = self._inputs[self._offsets[client] : self._offsets[client + 1]]
            np.matmul(own, own.T, out=matrices[place, : len(own), : len(own)])


class Coefficients:
    """Weights as ``start + coefficients^T X_k``, which are never built during the local steps.

    Outputs follow from the Gram matrix of the samples.
    """

    def __init__(self, work: Work, matrices: Floats, places: IntArray) -> None:
        side, outputs = matrices.shape[-1], len(work.weights[0])
        self._work = work
        self._grams = matrices.reshape(-1, side)
        rows = np.where(work.rows < 0, side - 1, work.rows)
        self._gram_rows = rows + side * places[:, None, None]
        self._rows = rows + side * np.arange(len(places))[:, None, None]
        start = np.zeros((len(places), side, outputs), dtype=np.float32)
        for i, own in enumerate(self._samples()):
            np.matmul(own, work.weights[i].T, out=start[i, : len(own)])
        self._start = start.reshape(-1, outputs)
        self._descent = Descent(np.zeros_like(start), 0.0, work.local, work.rate)
        self._scale = Descent(np.ones(len(places), np.float32), 1.0, work.local, work.rate)

    def _samples(self) -> Iterator[Inputs]:
        for begin, size in zip(self._work.starts.tolist(), self._work.sizes.tolist(), strict=True):
            yield self._work.inputs[begin : begin + size]

    def forward(self, step: int, out: Floats) -> None:
        """See :class:`FirstLayer`."""
        count = len(out)
        gram = np.take(self._grams, self._gram_rows[:count, step], axis=0)
        np.matmul(gram, self._descent.weights[:count], out=out)
        start = np.take(self._start, self._rows[:count, step], axis=0)
        if self._work.local.weight_decay:
            start *= self._scale.weights[:count, None, None]
        out += start

    def step(self, step: int, errors: Floats) -> None:
        """See :class:`FirstLayer`."""
        local, count = self._work.local, len(errors)
        rows = self._rows[:count, step].reshape(-1)
        if not (local.momentum or local.weight_decay or local.proximal):
            # Only the coefficients of the batch move.
            weights = self._descent.weights.reshape(-1, errors.shape[-1])
            weights[rows] -= np.multiply(errors, self._work.rate).reshape(len(rows), -1)
            return
        gradient = np.zeros_like(self._descent.weights[:count])
        gradient.reshape(-1, errors.shape[-1])[rows] = errors.reshape(len(rows), -1)
        self._descent.step(gradient)
        if local.weight_decay:
            self._scale.step(np.zeros(count, dtype=np.float32))

    def write(self, out: list[Floats]) -> None:
        """See :class:`FirstLayer`."""
        for i, (own, moved) in enumerate(zip(self._samples(), out, strict=True)):
            np.matmul(self._descent.weights[i, : len(own)].T, own, out=moved)
            if self._work.local.weight_decay:
                moved += (self._scale.weights[i] - np.float32(1)) * self._work.weights[i]

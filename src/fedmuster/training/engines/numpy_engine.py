"""All selected clients of a round at once in NumPy, for linear models and MLPs."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.streams import MODEL, stream
from fedmuster.training.engines import dense_layers as dense
from fedmuster.training.engines.dense_layers import Floats, Loss, cross_entropy, squared_error
from fedmuster.training.engines.first_layer import (
    Coefficients,
    FirstLayer,
    Form,
    GramMatrices,
    Weights,
    Work,
    stacking,
)
from fedmuster.training.local_sgd import Batches, LocalSGD, batches
from fedmuster.training.training_records import (
    Evaluation,
    FederatedData,
    Inputs,
    Parameters,
    Targets,
    Updates,
    check_call,
    joined,
)

_BLOCK = 4096
"""Samples that are judged at once."""

_STACK = 32
"""Clients in a stack: more would save few calls and fall out of the processor's cache."""


class Layered(Protocol):
    """A model of dense layers, such as those of :mod:`fedmuster.training.models`."""

    def widths(self, num_inputs: int, num_classes: int) -> tuple[int, ...]:
        """The number of inputs of each layer, and the number of outputs of the last."""


_Part = tuple[slice, FirstLayer]
"""Clients of a stack whose first layers have the same form and shape, and these layers."""


class NumpyEngine:
    """Trains and evaluates a linear model or an MLP in float32.

    An :class:`~fedmuster.training.training_records.Engine`. The update of a client has the same
    bits whatever the rest of the cohort is, and in every process that gives its matrix library
    (BLAS) one thread, as :mod:`fedmuster.experiments.sweep` does for every run. A client without
    samples sends a zero update and zero losses; one that diverges sends what is not finite. Inputs
    of any shape are flattened; for ``form`` see
    :func:`fedmuster.training.engines.first_layer.stacking`.
    """

    def __init__(
        self,
        model: Layered,
        data: FederatedData,
        local: LocalSGD,
        seed: int,
        *,
        form: Form = "auto",
    ) -> None:
        self._data, self._local, self._seed = data, local, seed
        self._inputs = data.inputs.reshape(len(data.inputs), -1)
        self._test_inputs = data.test_inputs.reshape(len(data.test_inputs), -1)
        self._widths = model.widths(self._inputs.shape[1], data.num_classes)
        self._loss = cross_entropy if data.num_classes else squared_error
        self._sizes = data.sizes
        self._shapes = stacking(form, local, self._sizes, self._widths)
        self._grams = GramMatrices(self._inputs, data.offsets, self._shapes.kept)

    @property
    def num_trainable(self) -> int:
        """All parameters are trained."""
        return dense.num_parameters(self._widths)

    @property
    def output_bias(self) -> slice | None:
        """The last numbers of the vector; None in a regression."""
        if not self._data.num_classes:
            return None
        return slice(self.num_trainable - self._widths[-1], self.num_trainable)

    def initial(self) -> Parameters:
        """The model before the first round, see ``dense.initial``."""
        return dense.initial(self._widths, stream(self._seed, MODEL))

    def train(
        self, parameters: Parameters, clients: IntArray, round_number: int, order: int | None = None
    ) -> Updates:
        """See :class:`~fedmuster.training.training_records.Engine`."""
        self._check(parameters, clients)
        order = round_number if order is None else order
        rate = self._local.rate(round_number)
        return self._train([parameters] * len(clients), clients, order, rate)

    def train_mixed(
        self,
        starts: Sequence[Parameters],
        clients: IntArray,
        round_numbers: IntArray,
        orders: IntArray,
    ) -> Updates:
        """Train these clients together, each from its own model and as in its own round."""
        for start in {id(start): start for start in starts}.values():
            self._check(start, clients)
        rates = np.array([self._local.rate(number) for number in round_numbers.tolist()])
        parts = (
            (
                here,
                self._train(
                    [starts[i] for i in here.tolist()], clients[here], orders[here], float(rate)
                ),
            )
            for rate in np.unique(rates)
            for here in [np.flatnonzero(rates == rate)]
        )
        return joined(clients, parts)

    def _train(
        self, starts: Sequence[Parameters], clients: IntArray, order: int | IntArray, rate: float
    ) -> Updates:
        """Train clients with one learning rate, each from its own model, in its own order."""
        num_samples = self._sizes[clients]
        plan = self._batches(self._local, clients, order)
        with np.errstate(over="ignore", invalid="ignore"):
            deltas, loss, square = self._train_stacks(starts, clients, plan.rows, rate)
            signals = {
                "loss": loss,
                "root_mean_square_loss": np.sqrt(square),
                # An epoch repeats no sample.
                "trained_samples": np.minimum(plan.sizes.sum(axis=1), num_samples).astype(float),
                "update_norm": _norms(deltas),
            }
            if self._local.measure_gain:
                signals |= self._gains(starts, clients, deltas)
        return Updates(clients=clients, deltas=deltas, signals=signals)

    def losses(
        self, parameters: Parameters, clients: IntArray, *, batch_size: int | None = None
    ) -> FloatArray:
        """See :class:`~fedmuster.training.training_records.Engine`."""
        self._check(parameters, clients)
        owner, samples = self._samples(clients, batch_size)
        total = np.zeros(len(clients))
        for begin in range(0, len(samples), _BLOCK):
            block = samples[begin : begin + _BLOCK]
            loss, _ = self._judge(parameters, self._inputs[block], self._data.targets[block])
            total += np.bincount(owner[begin : begin + _BLOCK], loss, minlength=len(clients))
        return total / np.maximum(np.bincount(owner, minlength=len(clients)), 1)

    def evaluate(self, parameters: Parameters) -> Evaluation:
        """The model on the test set."""
        self._check(parameters, np.arange(0))
        loss, hits, number = 0.0, 0, len(self._test_inputs)
        for begin in range(0, number, _BLOCK):
            block = slice(begin, begin + _BLOCK)
            inputs, targets = self._test_inputs[block], self._data.test_targets[block]
            some, right = self._judge(parameters, inputs, targets)
            loss += float(some.sum(dtype=np.float64))
            hits += int(np.count_nonzero(right))
        accuracy = hits / number if self._data.num_classes else float("nan")
        return Evaluation(loss=loss / number, accuracy=accuracy)

    def close(self) -> None:
        """There is nothing to end."""

    def _train_stacks(
        self, starts: Sequence[Parameters], clients: IntArray, rows: IntArray, rate: float
    ) -> tuple[Floats, FloatArray, FloatArray]:
        """Sort the clients into stacks and train these one by one on their batches ``rows``.

        Returns updates [n, P] and, [n] each, the mean loss and mean squared loss of the samples as
        they were trained on. All are 0 for a client without samples.
        """
        deltas = np.zeros((len(clients), self.num_trainable), dtype=np.float32)
        loss, square = np.zeros((2, len(clients)))
        for members in self._stacks(clients):
            begun = [starts[i] for i in members.tolist()]
            work = self._work(begun, clients[members], rows[members], rate)
            parts = list(self._parts(clients[members], work))
            head = np.stack([dense.head_of(start, self._widths) for start in begun])
            heads = head.copy()
            loss[members], square[members] = _train_stack(
                work, parts, heads, self._data.targets, widths=self._widths, loss=self._loss
            )
            dense.head_of(deltas, self._widths)[members] = heads - head
            for rows_of, layer in parts:
                layer.write([dense.first_weight(deltas[i], self._widths) for i in members[rows_of]])
        return deltas, loss, square

    def _stacks(self, clients: IntArray) -> Iterator[IntArray]:
        """Positions in ``clients`` of each stack, clients with the most samples first.

        Those take the most steps, so clients that still train come first. All batches of a stack
        have one width.
        """
        sizes = self._sizes[clients]
        order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
        for alike in _runs(self._shapes.widths[clients[order]]):
            for begin in range(alike.start, alike.stop, _STACK):
                yield order[begin : min(begin + _STACK, alike.stop)]

    def _work(
        self, starts: Sequence[Parameters], clients: IntArray, rows: IntArray, rate: float
    ) -> Work:
        steps = int(np.count_nonzero(rows[0, :, 0] >= 0))
        width = int(self._shapes.widths[clients[0]])
        own = np.full((len(clients), steps, width), -1, dtype=np.int64)
        filled = min(width, rows.shape[2])
        own[:, :, :filled] = rows[:, :steps, :filled]
        return Work(
            inputs=self._inputs,
            starts=self._data.offsets[clients],
            sizes=self._sizes[clients],
            rows=own,
            weights=[dense.first_weight(start, self._widths) for start in starts],
            local=self._local,
            rate=rate,
        )

    def _parts(self, clients: IntArray, work: Work) -> Iterator[_Part]:
        """The clients of a stack, grouped by the form and shape of their first layers."""
        sides = self._shapes.sides[clients]
        for alike in _runs(sides):
            layer: FirstLayer
            if sides[alike.start]:
                layer = Coefficients(work.part(alike), *self._grams.of(clients[alike]))
            else:
                layer = Weights(work.part(alike))
            yield alike, layer

    def _samples(self, clients: IntArray, most: int | None) -> tuple[IntArray, IntArray]:
        """Positions in ``clients`` and the samples of these, or ``most`` of the samples of each."""
        starts, sizes = self._data.offsets[clients], self._sizes[clients]
        if most is None:
            owner = np.repeat(np.arange(len(clients)), sizes)
            first = np.cumsum(sizes) - sizes
            return owner, np.arange(len(owner)) + (starts - first)[owner]
        rows = self._batches(LocalSGD(batch_size=most, steps=1), clients, 0).rows
        owner, _, _ = np.nonzero(rows >= 0)
        return owner, rows[rows >= 0] + starts[owner]

    def _batches(self, local: LocalSGD, clients: IntArray, round_number: int | IntArray) -> Batches:
        return batches(local, self._seed, round_number, clients, self._sizes[clients])

    def _gains(
        self, starts: Sequence[Parameters], clients: IntArray, deltas: Floats
    ) -> dict[str, FloatArray]:
        """Each client's model on all of its own samples, before and after training."""
        mean = np.zeros((2, 2, len(clients)))  # before and after; loss and accuracy
        for i, client in enumerate(clients.tolist()):
            own = slice(self._data.offsets[client], self._data.offsets[client + 1])
            for when, model in enumerate((starts[i], starts[i] + deltas[i])):
                if own.start < own.stop:
                    loss, right = self._judge(model, self._inputs[own], self._data.targets[own])
                    mean[when, :, i] = loss.mean(dtype=np.float64), right.mean()
        (loss_before, accuracy_before), (loss_after, accuracy_after) = mean
        gains: dict[str, FloatArray] = {"loss_before": loss_before, "loss_after": loss_after}
        if self._data.num_classes:
            gains["accuracy_before"] = accuracy_before
            gains["accuracy_gain"] = accuracy_after - accuracy_before
        return gains

    def _judge(
        self, parameters: Parameters, inputs: Inputs, targets: Targets
    ) -> tuple[Floats, BoolArray]:
        """Loss of each sample, and whether its class has the highest score."""
        with np.errstate(over="ignore", invalid="ignore"):
            model = dense.head(dense.head_of(parameters, self._widths), self._widths)
            sums = inputs @ dense.first_weight(parameters, self._widths).T
            scores = dense.forward(model, sums)[-1]
            right: BoolArray = scores.argmax(axis=1) == targets
            return self._loss(scores, targets), right

    def _check(self, parameters: Parameters, clients: IntArray) -> None:
        check_call("NumpyEngine", parameters, self.num_trainable, clients, self._data.num_clients)


def _norms(deltas: Floats) -> FloatArray:
    """L2 norm of each row; in float64 only where float32 overflows, for that takes longer."""
    norms: FloatArray = np.sqrt(np.vecdot(deltas, deltas)).astype(np.float64)
    for row in np.flatnonzero(~np.isfinite(norms)):
        norms[row] = np.linalg.norm(deltas[row].astype(np.float64))
    return norms


def _train_stack(
    work: Work,
    parts: Sequence[_Part],
    heads: Floats,
    targets: Targets,
    *,
    widths: Sequence[int],
    loss: Loss,
) -> tuple[FloatArray, FloatArray]:
    """Local SGD of a stack of clients, all of them in each step.

    ``parts`` and ``heads`` [n, H] are trained in place. Returns [n] each, the mean loss and mean
    squared loss of each client's samples as they were trained on.
    """
    real = work.rows >= 0
    counts = np.count_nonzero(real, axis=2)
    # Every batch counts its mean loss: a sample weighs 1/size in the gradient, a padding nothing.
    weights = (real / np.maximum(counts, 1)[..., None]).astype(np.float32)
    targets = targets[work.starts[:, None, None] + np.maximum(work.rows, 0)]
    losses = np.zeros(work.rows.shape, dtype=np.float32)
    descent = dense.Descent(
        heads, heads.copy() if work.local.proximal else 0.0, work.local, work.rate
    )
    gradients = np.empty_like(heads)
    for step, count in enumerate(np.count_nonzero(counts, axis=0).tolist()):
        models, gradient = dense.head(heads[:count], widths), gradients[:count]
        sums = np.empty((count, work.rows.shape[2], widths[1]), dtype=np.float32)
        training = [part for part in parts if part[0].start < count]
        for clients, layer in training:
            layer.forward(step, sums[clients])
        outputs = dense.forward(models, sums)
        scores = outputs[-1]
        losses[:count, step] = loss(scores, targets[:count, step])
        scores *= weights[:count, step, :, None]
        errors = dense.backward(models, outputs, scores, dense.head(gradient, widths))
        for clients, layer in training:
            layer.step(step, errors[clients])
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


def _runs(values: IntArray) -> Iterator[slice]:
    """Slices of equal neighbours."""
    edges = np.flatnonzero(np.diff(values, prepend=-1, append=-1))
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        yield slice(begin, end)

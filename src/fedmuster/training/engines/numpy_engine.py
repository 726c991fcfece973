"""All selected clients of a round at once in NumPy, for linear models and MLPs."""

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.streams import MODEL, stream
from fedmuster.training.engines import dense_layers as dense
from fedmuster.training.engines.client_stacks import Cohorts, Form, stacking
from fedmuster.training.engines.dense_layers import Floats, cross_entropy, squared_error
from fedmuster.training.local_sgd import LocalSGD, batches
from fedmuster.training.models import DenseModel
from fedmuster.training.training_records import (
    Evaluation,
    FederatedData,
    Inputs,
    Parameters,
    Targets,
    Updates,
    check_call,
)

_BLOCK = 4096
"""Samples that are judged at once."""


class NumpyEngine:
    """Trains and evaluates a linear model or an MLP in float32.

    An :class:`~fedmuster.training.training_records.Engine`. The update of a client has the same
    bits whatever the rest of the cohort is, and in every process that gives its matrix library
    (BLAS) one thread, as :mod:`fedmuster.experiments.sweep` does for every run. A client without
    samples sends a zero update and zero losses; one that diverges sends what is not finite.

    Args:
        model: what to train.
        data: who owns which samples; inputs of any shape are flattened.
        local: how a client trains.
        seed: of the initial model and of the order of samples.
        form: of the first layer; "auto" follows from the other arguments, see
            :func:`fedmuster.training.engines.client_stacks.stacking`.
    """

    def __init__(
        self,
        model: DenseModel,
        data: FederatedData,
        local: LocalSGD,
        seed: int,
        *,
        form: Form = "auto",
    ) -> None:
        self._data = data
        self._local = local
        self._seed = seed
        self._inputs = data.inputs.reshape(len(data.inputs), -1)
        self._test_inputs = data.test_inputs.reshape(len(data.test_inputs), -1)
        self._widths = model.widths(self._inputs.shape[1], data.num_classes)
        self._loss = cross_entropy if data.num_classes else squared_error
        self._cohorts = Cohorts(
            self._inputs,
            data.targets,
            data.offsets,
            shapes=stacking(form, local, data.sizes, self._widths),
            local=local,
            widths=self._widths,
            loss=self._loss,
        )

    @property
    def num_trainable(self) -> int:
        """All parameters are trained."""
        return dense.num_parameters(self._widths)

    def initial(self) -> Parameters:
        """The model before the first round, see ``dense.initial``."""
        return dense.initial(self._widths, stream(self._seed, MODEL))

    def train(self, parameters: Parameters, clients: IntArray, round_number: int) -> Updates:
        """Train these clients, each from the same global ``parameters``, on its own data."""
        self._check(parameters, clients)
        num_samples = self._data.offsets[clients + 1] - self._data.offsets[clients]
        plan = batches(
            self._local,
            seed=self._seed,
            round_number=round_number,
            clients=clients,
            num_samples=num_samples,
        )
        with np.errstate(over="ignore", invalid="ignore"):
            deltas, loss, square = self._cohorts.train(
                parameters, clients, plan.rows, self._local.rate(round_number)
            )
            signals = {
                "loss": loss,
                "root_mean_square_loss": np.sqrt(square),
                # An epoch repeats no sample.
                "trained_samples": np.minimum(plan.sizes.sum(axis=1), num_samples).astype(float),
                "update_norm": _norms(deltas),
            }
            if self._local.measure_gain:
                signals |= self._gains(parameters, clients, deltas)
        return Updates(clients=clients, deltas=deltas, signals=signals)

    def losses(
        self, parameters: Parameters, clients: IntArray, *, batch_size: int | None = None
    ) -> FloatArray:
        """[n], mean loss of ``parameters`` on each client's data.

        With ``batch_size`` on so many of its samples at most, drawn once and for all: the first
        of the order that follows from the seed and the client in "round 0".
        """
        self._check(parameters, clients)
        owner, samples = self._samples(clients, batch_size)
        total = np.zeros(len(clients))
        for begin in range(0, len(samples), _BLOCK):
            block = samples[begin : begin + _BLOCK]
            loss, _ = self._judge(parameters, self._inputs[block], self._data.targets[block])
            total += np.bincount(
                owner[begin : begin + _BLOCK], weights=loss, minlength=len(clients)
            )
        return total / np.maximum(np.bincount(owner, minlength=len(clients)), 1)

    def evaluate(self, parameters: Parameters) -> Evaluation:
        """The model on the test set."""
        self._check(parameters, np.arange(0))
        loss, hits, number = 0.0, 0, len(self._test_inputs)
        for begin in range(0, number, _BLOCK):
            block = slice(begin, begin + _BLOCK)
            some, right = self._judge(
                parameters, self._test_inputs[block], self._data.test_targets[block]
            )
            loss += float(some.sum(dtype=np.float64))
            hits += int(np.count_nonzero(right))
        accuracy = hits / number if self._data.num_classes else float("nan")
        return Evaluation(loss=loss / number, accuracy=accuracy)

    def close(self) -> None:
        """There is nothing to end."""

    def _samples(self, clients: IntArray, most: int | None) -> tuple[IntArray, IntArray]:
        """Positions in ``clients`` and the samples of these, or ``most`` of the samples of each."""
        starts = self._data.offsets[clients]
        sizes = self._data.offsets[clients + 1] - starts
        if most is None:
            owner = np.repeat(np.arange(len(clients)), sizes)
            first = np.cumsum(sizes) - sizes
            return owner, np.arange(len(owner)) + (starts - first)[owner]
        rows = batches(
            LocalSGD(batch_size=most, steps=1),
            seed=self._seed,
            round_number=0,
            clients=clients,
            num_samples=sizes,
        ).rows
        owner, _, _ = np.nonzero(rows >= 0)
        return owner, rows[rows >= 0] + starts[owner]

    def _gains(
        self, parameters: Parameters, clients: IntArray, deltas: Floats
    ) -> dict[str, FloatArray]:
        """Each client's model on all of its own samples, before and after training."""
        mean = np.zeros((2, 2, len(clients)))  # before and after; loss and accuracy
        for i, client in enumerate(clients.tolist()):
            own = slice(self._data.offsets[client], self._data.offsets[client + 1])
            for when, model in enumerate((parameters, parameters + deltas[i])):
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

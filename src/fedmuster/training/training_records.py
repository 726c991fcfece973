"""Records of training: data sets, shares of them, updates, evaluations; the protocol of engines."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.errors import DataError

Inputs = NDArray[np.float32]
Parameters = NDArray[np.float32]
"""A model as one flat vector."""
Targets = NDArray[Any]
"""int64 class labels, or float32 values in a regression."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class DataSet:
    """Samples to train and to test on, before anybody owns them.

    Args:
        train_inputs: float32[n, …]; images as [n, channels, height, width] with pixels in [0, 1].
        train_targets: int64[n] class labels, or float32[n] values.
        test_inputs: of other samples.
        test_targets: theirs.
        num_classes: 0 in a regression.
        train_owners: int64[n], the writer, subject or speaker of each training sample, where the
            data has such; None where not.
        mean: subtracted from every input before training,
        sd: which is then divided by this.
    """

    train_inputs: Inputs
    train_targets: Targets
    test_inputs: Inputs
    test_targets: Targets
    num_classes: int
    train_owners: IntArray | None = None
    mean: float = 0.0
    sd: float = 1.0

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            inputs = getattr(self, f"{part}_inputs")
            targets = getattr(self, f"{part}_targets")
            if len(inputs) == 0 or targets.shape != (len(inputs),):
                raise DataError(
                    f"DataSet: {part}_inputs has shape {inputs.shape} and {part}_targets "
                    f"{targets.shape}, expected one target for each of at least one input"
                )
            if inputs.dtype != np.float32 or not np.isfinite(inputs).all():
                raise DataError(
                    f"DataSet: {part}_inputs ({inputs.dtype}) must hold finite float32 numbers"
                )
            self._check_targets(part, targets)
        if self.train_inputs.shape[1:] != self.test_inputs.shape[1:]:
            raise DataError(
                f"DataSet: a training input has shape {self.train_inputs.shape[1:]}, a test input "
                f"{self.test_inputs.shape[1:]}"
            )
        if self.train_owners is not None and self.train_owners.shape != self.train_targets.shape:
            raise DataError(
                f"DataSet: train_owners has shape {self.train_owners.shape}, expected one owner "
                f"for each of {len(self.train_targets)} samples"
            )

    def _check_targets(self, part: str, targets: Targets) -> None:
        if self.num_classes == 0:
            if targets.dtype != np.float32 or not np.isfinite(targets).all():
                raise DataError(f"DataSet: {part}_targets must hold finite float32 numbers")
        elif targets.dtype != np.int64 or targets.min() < 0 or targets.max() >= self.num_classes:
            raise DataError(
                f"DataSet: {part}_targets must hold int64 labels 0 … {self.num_classes - 1}"
            )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Shares:
    """Which client gets which training samples.

    Args:
        rows: int64[n], samples of the first client, then of the second, …; a sample may be missing,
            or belong to several clients.
        offsets: int64[K+1], client k gets ``rows[offsets[k]:offsets[k+1]]``.
        quality: [K] in [0, 1], how good each client's data is; None when all are alike.
        noise_sd: [K], of the noise in each client's inputs before standardising; None for none.
    """

    rows: IntArray
    offsets: IntArray
    quality: FloatArray | None = None
    noise_sd: FloatArray | None = None

    @property
    def sizes(self) -> IntArray:
        """[K], how many samples each client has."""
        return np.diff(self.offsets)

    def owned_by(self, owners: IntArray) -> "Shares":
        """These data, but client k gets the data of client ``owners[k]``."""
        parts = [self.rows[self.offsets[owner] : self.offsets[owner + 1]] for owner in owners]
        return Shares(
            rows=np.concatenate(parts),
            offsets=np.concatenate([[0], np.cumsum(self.sizes[owners])]),
            quality=None if self.quality is None else self.quality[owners],
            noise_sd=None if self.noise_sd is None else self.noise_sd[owners],
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FederatedData:
    """Data as clients own it: the samples of client k stand in rows ``offsets[k]:offsets[k+1]``.

    Inputs are standardised; no client trains on those of the test set. ``num_classes`` is 0 in a
    regression; ``quality`` is [K] in [0, 1], or None.
    """

    inputs: Inputs
    targets: Targets
    offsets: IntArray
    test_inputs: Inputs
    test_targets: Targets
    num_classes: int
    quality: FloatArray | None = None

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> IntArray:
        """[K], how many samples each client has."""
        return np.diff(self.offsets)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.inputs.shape[1:]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Updates:
    """The updates and signals of clients, row by row.

    ``deltas`` [n, P] are trained minus global parameters; ``signals`` [n] each, see
    :data:`SIGNALS`.
    """

    clients: IntArray
    deltas: NDArray[np.float32]
    signals: Mapping[str, FloatArray]


SIGNALS = {
    "loss": "mean loss of the samples as they were trained on (costs nothing extra)",
    "root_mean_square_loss": "sqrt of their mean squared loss, as Oort wants it",
    "trained_samples": "how many different samples it was trained on",
    "update_norm": "L2 norm of the update",
    "loss_before": "mean loss of all the client's samples under the global model",
    "loss_after": "the same under its trained model",
    "accuracy_before": "accuracy of the global model on its samples (classification)",
    "accuracy_gain": "accuracy on its samples after training minus before (classification)",
}
"""What a trainer can tell a policy of each client. The last four take two more passes over the
client's data and are measured only when ``measure_gain`` is set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """A model on the test set; ``accuracy`` is NaN in a regression."""

    loss: float
    accuracy: float


class Engine(Protocol):
    """A model on federated data. Every method is a pure function of its arguments."""

    @property
    def num_trainable(self) -> int:
        """How many parameters are trained; those behind them in the vector are statistics of batch
        normalisation, which a server averages whatever its optimiser."""

    def initial(self) -> Parameters:
        """The model before the first round, from the engine's seed."""

    def train(
        self, parameters: Parameters, clients: IntArray, round_number: int, order: int | None = None
    ) -> Updates:
        """Train these clients, each from the same global ``parameters``, on its own data.

        ``order`` is the round whose order of samples they take; None for ``round_number``, whose
        learning rate they take.
        """

    def losses(
        self, parameters: Parameters, clients: IntArray, *, batch_size: int | None = None
    ) -> FloatArray:
        """[n], mean loss of ``parameters`` on each client's data.

        ``batch_size`` limits the samples of a client. They are drawn once and for all: the first
        ones of the order that follows from the seed and the client in "round 0".
        """

    def evaluate(self, parameters: Parameters) -> Evaluation:
        """The model on the test set."""

    def close(self) -> None:
        """End worker processes, if there are any."""


@runtime_checkable
class MixedEngine(Protocol):
    """An engine that is faster if clients train together even from different models."""

    def train_mixed(
        self,
        starts: Sequence[Parameters],
        clients: IntArray,
        round_numbers: IntArray,
        orders: IntArray,
    ) -> Updates:
        """Train these clients, each from its own model and as in its own round.

        The bits are those of :meth:`Engine.train`.
        """


@runtime_checkable
class ClassifierEngine(Protocol):
    """An engine that knows where the output layer of its model stands."""

    @property
    def output_bias(self) -> slice | None:
        """The places of the output layer's biases in the vector of parameters, one for each class;
        None where the model has no such biases."""


def check_call(
    engine: str, parameters: Parameters, size: int, clients: IntArray, num_clients: int
) -> None:
    """Raise a DataError unless the model has ``size`` numbers and the clients exist."""
    if parameters.shape != (size,) or parameters.dtype != np.float32:
        raise DataError(
            f"{engine}: parameters have shape {parameters.shape} and type {parameters.dtype}, "
            f"expected ({size},) and float32"
        )
    if len(clients) and not 0 <= clients.min() <= clients.max() < num_clients:
        raise DataError(f"{engine}: clients {clients} are not all among 0 … {num_clients - 1}")


def joined(clients: IntArray, parts: Iterable[tuple[IntArray, Updates]]) -> Updates:
    """The updates of all ``clients``, in their order; no copy where one part holds them all.

    ``parts`` are increasing positions among the clients and the updates of the clients there; every
    position is in exactly one part. A generator saves memory.

    Example:
        >>> one = Updates(clients=np.array([9]), deltas=np.float32([[1.0]]), signals={})
        >>> two = Updates(clients=np.array([3, 7]), deltas=np.float32([[2.0], [3.0]]), signals={})
        >>> whole = joined(np.array([3, 9, 7]), [(np.array([1]), one), (np.array([0, 2]), two)])
        >>> whole.deltas[:, 0].tolist()
        [2.0, 1.0, 3.0]
    """
    deltas: NDArray[np.float32] = np.empty((0, 0), dtype=np.float32)
    signals: dict[str, FloatArray] = {}
    for positions, part in parts:
        if len(positions) == len(clients):
            return part
        if len(deltas) == 0:
            deltas = np.empty((len(clients), part.deltas.shape[1]), dtype=np.float32)
        deltas[positions] = part.deltas
        for name, values in part.signals.items():
            signals.setdefault(name, np.empty(len(clients)))[positions] = values
    return Updates(clients=clients, deltas=deltas, signals=signals)

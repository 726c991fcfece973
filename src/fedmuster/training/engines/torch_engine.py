"""One client after the other in PyTorch, for networks and modules of your own; needs torch."""

import weakref
from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import is_integer
from fedmuster.training.engines.torch_models import (
    BLOCK,
    GAIN_SIGNALS,
    TRAIN_SIGNALS,
    Build,
    Replica,
    Task,
    one_thread,
    own_randomness,
)
from fedmuster.training.engines.torch_workers import Workers
from fedmuster.training.local_sgd import Batches, LocalSGD, batches
from fedmuster.training.training_records import (
    Evaluation,
    FederatedData,
    Parameters,
    Updates,
    check_call,
)


class TorchEngine:
    """Trains any ``nn.Module`` (an :class:`~fedmuster.training.training_records.Engine`).

    The same seed gives the same bits for any number of workers: each process calculates in one
    thread, and PyTorch's own number of threads and random stream are as before after every call.

    Args:
        build: a network of :mod:`fedmuster.training.networks`, or any function without arguments
            that returns a module with ``num_classes`` outputs (1 in a regression). With several
            workers other processes must be able to import it.
        data: what the clients own.
        local: how they train.
        seed: of the initial model, the batches and dropout.
        workers: processes among which the clients of a round are shared out. With more than one,
            close the engine after use or use it in a ``with`` statement; otherwise they end with
            the engine or the program.
    """

    def __init__(
        self, build: Build, data: FederatedData, local: LocalSGD, seed: int, workers: int = 1
    ) -> None:
        if not is_integer(workers, least=1):
            raise ConfigError(
                f"TorchEngine: workers = {workers!r}, expected an integer >= 1", key=("workers",)
            )
        self._data, self._local, self._seed = data, local, seed
        gains = GAIN_SIGNALS if data.num_classes else GAIN_SIGNALS[:2]
        self._signals = (*TRAIN_SIGNALS, *(gains if local.measure_gain else ()))
        with one_thread(), own_randomness():
            self._replica = Replica(build, data, local, seed)
        self._workers: Workers | None = None
        if workers > 1:
            size = self._replica.model.size
            self._workers = Workers(workers, build, data, local, seed, size=size)
            weakref.finalize(self, self._workers.close)

    @property
    def num_trainable(self) -> int:
        """See :class:`~fedmuster.training.training_records.Engine`."""
        return self._replica.model.num_trainable

    @property
    def output_bias(self) -> slice | None:
        """The biases of the layer that makes the scores; None in a regression, or where that layer
        is not linear, or has no bias that is trained."""
        return self._replica.model.output_bias if self._data.num_classes else None

    def initial(self) -> Parameters:
        """The model before the first round: as the module was made under the engine's seed."""
        return self._replica.initial.copy()

    def train(
        self, parameters: Parameters, clients: IntArray, round_number: int, order: int | None = None
    ) -> Updates:
        """See :class:`~fedmuster.training.training_records.Engine`."""
        self._check(parameters, clients)
        plan = self._batches(self._local, clients, round_number if order is None else order)
        tasks: list[Task] = [
            ("train", client, round_number, rows, sizes)
            for client, rows, sizes in zip(clients.tolist(), *plan, strict=True)
        ]
        deltas = np.empty((len(clients), self._replica.model.size), dtype=np.float32)
        largest, width = self._largest_first(clients), len(self._signals)
        signals = self._table(parameters, tasks, width=width, order=largest, deltas=deltas)
        trained = np.minimum(plan.sizes.sum(axis=1), self._data.sizes[clients])  # as epochs repeat
        told = dict(zip(self._signals, signals.T.copy(), strict=True))
        told["trained_samples"] = trained.astype(np.float64)
        return Updates(clients=clients, deltas=deltas, signals=told)

    def losses(
        self, parameters: Parameters, clients: IntArray, *, batch_size: int | None = None
    ) -> FloatArray:
        """See :class:`~fedmuster.training.training_records.Engine`."""
        self._check(parameters, clients)
        once = LocalSGD(batch_size=batch_size or 0, steps=1)
        plan = zip(clients.tolist(), self._batches(once, clients, 0).rows, strict=True)
        tasks: list[Task] = [("losses", client, rows[rows >= 0]) for client, rows in plan]
        order = self._largest_first(clients)
        return self._table(parameters, tasks, width=1, order=order)[:, 0]

    def evaluate(self, parameters: Parameters) -> Evaluation:
        """The model on the test set."""
        self._check(parameters, np.arange(0))
        size = len(self._data.test_inputs)
        blocks = [(begin, min(begin + BLOCK, size)) for begin in range(0, size, BLOCK)]
        tasks: list[Task] = [("test", begin, end) for begin, end in blocks]
        sums = self._table(parameters, tasks, width=2, order=np.arange(len(tasks)))
        loss, hits = sums.sum(axis=0) / size
        return Evaluation(
            loss=float(loss), accuracy=float(hits) if self._data.num_classes else np.nan
        )

    def close(self) -> None:
        """End the worker processes, if there are any."""
        if self._workers is not None:
            self._workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _batches(self, local: LocalSGD, clients: IntArray, round_number: int) -> Batches:
        return batches(local, self._seed, round_number, clients, self._data.sizes[clients])

    def _table(
        self,
        parameters: Parameters,
        tasks: list[Task],
        *,
        width: int,
        order: IntArray,
        deltas: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float64]:
        """The first ``width`` results of each task, and their updates into ``deltas``."""
        table = np.empty((len(tasks), width))
        for position, row, delta in self._run(parameters, tasks, order):
            table[position] = row[:width]
            if deltas is not None:
                deltas[position] = delta
        return table

    def _run(
        self, parameters: Parameters, tasks: list[Task], order: IntArray
    ) -> Iterator[tuple[int, list[float], Parameters]]:
        """Position, result and update of each task; the update is to be copied at once."""
        if self._workers is not None:
            yield from self._workers.run(parameters, tasks, order)
            return
        replica = self._replica
        replica.start[:] = parameters
        with one_thread(), own_randomness():
            for position in order.tolist():
                yield position, replica.run(tasks[position]), replica.delta

    def _largest_first(self, clients: IntArray) -> IntArray:
        """Positions by falling size, so that no worker waits long for the last client."""
        return np.argsort(-self._data.sizes[clients], kind="stable")

    def _check(self, parameters: Parameters, clients: IntArray) -> None:
        size = self._replica.model.size
        check_call("TorchEngine", parameters, size, clients, self._data.num_clients)

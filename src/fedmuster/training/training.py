"""What to train, as a part of an experiment: ``[training]`` in its TOML file."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import DataError
from fedmuster.core.policy import Discard, LateAnswers
from fedmuster.core.streams import NOISE, stream
from fedmuster.training.aggregation import FedAvg, Server
from fedmuster.training.data import Data
from fedmuster.training.data.digits import Digits
from fedmuster.training.engines.numpy_engine import NumpyEngine
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP, Linear, Logistic
from fedmuster.training.networks import NETWORKS, Network
from fedmuster.training.partition import IID, Partition, split
from fedmuster.training.trainer import Trainer
from fedmuster.training.training_records import DataSet, Engine, FederatedData, Inputs, Shares

if TYPE_CHECKING:
    from torch import nn


_BLOCK_BYTES = 2**24


def federate(data: DataSet, shares: Shares, *, seed: int) -> FederatedData:
    """Each client's samples in one piece, noisy where its data is, and standardised.

    Noise of ``shares.noise_sd`` is added to the inputs as they are in ``data``, and nothing is
    clipped: a pixel may leave [0, 1]. Then ``data.mean`` is subtracted from all inputs, those of
    the test set too, and ``data.sd`` divides them. ``data`` is left as it is.
    """
    _check(data, shares)
    inputs = data.train_inputs[shares.rows]
    if shares.noise_sd is not None:
        _add_noise(inputs, np.repeat(shares.noise_sd, shares.sizes), seed)
    return FederatedData(
        inputs=_standardise(inputs, data),
        targets=data.train_targets[shares.rows],
        offsets=shares.offsets,
        test_inputs=_standardise(data.test_inputs.copy(), data),
        test_targets=data.test_targets,
        num_classes=data.num_classes,
        quality=shares.quality,
    )


def _add_noise(inputs: Inputs, sd: FloatArray, seed: int) -> None:
    """In place and block by block, so that little memory is needed; the stream runs on from block
    to block, so their size does not matter."""
    rng = stream(seed, NOISE)
    length = max(1, _BLOCK_BYTES // max(inputs[:1].nbytes, 1))
    for start in range(0, len(inputs), length):
        block = inputs[start : start + length]
        noise = rng.standard_normal(block.shape, dtype=np.float32)
        noise *= sd[start : start + length].astype(np.float32).reshape(-1, *[1] * (noise.ndim - 1))
        block += noise


def _standardise(inputs: Inputs, data: DataSet) -> Inputs:
    inputs -= np.float32(data.mean)
    inputs /= np.float32(data.sd)
    return inputs


def _check(data: DataSet, shares: Shares) -> None:
    """Shares may be a user's own."""
    if not (np.isfinite(data.mean) and 0 < data.sd < np.inf):
        raise DataError(f"federate: mean {data.mean}, sd {data.sd}; expected finite, and sd > 0")
    rows, offsets = shares.rows, shares.offsets
    if not (rows.ndim == offsets.ndim == 1 and len(offsets) >= 2):
        raise DataError(
            f"federate: rows has shape {rows.shape} and offsets {offsets.shape}, expected [n] and "
            "[K+1]"
        )
    num_samples = len(data.train_targets)
    if not (np.issubdtype(rows.dtype, np.integer) and ((rows >= 0) & (rows < num_samples)).all()):
        raise DataError(f"federate: rows must be samples 0 … {num_samples - 1}")
    if offsets[0] != 0 or offsets[-1] != len(rows):
        raise DataError(
            f"federate: offsets go from {offsets[0]} to {offsets[-1]}, expected 0 to {len(rows)}"
        )
    if not (shares.sizes > 0).all():
        client = int(np.argmin(shares.sizes))
        raise DataError(f"federate: client {client} has no samples, expected at least one")
    for name, highest in (("quality", 1.0), ("noise_sd", float(np.finfo(np.float32).max))):
        values = getattr(shares, name)
        if values is not None and not (
            values.shape == shares.sizes.shape and ((values >= 0) & (values <= highest)).all()
        ):
            raise DataError(
                f"federate: {name} must hold a number from 0 to {highest:g} for each of "
                f"{len(shares.sizes)} clients"
            )


# What to train, as a part of an experiment: ``[training]`` in its TOML file.

Model = Linear | Logistic | MLP | Network
MODELS: Final[dict[str, type]] = {
    **{kind.name: kind for kind in (Linear, Logistic, MLP)},
    **NETWORKS,
}


_DISCARD = Discard()


class Learner(Protocol):
    """Whoever can start a training: :class:`Training`, or your own objects through it."""

    def start(
        self,
        *,
        num_clients: int,
        seed: int,
        num_samples: IntArray | None = None,
        late_answers: LateAnswers = _DISCARD,
        measure_gain: bool = False,
        num_edges: int = 1,
    ) -> Trainer:
        """Give the clients their data and make the initial model.

        Args:
            num_clients: K.
            seed: of everything.
            num_samples: [K], how much data each client has, where that is decided elsewhere; None
                where the partition decides.
            late_answers: what becomes of answers that come when their round is over.
            measure_gain: whether clients measure their accuracy before and after training, even if
                nobody has asked for that elsewhere.
            num_edges: M, how many edge servers have a model of their own; 1 in flat FL.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """A model on a data set that is shared out among the clients.

    Args:
        data: what is learned.
        partition: who owns which samples.
        model: linear models and MLPs run on NumPy, all clients of a round at once; networks need
            PyTorch.
        local: how a client trains.
        server: how the updates of a round become one model.
        min_answers: with fewer usable updates than this a round leaves the model (of an edge) as
            it is.
        evaluate_every: rounds between evaluations on the test set; the last round always is.
        workers: processes that share the clients of a round (networks only; the same bits for
            any number). Comparing several policies, run those side by side instead.
        global_every: T_ES, rounds between global aggregations, where edge servers have models of
            their own (COCS: 5, and a server that weighs all clients alike); 1 in flat FL, where
            it does nothing.
    """

    data: Data = field(default_factory=Digits)
    partition: Partition = field(default_factory=IID)
    model: Model = field(default_factory=MLP)
    local: LocalSGD = field(default_factory=LocalSGD)
    server: Server = field(default_factory=FedAvg)
    min_answers: int = 1
    evaluate_every: int = 5
    workers: int = 1
    global_every: int = 1

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("min_answers", "evaluate_every", "workers", "global_every"):
            require(getattr(self, name) >= 1, self, name, "an integer >= 1")
        dense = isinstance(self.model, Linear | Logistic | MLP)
        expected = f"1, for {self.model.name} trains all clients of a round at once"
        require(not dense or self.workers == 1, self, "workers", expected)

    def start(
        self,
        *,
        num_clients: int,
        seed: int,
        num_samples: IntArray | None = None,
        late_answers: LateAnswers = _DISCARD,
        measure_gain: bool = False,
        num_edges: int = 1,
    ) -> Trainer:
        """See :class:`Learner`."""
        data = self._share_out(self.data.load(seed), num_clients, seed, num_samples)
        engine = self._engine(data, seed, self._local(measure_gain))
        return self._trainer(data, engine, seed, late_answers, num_edges)

    def with_own(
        self, *, data: DataSet | None = None, module: "Callable[[], nn.Module] | None" = None
    ) -> "OwnTraining":
        """The same training, with your own data set or PyTorch module in place of a named one.

        Args:
            data: in place of ``self.data``.
            module: makes the network, whose parameters are the initial model. Called once in
                each process, so it must always make the same.
        """
        return OwnTraining(training=self, data=data, module=module)

    def _share_out(
        self, data: DataSet, num_clients: int, seed: int, num_samples: IntArray | None
    ) -> FederatedData:
        shares = split(self.partition, data, num_clients, seed=seed, num_samples=num_samples)
        return federate(data, shares, seed=seed)

    def _local(self, measure_gain: bool) -> LocalSGD:
        return replace(self.local, measure_gain=self.local.measure_gain or measure_gain)

    def _engine(self, data: FederatedData, seed: int, local: LocalSGD) -> Engine:
        model = self.model
        if isinstance(model, Linear | Logistic | MLP):
            return NumpyEngine(model, data, local, seed)
        from fedmuster.training.engines.torch_engine import (
            TorchEngine,  # here, because it needs PyTorch
        )

        return TorchEngine(model, data, local, seed, workers=self.workers)

    def _trainer(
        self,
        data: FederatedData,
        engine: Engine,
        seed: int,
        late_answers: LateAnswers,
        num_edges: int,
    ) -> Trainer:
        return Trainer(
            engine,
            data,
            server=self.server,
            min_answers=self.min_answers,
            evaluate_every=self.evaluate_every,
            seed=seed,
            late_answers=late_answers,
            num_edges=num_edges,
            global_every=self.global_every,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnTraining:
    """A training with objects that no TOML file can name, see :meth:`Training.with_own`."""

    training: Training
    data: DataSet | None
    module: "Callable[[], nn.Module] | None"

    def start(
        self,
        *,
        num_clients: int,
        seed: int,
        num_samples: IntArray | None = None,
        late_answers: LateAnswers = _DISCARD,
        measure_gain: bool = False,
        num_edges: int = 1,
    ) -> Trainer:
        """See :class:`Learner`."""
        training = self.training
        data = training.data.load(seed) if self.data is None else self.data
        federated = training._share_out(data, num_clients, seed, num_samples)
        local = training._local(measure_gain)
        if self.module is None:
            engine = training._engine(federated, seed, local)
            return training._trainer(federated, engine, seed, late_answers, num_edges)
        from fedmuster.training.engines.torch_engine import TorchEngine

        network = TorchEngine(self.module, federated, local, seed, workers=training.workers)
        return training._trainer(federated, network, seed, late_answers, num_edges)

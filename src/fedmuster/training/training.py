"""What to train, as a part of an experiment: ``[training]`` in its TOML file."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import DataError
from fedmuster.core.staleness import DISCARD, Staleness
from fedmuster.core.streams import NOISE, stream
from fedmuster.training.aggregation import Aggregation, FedAvg
from fedmuster.training.data import Data, Digits
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP, DenseModel, Model
from fedmuster.training.partition import IID, Partition, split
from fedmuster.training.trainer import Trainer, Weighting
from fedmuster.training.training_records import DataSet, FederatedData, Inputs, Shares

if TYPE_CHECKING:
    from torch import nn

_BLOCK_BYTES = 2**24


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """A model on a data set that is divided among the clients.

    Args:
        data: what is learned.
        partition: which client owns which samples.
        model: linear models and MLPs run on NumPy, all clients of a round at once; networks need
            PyTorch.
        local: how a client trains.
        server: how the updates of a round become one model.
        min_answers: with fewer usable updates than this a round leaves the model (of an edge) as
            it is.
        evaluate_every: rounds between evaluations on the test set; the last round always is.
        workers: processes that share the clients of a round (networks only; the same bits for
            any number). To compare several policies, run those side by side instead.
        global_every: T_ES, rounds between global aggregations, where edge servers have models of
            their own (COCS: 5, and a server that weighs all clients alike); 1 in flat learning,
            where it does nothing.
        weighting: whether the model moves by the mean over the "answers" of a round, or by an
            "unbiased" estimate of the mean over all clients, in which an answer weighs 1/pi if its
            client was chosen with the probability pi. That needs a policy that knows pi.
    """

    data: Data = field(default_factory=Digits)
    partition: Partition = field(default_factory=IID)
    model: Model = field(default_factory=MLP)
    local: LocalSGD = field(default_factory=LocalSGD)
    server: Aggregation = field(default_factory=FedAvg)
    min_answers: int = 1
    evaluate_every: int = 5
    workers: int = 1
    global_every: int = 1
    weighting: Weighting = "answers"

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("min_answers", "evaluate_every", "workers", "global_every"):
            require(getattr(self, name) >= 1, self, name, "an integer >= 1")
        dense = isinstance(self.model, DenseModel)
        expected = f"1, for {self.model.name} trains all clients of a round at once"
        require(not dense or self.workers == 1, self, "workers", expected)

    def start(
        self,
        *,
        num_clients: int,
        seed: int,
        num_samples: IntArray | None = None,
        staleness: Staleness = DISCARD,
        keeps_late: bool = True,
        measure_gain: bool = False,
        num_edges: int = 1,
        twins: IntArray | None = None,
        own_data: DataSet | None = None,
        own_module: "Callable[[], nn.Module] | None" = None,
    ) -> Trainer:
        """Give the clients their data and make the initial model.

        Args:
            num_clients: K.
            seed: of everything.
            num_samples: [K], the size of each client's data where the world decides it; None where
                the partition does.
            staleness: what old answers are worth.
            keeps_late: whether answers that miss the end of their round may enter a later model.
            measure_gain: whether clients measure their accuracy before and after training, even if
                ``local`` does not ask for it.
            twins: int64[K], the client whose data each client has; None where each has its own.
            num_edges: M, the number of edge servers with a model of their own; 1 in flat learning.
            own_data: replaces ``data``, see :meth:`with_own`.
            own_module: replaces ``model``, see :meth:`with_own`.
        """
        data = self.data.load(seed) if own_data is None else own_data
        shares = split(self.partition, data, num_clients, seed=seed, num_samples=num_samples)
        if twins is not None:
            shares = shares.owned_by(twins)
        federated = federate(data, shares, seed=seed)
        local = replace(self.local, measure_gain=self.local.measure_gain or measure_gain)
        if own_module is None:
            engine = self.model.engine(federated, local, seed, self.workers)
        else:
            from fedmuster.training.engines.torch_engine import TorchEngine

            engine = TorchEngine(own_module, federated, local, seed, workers=self.workers)
        return Trainer(
            engine,
            federated,
            server=self.server,
            min_answers=self.min_answers,
            evaluate_every=self.evaluate_every,
            seed=seed,
            staleness=staleness,
            keeps_late=keeps_late,
            num_edges=num_edges,
            global_every=self.global_every,
            weighting=self.weighting,
        )

    def with_own(
        self, *, data: DataSet | None = None, module: "Callable[[], nn.Module] | None" = None
    ) -> "OwnTraining":
        """The same training, with your own data set or PyTorch module in place of a named one.

        ``module`` makes the network, whose parameters are the initial model. It is called once in
        each process, so it must always make the same.
        """
        return OwnTraining(training=self, data=data, module=module)


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnTraining:
    """A training with objects that no TOML file can name, see :meth:`Training.with_own`."""

    training: Training
    data: DataSet | None
    module: "Callable[[], nn.Module] | None"

    def start(self, **arguments: Any) -> Trainer:
        """See :meth:`Training.start`, which takes the ``arguments``."""
        return self.training.start(**arguments, own_data=self.data, own_module=self.module)


def federate(data: DataSet, shares: Shares, *, seed: int) -> FederatedData:
    """Each client's samples side by side, noisy where the shares say so, and standardised.

    Noise of ``shares.noise_sd`` is added to the inputs as they are in ``data``, and nothing is
    clipped: a pixel may leave [0, 1]. Then ``data.mean`` is subtracted from all inputs, those of
    the test set too, and ``data.sd`` divides them. ``data`` does not change.
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
    """In place and block by block, to save memory; the size of a block changes no number."""
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

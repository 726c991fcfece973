"""Server rules: how the updates of a round become the next global model.

``[training.server]`` of an experiment names one of :data:`SERVERS`::

    server = { name = "fedavg", weights = "uniform" }
    server = { name = "trimmed-mean", trim = 0.1, clip_norm = 5.0 }
    server = { name = "fedadam", learning_rate = 0.01, combine = "coordinate-median" }
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import BoolArray, FloatArray, blocks
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import DataError
from fedmuster.core.registry import Registry
from fedmuster.core.state import shared
from fedmuster.training.combine import (
    Combine,
    CoordinateMedian,
    Deltas,
    GeometricMedian,
    Krum,
    MultiKrum,
    TrimmedMean,
    UniformMean,
    WeightedMean,
    WeightedSum,
    clip_factors,
)
from fedmuster.training.training_records import Parameters, Updates


def finite_rows(updates: Updates) -> BoolArray:
    """bool[n], the rows in which the whole update and all signals are finite numbers."""
    with np.errstate(over="ignore", invalid="ignore"):
        usable: BoolArray = np.isfinite(np.add.reduce(updates.deltas, axis=1))
    # No sum with NaN or infinity is finite; but one of large numbers may overflow: look closely.
    for doubtful in np.flatnonzero(~usable):
        row = updates.deltas[doubtful]
        usable[doubtful] = all(np.isfinite(row[block]).all() for block in blocks(len(row)))
    for values in updates.signals.values():
        usable &= np.isfinite(values)
    return usable


@dataclass(slots=True)
class ServerState:
    """The memory of a server rule: [P] each, or empty where the rule does not use it."""

    momentum: NDArray[np.float32] = shared()
    second_moment: FloatArray = shared()
    """In float64, for the squares of large updates do not fit into float32."""

    def part(self, rows: slice) -> "ServerState":
        """A view of some rows."""
        return ServerState(momentum=self.momentum[rows], second_moment=self.second_moment[rows])


@dataclass(frozen=True, kw_only=True, slots=True)
class Aggregation(ABC):
    """A server rule: combines the updates of a round to one and moves the model along it.

    Args:
        clip_norm: the longest update (L2 norm of its trained parameters) that a client may send;
            longer ones are shortened to it. None for any length.
    """

    name: ClassVar[str]
    mixes_models: ClassVar[bool] = False
    """Whether an update is the client's model minus the server's, even if the client started from
    an older model; else it is what the client's training has changed."""

    clip_norm: float | None = None

    def __post_init__(self) -> None:
        check_types(self)
        self._require_positive("clip_norm")

    def init(self, num_parameters: int) -> ServerState:
        """The memory before the first round."""
        return ServerState(momentum=np.zeros(0, dtype=np.float32), second_moment=np.zeros(0))

    def apply(
        self,
        state: ServerState,
        parameters: Parameters,
        updates: Updates,
        weights: FloatArray,
        num_trainable: int,
        *,
        rule: Combine | WeightedSum | None = None,
        scale: FloatArray | None = None,
    ) -> Parameters:
        """The next global model; ``state`` changes in place.

        Model and state stay as they are if there are no updates, or none with any weight.

        Args:
            state: from :meth:`init`, or saved and restored.
            parameters: the global model that the clients started from.
            updates: finite ones, see :func:`finite_rows`.
            weights: [n] >= 0, how much data stands behind each.
            num_trainable: the number of trained parameters, which come first. The others are
                statistics of batch normalisation: they move by the combined update, unclipped.
            rule: combines the updates, in place of :attr:`rule`. Where it is a sum, statistics are
                averaged with the same weights: a variance must not become negative.
            scale: [n], multiplies each update before they are combined, and after it was clipped;
                None for 1.
        """
        _check(parameters, updates.deltas, weights, num_trainable)
        after = parameters.copy()
        if not weights.any():
            return after
        trained = updates.deltas[:, :num_trainable]
        rule, factors = rule or self.rule, scale
        if self.clip_norm is not None:
            factors = clip_factors(trained, self.clip_norm) * (1.0 if scale is None else scale)
        delta = rule.combine(trained, weights, scale=factors)
        model = after[:num_trainable]
        memory = state.part(slice(num_trainable))
        for block in blocks(num_trainable):
            self._step(model[block], delta[block], memory.part(block))
        others = updates.deltas[:, num_trainable:]
        averaging = WeightedMean() if isinstance(rule, WeightedSum) else rule
        after[num_trainable:] += averaging.combine(others, weights, scale=scale)
        return after

    @property
    @abstractmethod
    def rule(self) -> Combine:
        """Combines many updates to one."""

    @abstractmethod
    def _step(self, model: Parameters, delta: Parameters, memory: ServerState) -> None:
        """Move a block of the model, in place, along the combined update."""

    def _require_positive(self, name: str) -> None:
        value = getattr(self, name)
        require(value is None or 0 < value < math.inf, self, name, "a number > 0")

    def _require_decay(self, name: str) -> None:
        require(0 <= getattr(self, name) < 1, self, name, "a number in [0, 1)")


SERVERS: Final[Registry[Aggregation]] = Registry(
    "server", Aggregation, modules=(__name__,), methods=("init", "apply"), group="fedmuster.servers"
)


class _Average(Aggregation):
    """Adds the combined update to the model as it is."""

    __slots__ = ()

    def _step(self, model: Parameters, delta: Parameters, memory: ServerState) -> None:
        model += delta


@SERVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedAvg(_Average):
    """The mean of the clients' models.

    Args:
        weights: whether a client counts by its data or all count alike.

    References:
        H. B. McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
        Data, AISTATS 2017.

    Example:
        >>> one, three = np.float32([[0.0, 8.0]]), np.float32([[4.0, 0.0]])
        >>> updates = Updates(
        ...     clients=np.arange(2), deltas=np.concatenate([one, three]), signals={}
        ... )
        >>> model, data = np.zeros(2, dtype=np.float32), np.array([1.0, 3.0])
        >>> FedAvg().apply(FedAvg().init(2), model, updates, data, 2)
        array([3., 2.], dtype=float32)
    """

    name: ClassVar[str] = "fedavg"

    weights: Literal["data", "uniform"] = "data"

    @property
    def rule(self) -> Combine:
        """Combines many updates to one."""
        return WeightedMean() if self.weights == "data" else UniformMean()


@SERVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class ModelMixing(Aggregation):
    """FedAsync: mixes the client's model into the server's, ``w <- (1 - alpha_s) w + alpha_s w_k``.

    ``alpha_s`` is ``mixing`` times what the staleness rule gives an answer of its age. The paper
    mixes every answer by itself (a buffer of 1); of several answers their mean is mixed.

    Args:
        mixing: alpha, in (0, 1]. Paper: 0.6 and 0.9.
        weights: whether a client of a buffer counts by its data or all count alike.

    References:
        C. Xie, S. Koyejo, I. Gupta, Asynchronous Federated Optimization, 2019, arXiv:1903.03934,
        Algorithm 1.
    """

    name: ClassVar[str] = "fedasync"
    mixes_models: ClassVar[bool] = True

    mixing: float = 0.6
    weights: Literal["data", "uniform"] = "data"

    def __post_init__(self) -> None:
        Aggregation.__post_init__(self)
        require(0 < self.mixing <= 1, self, "mixing", "a number in (0, 1]")

    @property
    def rule(self) -> Combine:
        """Combines many updates to one."""
        return WeightedMean() if self.weights == "data" else UniformMean()

    def _step(self, model: Parameters, delta: Parameters, memory: ServerState) -> None:
        model += np.float32(self.mixing) * delta  # Alg. 1: x_t = (1 - alpha) x_{t-1} + alpha x_new


@SERVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedMedian(_Average):
    """The median of the clients' models, coordinate by coordinate.

    Statistics of batch normalisation are averaged even so, and not protected.
    """

    name: ClassVar[str] = "median"
    rule: ClassVar[Combine] = CoordinateMedian()


@SERVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedTrimmedMean(_Average):
    """The mean of the clients' models without the extremes.

    Statistics of batch normalisation are averaged even so, and not protected.

    Args:
        trim: the share of values that is left out at either end, in [0, 0.5); rounded down.
    """

    name: ClassVar[str] = "trimmed-mean"

    trim: float = 0.1

    def __post_init__(self) -> None:
        Aggregation.__post_init__(self)
        require(0 <= self.trim < 0.5, self, "trim", "a number in [0, 0.5)")

    @property
    def rule(self) -> Combine:
        """Combines many updates to one."""
        return TrimmedMean(trim=self.trim)


@SERVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedKrum(_Average):
    """The one of the clients' models that is nearest to the others, see :class:`Krum`.

    Args:
        bad_share: f / n, at least the share of bad updates in a round, in [0, 0.5).
    """

    name: ClassVar[str] = "krum"

    bad_share: float = 0.3

    def __post_init__(self) -> None:
        Aggregation.__post_init__(self)
        require(0 <= self.bad_share < 0.5, self, "bad_share", "a number in [0, 0.5)")

    @property
    def rule(self) -> Combine:
        """Combines many updates to one."""
        return Krum(bad_share=self.bad_share)


@SERVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedMultiKrum(FedKrum):
    """The mean of the clients' models that are nearest to the others, see :class:`MultiKrum`."""

    name: ClassVar[str] = "multi-krum"

    @property
    def rule(self) -> Combine:
        """Combines many updates to one."""
        return MultiKrum(bad_share=self.bad_share)


@SERVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedGeometricMedian(_Average):
    """RFA: the geometric median of the clients' models, see :class:`GeometricMedian`.

    Args:
        smoothing: nu, relative to the typical distance between updates.
        iterations: of the smoothed Weiszfeld algorithm, at most. Paper: 3.
    """

    name: ClassVar[str] = "geometric-median"

    smoothing: float = 1e-6
    iterations: int = 100

    def __post_init__(self) -> None:
        Aggregation.__post_init__(self)
        GeometricMedian(smoothing=self.smoothing, iterations=self.iterations)

    @property
    def rule(self) -> Combine:
        """Combines many updates to one."""
        return GeometricMedian(smoothing=self.smoothing, iterations=self.iterations)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Optimiser(Aggregation):
    """Takes the combined update for a (negative) gradient."""

    learning_rate: float = 1.0
    combine: Combine = field(default_factory=WeightedMean)

    def __post_init__(self) -> None:
        Aggregation.__post_init__(self)
        self._require_positive("learning_rate")

    @property
    def rule(self) -> Combine:
        """Combines many updates to one."""
        return self.combine


@SERVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedAvgM(_Optimiser):
    """FedAvg with momentum on the server: ``v = momentum v + delta; w += learning_rate v``.

    Args:
        learning_rate: of the server. Paper: 1.
        combine: how many updates become one.
        momentum: in [0, 1). The paper's best are 0.7 … 0.997; 0.9 is usual.

    References:
        T. H. Hsu, H. Qi, M. Brown, Measuring the Effects of Non-Identical Data Distribution for
        Federated Visual Classification, 2019, arXiv:1909.06335.
    """

    name: ClassVar[str] = "fedavgm"

    momentum: float = 0.9

    def __post_init__(self) -> None:
        _Optimiser.__post_init__(self)
        self._require_decay("momentum")

    def init(self, num_parameters: int) -> ServerState:
        """The memory before the first round: at rest."""
        momentum = np.zeros(num_parameters, dtype=np.float32)
        return ServerState(momentum=momentum, second_moment=np.zeros(0))

    def _step(self, model: Parameters, delta: Parameters, memory: ServerState) -> None:
        memory.momentum *= self.momentum
        memory.momentum += delta
        model += self.learning_rate * memory.momentum


@dataclass(frozen=True, kw_only=True, slots=True)
class _Adaptive(_Optimiser):
    """Algorithm 2 of Reddi et al., but for its three ways to estimate the second moment."""

    learning_rate: float = 0.01
    beta1: float = 0.9
    tau: float = 1e-3

    def __post_init__(self) -> None:
        _Optimiser.__post_init__(self)
        self._require_decay("beta1")
        self._require_positive("tau")

    def init(self, num_parameters: int) -> ServerState:
        """The memory before the first round: at rest."""
        return ServerState(
            momentum=np.zeros(num_parameters, dtype=np.float32),
            second_moment=np.full(num_parameters, self.tau**2),  # Alg. 2: v_{-1} >= tau^2
        )

    def _step(self, model: Parameters, delta: Parameters, memory: ServerState) -> None:
        memory.momentum *= self.beta1
        memory.momentum += (1 - self.beta1) * delta  # Alg. 2: m_t
        self._accumulate(memory.second_moment, np.square(delta, dtype=np.float64))
        damped = np.sqrt(memory.second_moment) + self.tau
        model += self.learning_rate * memory.momentum / damped  # Alg. 2: x_{t+1}

    @abstractmethod
    def _accumulate(self, second_moment: FloatArray, square: FloatArray) -> None:
        """Take the squared update into the second moment, in place."""


@SERVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedAdagrad(_Adaptive):
    """Adagrad on the server: coordinates that moved much move less from then on.

    Args:
        learning_rate: of the server; the paper tunes it for each task.
        combine: how many updates become one.
        beta1: momentum. Paper: 0 for FedAdagrad.
        tau: how much adaptivity is damped. Paper: 1e-3.

    References:
        S. Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2.
    """

    name: ClassVar[str] = "fedadagrad"

    learning_rate: float = 0.1
    beta1: float = 0.0

    def _accumulate(self, second_moment: FloatArray, square: FloatArray) -> None:
        second_moment += square  # Alg. 2, FedAdagrad: v_t


@SERVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedAdam(_Adaptive):
    """Adam on the server, without bias correction.

    Args:
        learning_rate: of the server; the paper tunes it for each task.
        combine: how many updates become one.
        beta1: decay of the momentum. Paper: 0.9.
        beta2: decay of the second moment. Paper: 0.99.
        tau: how much adaptivity is damped. Paper: 1e-3.

    References:
        S. Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2.
    """

    name: ClassVar[str] = "fedadam"

    beta2: float = 0.99

    def __post_init__(self) -> None:
        _Adaptive.__post_init__(self)
        self._require_decay("beta2")

    def _accumulate(self, second_moment: FloatArray, square: FloatArray) -> None:
        second_moment *= self.beta2
        second_moment += (1 - self.beta2) * square  # Alg. 2, FedAdam: v_t


@SERVERS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class FedYogi(FedAdam):
    """Yogi on the server: Adam whose second moment changes by no more than the squared update.

    Its hyper-parameters are those of :class:`FedAdam`.
    """

    name: ClassVar[str] = "fedyogi"

    def _accumulate(self, second_moment: FloatArray, square: FloatArray) -> None:
        towards = np.sign(second_moment - square)
        second_moment -= (1 - self.beta2) * square * towards  # Alg. 2, FedYogi: v_t


def _check(parameters: Parameters, deltas: Deltas, weights: FloatArray, num_trainable: int) -> None:
    if deltas.shape != (len(weights), *parameters.shape) or parameters.ndim != 1:
        raise DataError(
            f"server: the updates have shape {deltas.shape}, expected ({len(weights)}, "
            f"{parameters.size}) for {len(weights)} weights and {parameters.size} parameters"
        )
    if parameters.dtype != np.float32 or deltas.dtype != np.float32:
        raise DataError(
            f"server: parameters are {parameters.dtype} and updates {deltas.dtype}, expected "
            "float32"
        )
    if not np.all((weights >= 0) & (weights < math.inf)):
        raise DataError(f"server: weights are {weights!r}, expected finite numbers >= 0")
    if not 0 <= num_trainable <= len(parameters):
        raise DataError(f"server: num_trainable is {num_trainable}, expected 0 … {len(parameters)}")

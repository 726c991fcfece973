"""How a client trains: mini-batch SGD on its own data."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import LARGEST_COUNT
from fedmuster.core.registry import Registry


class RateSchedule(ABC):
    """How the learning rate of clients changes from round to round."""

    __slots__ = ()

    name: ClassVar[str]

    @abstractmethod
    def factor(self, round_number: int) -> float:
        """The factor of the learning rate in this round."""


RATE_SCHEDULES: Final[Registry[RateSchedule]] = Registry(
    "learning-rate schedule",
    RateSchedule,
    modules=(__name__,),
    methods=("factor",),
    group="fedmuster.rate_schedules",
)


@RATE_SCHEDULES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Constant(RateSchedule):
    """The same learning rate in every round."""

    name: ClassVar[str] = "constant"

    def factor(self, round_number: int) -> float:
        """The factor of the learning rate in this round."""
        return 1.0


@RATE_SCHEDULES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class StepDecay(RateSchedule):
    """The learning rate falls by ``gamma`` after every ``every`` rounds (PyTorch's StepLR)."""

    name: ClassVar[str] = "step"

    every: int = 100
    gamma: float = 0.5

    def __post_init__(self) -> None:
        check_types(self)
        require(self.every >= 1, self, "every", "an integer >= 1")
        require(0 < self.gamma <= 1, self, "gamma", "a number in (0, 1]")

    def factor(self, round_number: int) -> float:
        """The factor of the learning rate in this round."""
        return float(self.gamma ** ((round_number - 1) // self.every))


@RATE_SCHEDULES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Cosine(RateSchedule):
    """From 1 down to ``floor`` along half a cosine over ``rounds`` rounds, then constant."""

    name: ClassVar[str] = "cosine"

    rounds: int = 1000
    floor: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        require(self.rounds >= 1, self, "rounds", "an integer >= 1")
        require(0 <= self.floor <= 1, self, "floor", "a number in [0, 1]")

    def factor(self, round_number: int) -> float:
        """The factor of the learning rate in this round."""
        progress = min((round_number - 1) / self.rounds, 1.0)
        return self.floor + (1.0 - self.floor) * (1.0 + math.cos(math.pi * progress)) / 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalSGD:
    """Local SGD from the global model, with PyTorch's update rule.

    ``g = gradient + weight_decay w + proximal (w - w_global); v = momentum v + g; w -= lr v``;
    the velocity v starts from 0 in every round. An epoch is a fresh permutation of the client's
    samples, cut into batches; the last may be smaller, and every batch counts its mean loss.

    Args:
        learning_rate: of the first round.
        schedule: how it changes from round to round.
        batch_size: 0 for full batches.
        epochs: over the client's data; give this or ``steps``, or neither for one epoch.
        steps: batches instead, going on with further epochs as needed: equal work for all.
        momentum: in [0, 1).
        weight_decay: L2.
        proximal: FedProx's mu.
        measure_gain: whether to measure each client's loss and accuracy before and after.
    """

    learning_rate: float = 0.1
    schedule: RateSchedule = field(default_factory=Constant)
    batch_size: int = 20
    epochs: int | None = None
    steps: int | None = None
    momentum: float = 0.0
    weight_decay: float = 0.0
    proximal: float = 0.0
    measure_gain: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.learning_rate < math.inf, self, "learning_rate", "a number > 0")
        expected = f"an integer from 0 to {LARGEST_COUNT:,}"
        require(0 <= self.batch_size <= LARGEST_COUNT, self, "batch_size", expected)
        for name in ("epochs", "steps"):
            value = getattr(self, name)
            fits = value is None or 1 <= value <= LARGEST_COUNT
            require(fits, self, name, f"an integer from 1 to {LARGEST_COUNT:,}")
        if self.epochs is not None and self.steps is not None:
            raise ConfigError("LocalSGD: give epochs or steps, not both", key=("steps",))
        require(0 <= self.momentum < 1, self, "momentum", "a number in [0, 1)")
        for name in ("weight_decay", "proximal"):
            require(0 <= getattr(self, name) < math.inf, self, name, "a number >= 0")

    def rate(self, round_number: int) -> float:
        """The learning rate of a round."""
        return self.learning_rate * self.schedule.factor(round_number)


_Words = NDArray[np.uint64]


class Batches(NamedTuple):
    """The batches of several clients.

    ``rows[i, s]`` are the samples (counted from 0 within client i's own data) of its batch s, and
    ``sizes[i, s]`` says how many they are: the rest of the row is filled with -1, and a client
    that is done has batches of size 0.
    """

    rows: IntArray
    sizes: IntArray


def batches(
    local: LocalSGD,
    seed: int,
    round_number: int | IntArray,
    clients: IntArray,
    num_samples: IntArray,
) -> Batches:
    """The batches of each of ``clients`` (with ``num_samples`` samples each) in a round.

    ``round_number`` may differ from client to client.

    Example:
        >>> two = batches(LocalSGD(batch_size=2), seed=1, round_number=1,
        ...               clients=np.array([4, 7]), num_samples=np.array([3, 1]))
        >>> two.sizes
        array([[2, 1],
               [1, 0]])
        >>> sorted(two.rows[0].ravel().tolist()), two.rows[1].tolist()
        ([-1, 0, 1, 2], [[0, -1], [-1, -1]])
    """
    most = int(num_samples.max(initial=1))
    width = min(local.batch_size or most, most)
    per_epoch = -(-num_samples // width)
    steps = (
        per_epoch * (local.epochs or 1)
        if local.steps is None
        else local.steps * (num_samples > 0).astype(np.int64)
    )
    longest = int(steps.max(initial=0))
    rows = np.full((len(clients), longest, width), -1, dtype=np.int64)
    epoch, begun = 0, np.zeros(len(clients), dtype=np.int64)
    while (begun < steps).any():
        order = _orders(seed, round_number, clients, num_samples, epoch)
        padded = np.full((len(clients), -(-most // width) * width), -1, dtype=np.int64)
        padded[:, :most] = order
        cut = padded.reshape(len(clients), -1, width)
        step = np.arange(cut.shape[1])
        client, source = np.nonzero(
            (step < per_epoch[:, None]) & (begun[:, None] + step < steps[:, None])
        )
        rows[client, begun[client] + source] = cut[client, source]
        begun += per_epoch
        epoch += 1
    return Batches(rows=rows, sizes=np.count_nonzero(rows >= 0, axis=2))


def _orders(
    seed: int, round_number: int | IntArray, clients: IntArray, num_samples: IntArray, epoch: int
) -> IntArray:
    """[n, longest]: a permutation of each client's samples, -1 beyond them."""
    key = np.zeros(len(clients), dtype=np.uint64)
    for part in (
        np.uint64(seed % 2**64),
        np.asarray(round_number, dtype=np.uint64),
        clients.astype(np.uint64),
        np.uint64(epoch),
    ):
        key = _mixed(key ^ part)
    position = np.arange(int(num_samples.max(initial=1)))
    # 63 bits, so that positions beyond a client's samples can sort behind all of them.
    words = _mixed(key[:, None] + _GOLDEN * position.astype(np.uint64)) >> np.uint64(1)
    beyond = position >= num_samples[:, None]
    words[beyond] = np.iinfo(np.uint64).max
    order = np.argsort(words, axis=1, kind="stable")
    order[beyond] = -1
    return order


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mixed(words: _Words) -> _Words:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014), modulo 2^64."""
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))

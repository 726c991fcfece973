"""Data sets that an experiment can name, and how raw samples become one."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import DataError
from fedmuster.core.registry import Registry
from fedmuster.core.streams import SUBSET, stream
from fedmuster.training.training_records import DataSet, Inputs

_BLOCK = 1024  # samples at a time, so that float64 copies stay small


class Data(ABC):
    """A data set that an experiment can name; a frozen dataclass."""

    __slots__ = ()

    name: ClassVar[str]

    @abstractmethod
    def load(self, seed: int) -> DataSet:
        """Read or draw the samples."""


DATASETS: Final[Registry[Data]] = Registry(
    "data set",
    Data,
    modules=("fedmuster.training.data",),
    methods=("load",),
    group="fedmuster.datasets",
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RawData:
    """Samples as files hold them: inputs uint8[n, …], or floating[n, …] where ``full_scale`` is 1.

    Targets and owners are integers[n]; ``full_scale`` is the input that becomes 1.
    """

    train_inputs: NDArray[Any]
    train_targets: NDArray[Any]
    test_inputs: NDArray[Any]
    test_targets: NDArray[Any]
    train_owners: NDArray[Any] | None = None
    full_scale: float = 255.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits(Data):
    """A data set of which a random part can be used, for reduced experiments.

    Args:
        train_limit: the largest number of training samples, drawn by the seed; None for all.
        test_limit: the same for test samples.
    """

    train_limit: int | None = None
    test_limit: int | None = None

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("train_limit", "test_limit"):
            value = getattr(self, name)
            require(value is None or value >= 1, self, name, "an integer >= 1")

    @property
    def random(self) -> bool:
        """Whether the seed matters."""
        return self.train_limit is not None or self.test_limit is not None


def assemble(raw: RawData, *, num_classes: int, limits: Limits, seed: int) -> DataSet:
    """The data set of these samples, scaled; its arrays are read-only, so that it can be shared."""
    _check(raw)
    train = _subset(len(raw.train_inputs), limits.train_limit, seed, part=0)
    test = _subset(len(raw.test_inputs), limits.test_limit, seed, part=1)
    train_inputs = _scaled(raw.train_inputs[train], raw.full_scale)
    mean, sd = _mean_and_sd(train_inputs)
    data = DataSet(
        train_inputs=train_inputs,
        train_targets=_integers(raw.train_targets, train),
        test_inputs=_scaled(raw.test_inputs[test], raw.full_scale),
        test_targets=_integers(raw.test_targets, test),
        num_classes=num_classes,
        train_owners=None if raw.train_owners is None else _integers(raw.train_owners, train),
        mean=mean,
        sd=sd,
    )
    for name in DataSet.__slots__:
        value = getattr(data, name)
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
    return data


def _check(raw: RawData) -> None:
    kind = np.floating if raw.full_scale == 1 else np.uint8
    for name in ("train_inputs", "test_inputs"):
        inputs = getattr(raw, name)
        if len(inputs) == 0 or not np.issubdtype(inputs.dtype, kind):
            raise DataError(
                f"{name} are {inputs.dtype} {inputs.shape}, expected at least one sample of type "
                f"{kind.__name__}"
            )
    for name in ("train_targets", "test_targets", "train_owners"):
        values = getattr(raw, name)
        expected = len(raw.test_inputs if name.startswith("test") else raw.train_inputs)
        if values is None:
            continue
        if not np.issubdtype(values.dtype, np.integer) or values.shape != (expected,):
            raise DataError(
                f"{name} are {values.dtype} {values.shape}, expected one integer for each of "
                f"{expected:,} samples"
            )


def _mean_and_sd(inputs: Inputs) -> tuple[float, float]:
    """Of all numbers, in double precision; the sd of equal inputs counts as 1."""
    blocks = [inputs[i : i + _BLOCK] for i in range(0, len(inputs), _BLOCK)]
    with np.errstate(invalid="ignore"):  # what is not finite is refused, with a name, by DataSet
        mean = sum(float(block.sum(dtype=np.float64)) for block in blocks) / inputs.size
        squares = sum(float(np.square(block - np.float64(mean)).sum()) for block in blocks)
    return mean, math.sqrt(squares / inputs.size) or 1.0


def _subset(size: int, limit: int | None, seed: int, *, part: int) -> IntArray | slice:
    if limit is None or limit >= size:
        return slice(None)
    return np.sort(stream(seed, SUBSET, part).choice(size, limit, replace=False))


def _scaled(values: NDArray[Any], full_scale: float) -> Inputs:
    scaled: Inputs = np.divide(values, np.float32(full_scale), dtype=np.float32, order="C")
    return scaled


def _integers(values: NDArray[Any], rows: IntArray | slice) -> IntArray:
    return values[rows].astype(np.int64)

"""A world with slow clients, and a partition that gives them all samples of some labels."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.streams import PARTITION, stream
from fedmuster.training.dealing import check_enough, check_labels, gathered, labels_of
from fedmuster.training.partition import Partition
from fedmuster.training.training_records import DataSet, Shares
from fedmuster.worlds import Setting, WorldRun, speed_groups
from fedmuster.worlds.laws.latency import LogNormalLatency


def order_of(num_clients: int, rng: Generator) -> IntArray:
    """The clients from the fastest to the slowest: the first draw of the partition's stream.

    World and partition share the order. Client ids tell a policy nothing about it.
    """
    return rng.permutation(num_clients)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlowTail(Setting):
    """Fast clients and slow ones, in the order that :class:`RareLabels` knows.

    Args:
        num_clients: K.
        slow_share: of the clients.
        fast_seconds: mean latency of the fast clients.
        slow_seconds: mean latency of the slow clients.
        relative_sd: standard deviation of a latency over its mean, log-normal.
    """

    name: ClassVar[str] = "slow-tail"

    num_clients: int = 100
    cohort_size: int = 10
    slow_share: float = 0.2
    fast_seconds: float = 0.1
    slow_seconds: float = 1.0
    relative_sd: float = 0.2

    _TAU_MIN: ClassVar[float] = 0.02

    def __post_init__(self) -> None:
        Setting.__post_init__(self)
        self.require_count("num_clients")
        require(0 < self.slow_share < 1, self, "slow_share", "a number in (0, 1)")
        self.require_positive("fast_seconds", "slow_seconds", "relative_sd")

    def start(self, seed: int) -> WorldRun:
        """See :class:`~fedmuster.worlds.world.World`."""
        order = order_of(self.num_clients, stream(seed, PARTITION))
        mean = np.full(self.num_clients, self.fast_seconds)
        mean[order[_num_fast(self.num_clients, self.slow_share) :]] = self.slow_seconds
        law = LogNormalLatency(mean=mean, relative_sd=self.relative_sd, floor=self._TAU_MIN)
        return self.begin(seed, law, tau_min_seconds=self._TAU_MIN, groups=speed_groups(mean))


@dataclass(frozen=True, kw_only=True, slots=True)
class RareLabels(Partition):
    """The slow clients of a :class:`SlowTail` own all samples of some labels, and nothing else.

    The fast clients own the others. Within both, samples are dealt at random, equally many each.

    Args:
        labels: those that only slow clients have.
        slow_share: of the clients, as in the world.
    """

    name: ClassVar[str] = "rare-labels"

    labels: tuple[int, ...] = (3, 8)
    slow_share: float = 0.2

    def __post_init__(self) -> None:
        check_types(self)
        require(len(self.labels) >= 1, self, "labels", "at least one label")
        require(0 < self.slow_share < 1, self, "slow_share", "a number in (0, 1)")

    def split(self, data: DataSet, num_clients: int, rng: Generator) -> Shares:
        """Divide the samples."""
        check_enough(self, data, num_clients)
        check_labels(self, data, write="another partition")
        order = order_of(num_clients, rng)
        num_fast = _num_fast(num_clients, self.slow_share)
        rare = np.isin(labels_of(data), self.labels)
        owners = np.empty(len(rare), dtype=np.int64)
        for rows, clients in ((~rare, order[:num_fast]), (rare, order[num_fast:])):
            if rows.sum() < len(clients):
                raise ConfigError(
                    f"RareLabels: {rows.sum():,} samples for {len(clients):,} clients, expected at "
                    "least one each",
                    key=("labels",),
                )
            owners[rows] = rng.permutation(np.resize(clients, rows.sum()))
        return gathered(owners, num_clients, rng)


def _num_fast(num_clients: int, slow_share: float) -> int:
    return num_clients - max(1, round(slow_share * num_clients))

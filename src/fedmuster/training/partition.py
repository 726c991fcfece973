"""Partitions: which client gets which training samples.

Every client gets at least one sample, and unless a partition says otherwise every training sample
goes to exactly one client.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.registry import Registry
from fedmuster.core.streams import PARTITION, exponential_data, stream
from fedmuster.training.dealing import (
    ANY_DATA,
    apportioned,
    check_enough,
    check_labels,
    dealt,
    dealt_by_size,
    dealt_shards,
    gathered,
    labels_of,
    places,
    raised,
    resized,
    sizes_by,
    sorted_by,
)
from fedmuster.training.training_records import DataSet, Shares


class Partition(ABC):
    """A way to divide the training samples among the clients; a frozen dataclass."""

    __slots__ = ()

    name: ClassVar[str]

    @abstractmethod
    def split(self, data: DataSet, num_clients: int, rng: Generator) -> Shares:
        """Divide the samples; deterministic in the generator."""


PARTITIONS: Final[Registry[Partition]] = Registry(
    "partition",
    Partition,
    modules=(__name__, "fedmuster.training.flwr_partition"),
    methods=("split",),
    group="fedmuster.partitions",
)


@PARTITIONS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class IID(Partition):
    """Equal sizes, and equally many samples of each class, up to one sample.

    BSFL's i.i.d. case: "each client has an equal number of images from each class".

    Args:
        stratified: whether classes are dealt equally too, or left to chance.
    """

    name: ClassVar[str] = "iid"

    stratified: bool = True

    def __post_init__(self) -> None:
        check_types(self)

    def split(self, data: DataSet, num_clients: int, rng: Generator) -> Shares:
        """Divide the samples."""
        check_enough(self, data, num_clients)
        labels = labels_of(data)
        # One at a time from a deck sorted by class: no client is ahead by more than one.
        deck = sorted_by(labels if self.stratified else np.zeros_like(labels), rng)
        owners = np.empty_like(labels)
        owners[deck] = np.resize(rng.permutation(num_clients), len(deck))
        return gathered(owners, num_clients, rng)


@PARTITIONS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class DirichletLabels(Partition):
    """Each class is divided among the clients in proportions drawn from Dirichlet(alpha).

    The usual label skew of the field's libraries and benchmarks: for every class c,
    ``p_c ~ Dir_K(alpha)`` and client k gets ``p_ck n_c`` of its samples. Sizes differ too.

    Args:
        alpha: the smaller, the fewer labels a client has; 100 is nearly i.i.d.
        min_samples: the least that a client has. Clients below it get random samples of the
            others, in proportion to what those have above it; drawing again until all have
            enough, as is common, takes for ever with many clients.

    References:
        M. Yurochkin et al., Bayesian Nonparametric Federated Learning of Neural Networks, ICML
        2019; Q. Li et al., Federated Learning on Non-IID Data Silos, ICDE 2022.
    """

    name: ClassVar[str] = "dirichlet-labels"

    alpha: float = 0.5
    min_samples: int = 1

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.alpha < math.inf, self, "alpha", "a number > 0")
        require(self.min_samples >= 1, self, "min_samples", "an integer >= 1")

    def split(self, data: DataSet, num_clients: int, rng: Generator) -> Shares:
        """Divide the samples."""
        check_enough(self, data, num_clients, least=self.min_samples)
        check_labels(self, data, write=ANY_DATA)
        labels = labels_of(data)
        totals = np.bincount(labels, minlength=data.num_classes)
        shares = rng.dirichlet(np.full(num_clients, self.alpha), size=len(totals)).T
        counts = apportioned(shares, totals, rng)
        sizes = raised(counts.sum(axis=1), self.min_samples, rng)
        owners = resized(dealt(labels, counts, rng), sizes, rng)
        return gathered(owners, num_clients, rng)


@PARTITIONS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class DirichletSizes(Partition):
    """Sizes drawn from Dirichlet(alpha), and a dominant label for each client.

    PAUSE's non-i.i.d. case (section V.A): "the data quantities are sampled from a Dirichlet
    distribution with parameter α, where each user exhibits a dominant label comprising
    approximately a quarter of the data". The other labels share the rest equally. Every label
    dominates equally many clients (up to one); approximately, because all samples are dealt.

    Args:
        alpha: of the sizes. PAUSE: 3, in its first large experiment 2.
        dominant_share: of a client's samples that have its dominant label; 0 for no such label.
        smallest: no client has less than this part of the average size. Not in the paper, whose
            authors' code has 1/3.

    References:
        O. Peleg, N. Lang, D. Ben Ami, S. Rini, N. Shlezinger, K. Cohen, PAUSE: Low-Latency and
        Privacy-Aware Active User Selection for Federated Learning.
    """

    name: ClassVar[str] = "dirichlet-sizes"

    alpha: float = 3.0
    dominant_share: float = 0.25
    smallest: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.alpha < math.inf, self, "alpha", "a number > 0")
        require(0 <= self.dominant_share <= 1, self, "dominant_share", "a number in [0, 1]")
        require(0 <= self.smallest <= 1, self, "smallest", "a number in [0, 1]")

    def split(self, data: DataSet, num_clients: int, rng: Generator) -> Shares:
        """Divide the samples."""
        check_enough(self, data, num_clients)
        num_samples = len(data.train_targets)
        least = max(1, int(self.smallest * num_samples / num_clients))
        shares = rng.dirichlet(np.full(num_clients, self.alpha))
        sizes = sizes_by(shares, num_samples, least=least, rng=rng)
        if self.dominant_share == 0:
            return gathered(dealt_by_size(data, sizes, None, rng), num_clients, rng)
        check_labels(self, data, write="dominant_share = 0")
        num_labels = len(np.unique(data.train_targets))
        if self.dominant_share * num_labels < 1:
            raise ConfigError(
                f"DirichletSizes: dominant_share = {self.dominant_share} dominates nothing among "
                f"{num_labels} labels; write more than {1 / num_labels:.3g}, or 0 for none",
                key=("dominant_share",),
            )
        others = (1 - self.dominant_share) / max(num_labels - 1, 1)
        mix = np.full((num_clients, num_labels), others)
        dominant = rng.permutation(num_clients) % num_labels
        mix[np.arange(num_clients), dominant] = self.dominant_share
        return gathered(dealt_by_size(data, sizes, mix, rng), num_clients, rng)


@PARTITIONS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Shards(Partition):
    """Samples are sorted by label and cut into shards; a client gets a few, of different labels.

    COCS: "each clients only contains samples of only two labels". McMahan et al. cut the sorted
    samples into equal shards, which may straddle two labels, and deal them at random, by which a
    client may have one label or four. Here a label is cut into shards of its own, as many as its
    number of samples deserves, and every client has exactly ``labels_per_client`` labels, all
    such deals being equally likely. Sizes are nearly equal.

    Args:
        labels_per_client: COCS, McMahan et al.: 2.

    References:
        H. B. McMahan et al., Communication-Efficient Learning of Deep Networks from
        Decentralized Data, AISTATS 2017; Z. Qu et al., Context-Aware Online Client Selection for
        Hierarchical Federated Learning (COCS).
    """

    name: ClassVar[str] = "shards"

    labels_per_client: int = 2

    def __post_init__(self) -> None:
        check_types(self)
        require(self.labels_per_client >= 1, self, "labels_per_client", "an integer >= 1")

    def split(self, data: DataSet, num_clients: int, rng: Generator) -> Shares:
        """Divide the samples."""
        check_enough(self, data, num_clients)
        check_labels(self, data, write=ANY_DATA)
        _, labels, totals = np.unique(data.train_targets, return_inverse=True, return_counts=True)
        cuts = self._shards_by_label(totals, num_clients)
        clients = dealt_shards(cuts, num_clients, self.labels_per_client, rng)
        shard_in_label = places(totals) * np.repeat(cuts, totals) // np.repeat(totals, totals)
        shards = np.repeat(np.cumsum(cuts) - cuts, totals) + shard_in_label
        owners = np.empty_like(labels)
        owners[sorted_by(labels, rng)] = clients[shards]
        return gathered(owners, num_clients, rng)

    def _shards_by_label(self, totals: IntArray, num_clients: int) -> IntArray:
        """Into how many shards each label is cut: at most one for each client or sample."""
        num_shards = num_clients * self.labels_per_client
        most = np.minimum(totals, num_clients)
        if len(totals) > num_shards:
            raise ConfigError(
                f"Shards: {num_clients} clients with {self.labels_per_client} labels each cannot "
                f"hold all {len(totals)} labels; write labels_per_client >= "
                f"{-(-len(totals) // num_clients)}, or num_clients >= "
                f"{-(-len(totals) // self.labels_per_client)}",
                key=("labels_per_client",),
            )
        if most.sum() < num_shards:
            raise ConfigError(
                f"Shards: {num_clients:,} clients cannot have {self.labels_per_client} different "
                f"labels each, with {len(totals)} labels among {totals.sum():,} samples; write "
                f"labels_per_client <= {most.sum() // num_clients}, or fewer clients",
                key=("labels_per_client",),
            )
        deserved = np.rint(num_shards * (totals / totals.sum())).astype(np.int64)
        cuts: IntArray = np.clip(deserved, 1, most)
        while missing := num_shards - int(cuts.sum()):
            step = np.sign(missing)
            can_change = np.flatnonzero(cuts < most if step > 0 else cuts > 1)
            # Cut where shards are largest, merge where they are smallest.
            size = totals[can_change] / cuts[can_change]
            cuts[can_change[np.argsort(-step * size, kind="stable")[: abs(missing)]]] += step
        return cuts


@PARTITIONS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class ExponentialQuality(Partition):
    """Few clients have much data, of different quality: BSFL's non-i.i.d. case.

    Sizes are ``∝ exp(-decay i / K)`` over a random order of clients; the quality q of a client's
    data is uniform between ``lowest_quality`` and 1, and its inputs carry Gaussian noise of
    standard deviation ``noise (1 - q)``. The numbers are those of the authors' code.

    Args:
        decay: how fast sizes fall. Authors' code: 2.
        lowest_quality: Authors' code: 0.5.
        noise: in the inputs of a client of quality 0. Authors' code: 1/4, of pixels in [0, 1].
        label_alpha: the mix of labels in each client's data is Dirichlet(label_alpha), as far as
            all samples being dealt allows; None for the same mix everywhere. BSFL has "a
            different distribution of images among the ten classes" and does not say which.

    References:
        D. Ben Ami, K. Cohen, Q. Zhao, Client Selection for Generalization in Accelerated
        Federated Learning: A Multi-Armed Bandit Approach, IEEE Access 13, 2025, section VI.
    """

    name: ClassVar[str] = "exponential-quality"

    decay: float = 2.0
    lowest_quality: float = 0.5
    noise: float = 0.25
    label_alpha: float | None = None

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.decay <= 100, self, "decay", "a number in [0, 100]")
        require(0 <= self.lowest_quality <= 1, self, "lowest_quality", "a number in [0, 1]")
        require(0 <= self.noise < math.inf, self, "noise", "a number >= 0")
        alpha = self.label_alpha
        require(alpha is None or 0 < alpha < math.inf, self, "label_alpha", "a number > 0")

    def split(self, data: DataSet, num_clients: int, rng: Generator) -> Shares:
        """Deal the samples; the noise itself is added when the data is federated."""
        check_enough(self, data, num_clients)
        weights, quality = exponential_data(
            num_clients, decay=self.decay, lowest_quality=self.lowest_quality, rng=rng
        )
        sizes = sizes_by(weights, len(data.train_targets), least=1, rng=rng)
        mix = None
        if self.label_alpha is not None:
            check_labels(self, data, write="no label_alpha")
            num_labels = len(np.unique(data.train_targets))
            mix = rng.dirichlet(np.full(num_labels, self.label_alpha), size=num_clients)
        noise_sd = self.noise * (1 - quality) if self.noise else None
        owners = dealt_by_size(data, sizes, mix, rng)
        return gathered(owners, num_clients, rng, quality=quality, noise_sd=noise_sd)


@PARTITIONS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Natural(Partition):
    """A client is a writer, subject or speaker, where the data knows them.

    With fewer clients than owners, some owners are drawn, and the samples of the others are left
    out.
    """

    name: ClassVar[str] = "natural"

    def split(self, data: DataSet, num_clients: int, rng: Generator) -> Shares:
        """Divide the samples."""
        check_enough(self, data, num_clients)
        if data.train_owners is None:
            raise ConfigError(
                "Natural: the data does not say who owns its samples; write another partition, "
                "for example dirichlet-labels"
            )
        found, owners = np.unique(data.train_owners, return_inverse=True)
        if num_clients > len(found):
            raise ConfigError(
                f"Natural: {num_clients:,} clients, but the data has {len(found):,} owners; "
                f"write num_clients <= {len(found)}"
            )
        client_of = np.full(len(found), -1)
        drawn = rng.choice(len(found), num_clients, replace=False)
        client_of[np.sort(drawn)] = np.arange(num_clients)
        return gathered(client_of[owners], num_clients, rng)


@PARTITIONS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled(Partition):
    """Each client draws its own samples at random, as many as the world says that it has.

    MAB-CS's data (section IV.B): sizes differ from client to client and decide how long each
    computes. A client draws without replacement, but two clients may draw the same sample; one that
    has more than there is gets all of it.

    References:
        N. Yoshida, T. Nishio, M. Morikura, K. Yamamoto, MAB-based Client Selection for Federated
        Learning with Uncertain Resources in Mobile Networks, GLOBECOM Workshops 2020.
    """

    name: ClassVar[str] = "sampled"

    def split(
        self,
        data: DataSet,
        num_clients: int,
        rng: Generator,
        *,
        num_samples: IntArray | None = None,
    ) -> Shares:
        """Draw for each client ``num_samples`` of the samples."""
        if num_samples is None:
            raise ConfigError(
                "Sampled: the world does not say how much data each client has; choose a world "
                "that does, or another partition, for example iid"
            )
        if len(num_samples) != num_clients or not (num_samples >= 1).all():
            raise ConfigError(
                f"Sampled: num_samples is {num_samples!r}, expected an integer >= 1 for each of "
                f"{num_clients:,} clients"
            )
        there = len(data.train_targets)
        sizes = np.minimum(num_samples, there)
        rows = np.concatenate([rng.choice(there, size, replace=False) for size in sizes.tolist()])
        return Shares(rows=rows, offsets=np.concatenate([[0], np.cumsum(sizes)]))


def split(
    partition: Partition,
    data: DataSet,
    num_clients: int,
    *,
    seed: int,
    num_samples: IntArray | None = None,
) -> Shares:
    """Divide ``data`` among the clients.

    ``num_samples`` [K] is the size of each client's data where the world decides it; only for
    :class:`Sampled`.
    """
    rng = stream(seed, PARTITION)
    if isinstance(partition, Sampled):
        return partition.split(data, num_clients, rng, num_samples=num_samples)
    if num_samples is not None:
        raise ConfigError(
            "both the world (data) and the training (partition) say how much data each client "
            'has: remove data from [world], or write partition = "sampled"',
            key=("world", "data"),
        )
    return partition.split(data, num_clients, rng)

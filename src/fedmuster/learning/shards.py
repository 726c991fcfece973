"""A few labels for each client."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import IntArray
from fedmuster.learning.dealing import (
    ANY_DATA,
    check_enough,
    check_labels,
    gathered,
    places,
    sorted_by,
)
from fedmuster.learning.records import DataSet, Shares

_SWAPS_PER_SHARD = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Shards:
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
        """Deal the samples."""
        check_enough(self, data, num_clients)
        check_labels(self, data, write=ANY_DATA)
        _, labels, totals = np.unique(data.train_targets, return_inverse=True, return_counts=True)
        cuts = self._shards_by_label(totals, num_clients)
        clients = _random_deal(cuts, num_clients, self.labels_per_client, rng)
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
        cuts: IntArray = np.clip(
            np.rint(num_shards * (totals / totals.sum())).astype(np.int64), 1, most
        )
        while missing := num_shards - int(cuts.sum()):
            step = np.sign(missing)
            can_change = np.flatnonzero(cuts < most if step > 0 else cuts > 1)
            # Cut where shards are largest, merge where they are smallest.
            size = totals[can_change] / cuts[can_change]
            cuts[can_change[np.argsort(-step * size, kind="stable")[: abs(missing)]]] += step
        return cuts


def _random_deal(cuts: IntArray, num_clients: int, each: int, rng: Generator) -> IntArray:
    """The client of each shard (in the order of labels), so that all have ``each`` shards of
    different labels.

    Dealing one by one from the sorted deck gives different labels, for no label has more shards
    than there are clients; then random pairs of clients swap random shards wherever that leaves
    both with different labels. The chain is symmetric, so all deals become equally likely.
    """
    hands = np.arange(num_clients * each).reshape(each, num_clients).T
    label_of = np.repeat(np.arange(len(cuts)), cuts)
    half = num_clients // 2
    for _ in range(_SWAPS_PER_SHARD * each):
        order = rng.permutation(num_clients)
        left, right = order[:half], order[half : 2 * half]
        i, j = rng.integers(each, size=(2, half))
        mine, theirs = hands[left, i], hands[right, j]
        clash = (label_of[hands[left]] == label_of[theirs][:, None]).any(axis=1) | (
            label_of[hands[right]] == label_of[mine][:, None]
        ).any(axis=1)
        hands[left, i] = np.where(clash, mine, theirs)
        hands[right, j] = np.where(clash, theirs, mine)
    clients = np.empty(num_clients * each, dtype=np.int64)
    clients[hands] = np.arange(num_clients)[:, None]
    return clients

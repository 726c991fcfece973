"""Dealing samples to clients so that sizes and labels come out as wanted.

While samples are dealt, ``owners[i]`` is the client that gets sample i, or -1 for nobody.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import is_integer
from fedmuster.training.training_records import DataSet, Shares

ANY_DATA = "another partition, for example exponential-quality or iid"
_FITTING_PASSES = 50


def check_enough(owner: object, data: DataSet, num_clients: int, *, least: int = 1) -> None:
    """Complain unless each of ``num_clients`` can have at least ``least`` of the samples."""
    who, num_samples = type(owner).__name__, len(data.train_targets)
    if not is_integer(num_clients, least=1):
        raise ConfigError(f"{who}: num_clients = {num_clients!r}, expected an integer >= 1")
    if num_clients * least > num_samples:
        each = "1 sample" if least == 1 else f"{least} samples"
        raise ConfigError(
            f"{who}: {num_clients:,} clients with at least {each} each need "
            f"{num_clients * least:,} samples, but the data has {num_samples:,}; write "
            f"num_clients <= {num_samples // least}"
            + (f", or min_samples <= {num_samples // num_clients}" if least > 1 else "")
        )


def check_labels(owner: object, data: DataSet, *, write: str) -> None:
    """Complain unless the samples have class labels."""
    if data.num_classes == 0:
        raise ConfigError(
            f"{type(owner).__name__}: a regression has no labels to divide by; write {write}"
        )


def labels_of(data: DataSet) -> IntArray:
    """The class labels; in a regression 0 for every sample."""
    if data.num_classes:
        return np.asarray(data.train_targets, dtype=np.int64)
    return np.zeros(len(data.train_targets), dtype=np.int64)


def sorted_by(groups: IntArray, rng: Generator) -> IntArray:
    """All samples by increasing group, in random order within each."""
    order = rng.permutation(len(groups))
    return order[np.argsort(groups[order], kind="stable")]


def places(sizes: IntArray) -> IntArray:
    """0, 1, … within each of the groups of these sizes, one group after the other.

    Example:
        >>> places(np.array([2, 0, 3]))
        array([0, 1, 0, 1, 2])
    """
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def apportioned(weights: NDArray[np.generic], total: IntArray | int, rng: Generator) -> IntArray:
    """Whole numbers in proportion to ``weights`` along axis 0, with the sum ``total``.

    Each is less than one away from its exact part, and equal to it on average (systematic
    rounding). Where all weights are 0, all count alike.

    Example:
        >>> apportioned(np.array([1.0, 2.0, 5.0]), 16, np.random.default_rng(1))
        array([ 2,  4, 10])
    """
    running = np.cumsum(np.where(weights.sum(axis=0) > 0, weights, 1), axis=0, dtype=np.float64)
    marks = np.floor(running * total / running[-1] + rng.random(np.shape(total)))
    marks[-1] = total
    parts: IntArray = np.diff(np.minimum(marks, total), axis=0, prepend=0).astype(np.int64)
    return parts


def raised(sizes: IntArray, least: int, rng: Generator) -> IntArray:
    """The sizes with nobody below ``least``; the others pay in proportion to what they have more.

    Example:
        >>> raised(np.array([0, 3, 12, 21]), 2, np.random.default_rng(1))
        array([ 2,  3, 11, 20])
    """
    spare = np.maximum(sizes - least, 0)
    missing = int(np.maximum(least - sizes, 0).sum())
    return np.maximum(sizes, least) - apportioned(spare, missing, rng)


def fitted(weights: FloatArray, sizes: IntArray, totals: IntArray) -> FloatArray:
    """[K, C] ``weights`` scaled by row and column so that the rows add up to ``sizes`` and the
    columns to ``totals`` (iterative proportional fitting, Deming and Stephan 1940).

    Nearly so after a fixed number of passes, or as far as zeros among the weights allow.
    """
    fit = weights.astype(np.float64)
    for _ in range(_FITTING_PASSES):
        for axis, wanted in ((0, totals), (1, sizes)):
            found = fit.sum(axis=axis)
            factor = np.divide(wanted, found, out=np.zeros(len(found)), where=found > 0)
            fit *= np.expand_dims(factor, axis)
    return fit


def dealt(labels: IntArray, counts: IntArray, rng: Generator) -> IntArray:
    """The owners when client k gets ``counts[k, c]`` random samples of label c, all in all."""
    num_clients, num_labels = counts.shape
    owners = np.empty(len(labels), dtype=np.int64)
    clients = np.tile(np.arange(num_clients), num_labels)
    owners[sorted_by(labels, rng)] = np.repeat(clients, counts.T.ravel())
    return owners


def resized(owners: IntArray, sizes: IntArray, rng: Generator) -> IntArray:
    """The owners after random samples of those who have too many moved to those with too few."""
    held = np.bincount(owners, minlength=len(sizes))
    samples = sorted_by(owners, rng)
    moving = samples[places(held) >= np.repeat(sizes, held)]
    moved = owners.copy()
    moved[rng.permutation(moving)] = np.repeat(np.arange(len(sizes)), np.maximum(sizes - held, 0))
    return moved


def gathered(
    owners: IntArray,
    num_clients: int,
    rng: Generator,
    *,
    quality: FloatArray | None = None,
    noise_sd: FloatArray | None = None,
) -> Shares:
    """Each client's samples in one piece, in random order."""
    samples = sorted_by(owners, rng)
    rows = samples[np.count_nonzero(owners < 0) :]
    held = np.bincount(owners[rows], minlength=num_clients)
    offsets = np.concatenate([[0], np.cumsum(held)])
    return Shares(rows=rows, offsets=offsets, quality=quality, noise_sd=noise_sd)


# A few labels for each client.

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

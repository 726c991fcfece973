"""Dealing samples to clients so that sizes and labels come out as wanted.

While samples are dealt, ``owners[i]`` is the client that gets sample i, or -1 for none.
"""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.errors import ConfigError
from fedmuster.core.records import is_integer
from fedmuster.training.training_records import DataSet, Shares

ANY_DATA = "another partition, for example exponential-quality or iid"
_FITTING_PASSES = 50
_SWAPS_PER_SHARD = 30


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
    """The sizes, none below ``least``; larger ones give in proportion to what exceeds it."""
    spare = np.maximum(sizes - least, 0)
    missing = int(np.maximum(least - sizes, 0).sum())
    return np.maximum(sizes, least) - apportioned(spare, missing, rng)


def fitted(weights: FloatArray, sizes: IntArray, totals: IntArray) -> FloatArray:
    """[K, C] ``weights``, scaled so that rows add up to ``sizes`` and columns to ``totals``.

    Iterative proportional fitting (Deming and Stephan 1940): nearly so after a fixed number of
    passes, or as far as zeros among the weights allow.
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
    """The owners after random samples moved from clients with too many to those with too few."""
    held = np.bincount(owners, minlength=len(sizes))
    samples = sorted_by(owners, rng)
    moving = samples[places(held) >= np.repeat(sizes, held)]
    moved = owners.copy()
    moved[rng.permutation(moving)] = np.repeat(np.arange(len(sizes)), np.maximum(sizes - held, 0))
    return moved


def sizes_by(weights: FloatArray, num_samples: int, *, least: int, rng: Generator) -> IntArray:
    """Sizes in proportion to ``weights``, each at least ``least``, with the sum ``num_samples``."""
    return raised(apportioned(weights, num_samples, rng), least, rng)


def dealt_by_size(
    data: DataSet, sizes: IntArray, mix: FloatArray | None, rng: Generator
) -> IntArray:
    """The owners when client k gets ``sizes[k]`` samples.

    ``mix[k]`` are the approximate shares of the labels that occur; None for samples of any label.
    """
    if mix is None:
        labels, mix = np.zeros(len(data.train_targets), dtype=np.int64), np.ones((len(sizes), 1))
    else:
        _, labels = np.unique(data.train_targets, return_inverse=True)
    totals = np.bincount(labels)
    counts = apportioned(fitted(mix * sizes[:, None], sizes, totals), totals, rng)
    return resized(dealt(labels, counts, rng), sizes, rng)


def dealt_shards(cuts: IntArray, num_clients: int, each: int, rng: Generator) -> IntArray:
    """The client of each shard (sorted by label); all get ``each`` shards of different labels.

    Dealing one by one from the sorted deck gives different labels, for no label has more shards
    than there are clients; ``cuts`` counts the shards of each label. Then random pairs of clients
    swap random shards wherever that leaves both with different labels. The chain is symmetric, so
    all deals become equally likely.
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

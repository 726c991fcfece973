"""Which samples each client trains on, in which order.

The order follows from (seed, round, client, epoch) alone, by a counter-based hash (splitmix64),
so any engine, with any number of workers, on any subset of the cohort, sees the same batches.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.records import IntArray
from fedmuster.learning.local import LocalSGD

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
    local: LocalSGD, *, seed: int, round_number: int, clients: IntArray, num_samples: IntArray
) -> Batches:
    """What each of ``clients`` (with ``num_samples`` samples each) trains on in a round.

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
    seed: int, round_number: int, clients: IntArray, num_samples: IntArray, epoch: int
) -> IntArray:
    """[n, longest]: a permutation of each client's samples, -1 beyond them."""
    key = np.zeros(len(clients), dtype=np.uint64)
    for part in (
        np.uint64(seed % 2**64),
        np.uint64(round_number),
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

"""The only source of randomness: ``(seed, stream name, *key) -> Generator``.

No object stores a generator. Code that needs random numbers for round ``t`` asks for the stream of
round ``t``, so a resumed run repeats the same bits although no generator was saved.
"""

from typing import Final
from zlib import crc32

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray

POLICY: Final = "policy"
LIVENESS: Final = "liveness"
"""Which newcomers and resting clients a selector lets a policy choose from."""

WORLD: Final = "world"
MOBILITY: Final = "mobility"
AVAILABILITY: Final = "availability"
FORECAST: Final = "forecast"
JUDGE: Final = "judge"
LAYOUT: Final = "layout"
"""What a world fixes for the whole run: the speed and the cluster of each client."""

DATA: Final = "data"
SUBSET: Final = "data-subset"
PARTITION: Final = "partition"
NOISE: Final = "noise"
MODEL: Final = "model"
TRAIN: Final = "train"
LOSSES: Final = "losses"
TEST: Final = "test"
PRIVACY: Final = "privacy"
SKETCH: Final = "sketch"
ADVERSARIES: Final = "adversaries"


def stream(seed: int, name: str, *key: int) -> np.random.Generator:
    """The random stream of ``name`` and ``key`` (all non-negative) under ``seed``.

    Example:
        >>> stream(7, POLICY, 3).integers(100) == stream(7, POLICY, 3).integers(100)
        np.True_
        >>> stream(7, POLICY, 3).integers(10**9) == stream(7, WORLD, 3).integers(10**9)
        np.False_
    """
    # crc32, not hash(): a name must mean the same stream in every process.
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(crc32(name.encode()), *key)))
    )


def exponential_data(
    num_clients: int, *, decay: float, lowest_quality: float, rng: Generator
) -> tuple[FloatArray, FloatArray]:
    """[K] relative sizes, ``exp(-decay i / K)`` over a random order of clients, and [K] qualities,
    uniform between ``lowest_quality`` and 1.

    Example:
        >>> sizes, quality = exponential_data(
        ...     4, decay=2.0, lowest_quality=0.5, rng=np.random.default_rng(1))
        >>> np.sort(sizes).round(3)
        array([0.223, 0.368, 0.607, 1.   ])
        >>> bool(quality.min() >= 0.5)
        True
    """
    sizes = np.exp(-decay * rng.permutation(num_clients) / num_clients)
    return sizes, rng.uniform(lowest_quality, 1.0, num_clients)

"""Updates made short, so that a server can compare the directions of many of them."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray, is_integer
from fedmuster.core.streams import SKETCH, stream

_BLOCK: Final = 1 << 17
"""Coordinates that share a random stream: a sketch changes with this number."""


def sketch(deltas: NDArray[np.floating], *, size: int, seed: int) -> FloatArray:
    """[n, size], a random projection of each row that keeps angles.

    A count-sketch (Charikar, Chen and Farach-Colton 2002): every coordinate is added to one of
    ``size`` sums, with a sign, both drawn at random, but the same in all rows and at every call
    with this seed. So the sketch is linear, and scalar products are right in expectation; the
    cosine of two rows, c, comes out with a standard deviation of about ``(1 - c²) / sqrt(size)``
    where no few coordinates outweigh all others, and of at most about ``sqrt(2 / size)`` always.

    Args:
        deltas: [n, d].
        size: how many numbers to keep of each row.
        seed: of the projection.

    Example:
        >>> rows = np.random.default_rng(1).normal(size=(2, 10_000))
        >>> short = sketch(rows, size=64, seed=0)
        >>> short.shape, bool(np.allclose(sketch(rows[:1] - rows[1:], size=64, seed=0),
        ...                               short[:1] - short[1:]))
        ((2, 64), True)
    """
    if deltas.ndim != 2:
        raise DataError(f"sketch: deltas has shape {deltas.shape}, expected [n, d]: a row a client")
    if not is_integer(size, least=1):
        raise DataError(f"sketch: size is {size!r}, expected an integer >= 1")
    # Sums of what counts with + stand before those of what counts with -.
    sums = np.zeros((len(deltas), 2 * size))
    length = deltas.shape[1]
    for number, begin in enumerate(range(0, length, _BLOCK)):
        end = min(begin + _BLOCK, length)
        place = stream(seed, SKETCH, number).integers(2 * size, size=end - begin)
        for row, delta in zip(sums, deltas, strict=True):
            row += np.bincount(place, weights=delta[begin:end], minlength=2 * size)
    short: FloatArray = sums[:, :size] - sums[:, size:]
    return short

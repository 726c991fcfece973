"""Work over a million clients without asking the system for memory every time.

Fresh arrays of many megabytes are mapped, zeroed page by page and given back on every call, which
costs several times what is computed in them.
"""

import threading
from collections.abc import Callable, Iterator

import numpy as np

from fedmuster.core.records import FloatArray, IntArray

_BLOCK = 1 << 15  # a few arrays of this length stay in cache
_local = threading.local()


def blocks(length: int) -> Iterator[slice]:
    """Slices that together cover ``length`` entries, each small enough for the cache."""
    return (slice(start, start + _BLOCK) for start in range(0, length, _BLOCK))


def scratch(name: str, length: int) -> FloatArray:
    """An array of unknown content that is the same at the next call of this thread.

    Only for values that are used up before the caller returns.
    """
    if length < _BLOCK:
        return np.empty(length)
    kept: dict[str, FloatArray] = _local.__dict__
    if name not in kept or len(kept[name]) < length:
        kept[name] = np.empty(length)
    return kept[name][:length]


def tabulate(
    count: IntArray, function: Callable[[IntArray], FloatArray], out: FloatArray | None = None
) -> FloatArray:
    """``function(count)``; of many clients evaluated once for each possible count.

    The result may be in ``out``, but need not be.

    Example:
        >>> count = np.arange(100_000) % 3
        >>> tabulate(count, lambda c: 2.0**c)[:4]
        array([1., 2., 4., 1.])
    """
    if len(count) < _BLOCK or (top := int(count.max())) >= len(count):
        return function(count)
    # "clip" spares a check of every index; there is nothing to clip.
    return np.take(function(np.arange(top + 1)), count, out=out, mode="clip")

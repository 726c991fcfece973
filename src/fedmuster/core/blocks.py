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
    """``function(count)``, evaluated once for each possible count where those are fewer.

    Example:
        >>> tabulate(np.array([2, 0, 2, 1, 1]), lambda c: c**0.5, np.empty(5)).round(1)
        array([1.4, 0. , 1.4, 1. , 1. ])
    """
    result = np.empty(len(count)) if out is None else out
    if len(count) and (top := int(count.max())) < len(count):
        # "clip" spares a check of every index; there is nothing to clip.
        return np.take(function(np.arange(top + 1)), count, out=result, mode="clip")
    result[:] = function(count)
    return result

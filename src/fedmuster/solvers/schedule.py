"""Uploads one after the other: how long a round takes, and the cohorts of FedCS and MAB-CS.

A round begins with the distribution of the model, which takes as long as the longest upload of
the cohort (MAB-CS Eq. 2). Then all clients update the model in parallel, and each uploads it when
it is ready and all clients before it are done. If the clients so far are done at time ``e`` after
the distribution, the next one is done at ``e' = max(e, t_UD) + t_UL``: Eq. 1 without the time of
the distribution.
"""

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.errors import DataError

_FEW = 1_000
"""At most this number of candidates is examined faster than sifted."""
_STRIDES = (31, 1)
"""Sifted coarsely with the help of a sample, then finely. Odd, as periods of two are common."""


def contenders(first: FloatArray, second: FloatArray, size: int, rng: Generator) -> IntArray:
    """All candidates that fewer than ``size`` others precede, and perhaps some more.

    Returns positions in the order of ``first``, then of ``second``, then of chance (``rng``). Both
    are finite; ``size`` is 1 … the number of candidates.
    """
    best = np.flatnonzero((first == first.min()) & (second == second.min()))
    if len(best) >= size:  # as at first, when nothing is known of any client
        return rng.choice(best, size, replace=False)
    near = rng.permutation(_sift(first, second, size))
    order = near[np.lexsort((second[near], first[near]))]
    return order if len(order) <= _FEW else order[_staircase(second[order], size)]


def _sift(first: FloatArray, second: FloatArray, size: int) -> IntArray:
    """All but those that m candidates near the best corner precede; without sorting."""
    near, x, y = np.arange(len(first)), first, second
    for stride in _STRIDES:
        if len(near) <= _FEW or len(near) < stride * size:
            continue  # not worth it, or not m candidates in a sample
        a, b = _corner(x[::stride], y[::stride], size)
        # A candidate at (a, b) itself may be one of the m, or equal to one.
        kept = np.flatnonzero((x < a) | (y < b) | ((x == a) & (y == b)))
        near, x, y = near[kept], x[kept], y[kept]
    return near


def _corner(x: FloatArray, y: FloatArray, size: int) -> tuple[float, float]:
    """The upper right corner of a box that holds m candidates, few of them alone in x or y."""
    distance = np.maximum(_scaled(x), _scaled(y))
    inside = distance <= np.partition(distance, size - 1)[size - 1]
    return x[inside].max(), y[inside].max()


def _scaled(values: FloatArray) -> FloatArray:
    """From 0 on, with mean 1, so that both respects count alike. (Any scale would be right.)"""
    least = values.min()
    spread = values.mean() - least
    return np.asarray((values - least) / (spread if spread > 0 else 1.0))


def _staircase(values: FloatArray, size: int) -> IntArray:
    """Positions of the first m and of all values smaller than the m-th smallest before them.

    The m-th smallest is kept up to date at powers of two only: a few steps, and a few more pass.
    """
    kept = [np.arange(size)]
    smallest = values[:size]
    start = size
    while start < len(values):
        rows = start + np.flatnonzero(values[start : 2 * start] < smallest.max())
        kept.append(rows)
        smallest = np.partition(np.concatenate((smallest, values[rows])), size - 1)[:size]
        start *= 2
    return np.concatenate(kept)


def finish_seconds(update_seconds: FloatArray, upload_seconds: FloatArray) -> FloatArray:
    """When each client has uploaded, counted from the start of the round; the last is its end.

    The clients are in the order of their uploads; their times to train and to upload are finite.

    Example:
        >>> finish_seconds(np.array([3.0, 1.0, 9.0]), np.array([2.0, 4.0, 1.0]))
        array([ 9., 13., 14.])
    """
    _check("finish_seconds", update_seconds, upload_seconds)
    distribution = upload_seconds.max(initial=0.0)  # Eq. 2
    return np.asarray(distribution + _uploaded(update_seconds, upload_seconds))


def increments(update_seconds: FloatArray, upload_seconds: FloatArray) -> FloatArray:
    """By how much each client, in the order of their uploads, prolonged the round (Eq. 1).

    They add up to the last of :func:`finish_seconds`.

    Example:
        >>> increments(np.array([3.0, 1.0, 9.0]), np.array([2.0, 4.0, 1.0]))
        array([7., 6., 1.])
    """
    _check("increments", update_seconds, upload_seconds)
    distribution = np.maximum.accumulate(np.maximum(upload_seconds, 0.0))  # Eq. 2
    return np.diff(distribution + _uploaded(update_seconds, upload_seconds), prepend=0.0)


def added_seconds(
    update_seconds: FloatArray,
    upload_seconds: FloatArray,
    *,
    elapsed: float = 0.0,
    distribution: float = 0.0,
) -> FloatArray:
    """``T_inc(S, k)`` of each candidate (Eq. 1); by default for the first of a schedule.

    ``elapsed`` is from the end of the distribution to the last upload of S, ``distribution`` how
    long the distribution takes for S.

    Example:
        >>> added_seconds(np.array([3.0, 1.0]), np.array([2.0, 4.0]))
        array([7., 9.])
    """
    # The terms of Eq. 1 one after the other, in place: a million candidates are many.
    added = np.maximum(upload_seconds - distribution, 0.0)  # a longer distribution
    added += np.maximum(update_seconds - elapsed, 0.0)  # a pause until the update is ready
    added += upload_seconds
    return added  # Eq. 1


def greedy_schedule(
    update_seconds: FloatArray, upload_seconds: FloatArray, size: int, rng: Generator
) -> IntArray:
    """The ``size`` candidates that Algorithm 1 chooses with ``f = -T_inc``, in the order of choice.

    Between candidates that prolong the round alike, the one with the shorter upload goes first,
    then the one with the shorter update; ``rng`` decides between equals. Times are finite and may
    be negative (Element-wise MAB-CS is optimistic); a distribution takes no negative time
    nevertheless.

    Example:
        >>> update, upload = np.array([3.0, 1.0, 9.0]), np.array([2.0, 4.0, 1.0])
        >>> greedy_schedule(update, upload, 2, np.random.default_rng(0))
        array([0, 2])
    """
    _check("greedy_schedule", update_seconds, upload_seconds)
    if not 0 <= size <= len(upload_seconds):
        raise DataError(
            f"greedy_schedule: size is {size}, expected 0 … {len(upload_seconds)}, the number of "
            "candidates"
        )
    if size == 0:
        return np.empty(0, dtype=np.int64)
    some = contenders(upload_seconds, update_seconds, size, rng)
    return some[_algorithm_1(update_seconds[some], upload_seconds[some], size)]


def _algorithm_1(update: FloatArray, upload: FloatArray, size: int) -> IntArray:
    """Algorithm 1 on candidates in order of upload and update, which is also that of ties.

    Changes ``update``.
    """
    last_ready = update.max()
    chosen = np.empty(size, dtype=np.int64)
    elapsed = distribution = 0.0
    first = 0  # of the candidates that are left
    for step in range(size):
        while update[first] == np.inf:
            first += 1
        if elapsed >= last_ready and upload[first] >= 0.0:
            # From now on no upload waits for an update, and the shortest upload is best.
            chosen[step:] = np.flatnonzero(update < np.inf)[: size - step]
            break
        added = added_seconds(update, upload, elapsed=elapsed, distribution=distribution)
        best = int(added.argmin())
        chosen[step] = best
        elapsed = max(elapsed, float(update[best])) + float(upload[best])  # Eq. 1
        distribution = max(distribution, float(upload[best]))  # Eq. 2
        update[best] = np.inf  # so that it is not chosen again
    return chosen


def _uploaded(update: FloatArray, upload: FloatArray) -> FloatArray:
    """``e' = max(e, t_UD) + t_UL`` for one client after the other, from e = 0.

    Unrolled: client i is done when all uploads from some j <= i on followed each other without a
    pause, after j was ready (or from 0 on).
    """
    done = np.cumsum(upload)
    pause = np.maximum.accumulate(np.maximum(update - (done - upload), 0.0))
    return np.asarray(done + pause)


def _check(who: str, update: FloatArray, upload: FloatArray) -> None:
    if update.ndim != 1 or update.shape != upload.shape:
        raise DataError(
            f"{who}: update_seconds has shape {update.shape} and upload_seconds {upload.shape}, "
            "expected one number for each client in both"
        )
    if not (np.isfinite(update).all() and np.isfinite(upload).all()):
        raise DataError(f"{who}: update_seconds and upload_seconds must be finite")

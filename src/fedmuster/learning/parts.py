"""Updates that are trained in parts, because clients do not all start from the same model."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.learning.records import Updates


def joined(clients: IntArray, parts: Iterable[tuple[IntArray, Updates]]) -> Updates:
    """The updates of all ``clients``, in their order; no copy where one part holds them all.

    Args:
        clients: int64[n].
        parts: increasing positions among the clients, and the updates of the clients there.
            Every position stands in exactly one part. Taken one by one, so that a generator need
            not hold them all beside what they are joined to.

    Example:
        >>> one = Updates(clients=np.array([9]), deltas=np.float32([[1.0]]), signals={})
        >>> two = Updates(clients=np.array([3, 7]), deltas=np.float32([[2.0], [3.0]]), signals={})
        >>> whole = joined(np.array([3, 9, 7]), [(np.array([1]), one), (np.array([0, 2]), two)])
        >>> whole.deltas[:, 0].tolist()
        [2.0, 1.0, 3.0]
    """
    deltas: NDArray[np.float32] = np.empty((0, 0), dtype=np.float32)
    signals: dict[str, FloatArray] = {}
    for positions, part in parts:
        if len(positions) == len(clients):
            return part
        if len(deltas) == 0:
            deltas = np.empty((len(clients), part.deltas.shape[1]), dtype=np.float32)
        deltas[positions] = part.deltas
        for name, values in part.signals.items():
            signals.setdefault(name, np.empty(len(clients)))[positions] = values
    return Updates(clients=clients, deltas=deltas, signals=signals)

"""Columns that policies publish about their choice: an index with its terms, values at edges."""

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.records import RoundView

EVERYBODY = slice(None)
"""The rows of all clients, available or not."""


def published(index: FloatArray, **terms: FloatArray) -> dict[str, FloatArray]:
    """``{"score": index}`` and the terms it is made of, see ``Policy.scores``.

    All are NaN (no opinion) for unseen clients, whose index is infinite.

    Example:
        >>> published(np.array([0.5, np.inf]), mean=np.array([0.2, 0.0]))
        {'score': array([0.5, nan]), 'mean': array([0.2, nan])}
    """
    seen = np.isfinite(index)
    columns = {"score": index, **terms}
    return {name: np.where(seen, values, np.nan) for name, values in columns.items()}


def at_edges(
    view: RoundView, pairs: tuple[IntArray, ...], **values: FloatArray | IntArray
) -> dict[str, FloatArray]:
    """Values of pairs of client and edge as columns ``name[edge]``, NaN elsewhere.

    ``pairs`` are clients and edges, as ``np.nonzero`` of a [K, M] array returns them. In flat
    federated learning, where there is one edge, the column is ``name``.
    """
    columns = {}
    for name, of_pairs in values.items():
        table = np.full(view.network.coverage.shape, np.nan)
        table[pairs] = of_pairs
        for edge, column in enumerate(table.T):
            columns[name if view.edges is None else f"{name}[{edge}]"] = column
    return columns


def of_some(rows: IntArray, num_clients: int, **values: FloatArray) -> dict[str, FloatArray]:
    """[K] columns with the ``values`` of ``rows``, NaN elsewhere.

    Example:
        >>> of_some(np.array([2]), 3, score=np.array([0.5]))
        {'score': array([nan, nan, 0.5])}
    """
    columns = {name: np.full(num_clients, np.nan) for name in values}
    for name, column in columns.items():
        column[rows] = values[name]
    return columns


def costs(view: RoundView) -> dict[str, FloatArray]:
    """``cost[edge]`` of each client where it is covered; nothing in flat federated learning."""
    if view.edges is None:
        return {}
    pairs = np.nonzero(view.edges.coverage)
    return at_edges(view, pairs, cost=view.edges.cost[pairs])

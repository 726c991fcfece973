"""A tournament: the best of a million values, of which few change between two questions."""

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import DataError
from fedmuster.core.state import derived
from fedmuster.solvers.top_k import top_k

FAN_OUT = 128
"""The entries of a group. numpy needs as long for a group of two as for one of a hundred."""

_VISITS, _CLIENTS_PER_VISIT = 4, 8192
"""A walk through the tree takes as long as reading this number of values."""


@dataclass(slots=True)
class Tournament:
    """A tree over values that knows the best of each group of 128, of 128 groups, and so on.

    A changed value costs a walk to the root. A question costs a walk from the root for each answer
    and for each better client that is not available. A value of -inf is never an answer.

    The arrays belong into the state of a policy. Their shapes follow from the number of clients.

    Attributes:
        values: [n], a value for each client, and -inf up to a multiple of the group size.
        peaks: the highest value of each group, one level of the tree after the other.
        ties: int64, how many values of each group equal its highest.

    Example:
        >>> tournament = Tournament.of(np.array([0.5, 0.9, 0.1]))
        >>> tournament.update(np.array([2]), np.array([0.7]))
        >>> rng, available = np.random.default_rng(0), np.array([True, False, True])
        >>> tournament.best(2, available, rng)
        array([2, 0])
    """

    values: FloatArray = derived()
    peaks: FloatArray = derived()
    ties: IntArray = derived()

    @classmethod
    def of(cls, values: FloatArray) -> "Tournament":
        """The tournament of these values, [K]."""
        padded = np.full(_padded(len(values)), -np.inf)
        size = sum(_levels(len(padded))[1:])
        tree = cls(values=padded, peaks=np.full(size, -np.inf), ties=np.zeros(size, dtype=np.int64))
        tree.update(np.arange(len(values)), values)
        return tree

    def update(self, rows: IntArray, values: FloatArray) -> None:
        """Let the clients ``rows``, each once, have these values."""
        if np.isnan(values).any():
            raise DataError("Tournament: values hold NaN, which cannot be ordered")
        self.values[rows] = values
        start, below, ties = 0, self.values, None
        for size in _levels(len(self.values))[1:]:
            rows = _distinct(rows // FAN_OUT)
            group = below.reshape(-1, FAN_OUT)[rows]
            peak = group.max(axis=1)
            best = group == peak[:, np.newaxis]
            count = best.sum(axis=1) if ties is None else (_grouped(ties, rows) * best).sum(axis=1)
            here = slice(start, start + size)
            below, ties, start = self.peaks[here], self.ties[here], start + size
            below[rows], ties[rows] = peak, count

    def best(self, count: int, available: BoolArray, rng: Generator) -> IntArray:
        """The ``count`` available clients with the highest values, best first; or all, if fewer.

        Clients with equal values come in random order, and those of them that are taken are drawn
        uniformly. Where so many are asked for, or so many of the best are away, that reading all
        values is quicker, all values are read.

        Args:
            count: how many, >= 0.
            available: bool[K].
            rng: draws among equals.
        """
        found: list[int] = []
        visits = _VISITS + len(available) // _CLIENTS_PER_VISIT
        if 0 < count <= visits:
            walk = _Walk(self)
            while len(found) < count and visits > 0:
                client = walk.next(rng)
                if client is None:
                    return np.array(found, dtype=np.int64)
                if available[client]:
                    found.append(client)
                else:
                    visits -= 1
        taken = np.array(found, dtype=np.int64)
        if len(found) == count:
            return taken
        rest = np.flatnonzero(available & (self.values[: len(available)] > -np.inf))
        rest = np.setdiff1d(rest, taken, assume_unique=True)
        values = self.values[rest]
        highest = top_k(values, min(count - len(found), len(rest)), rng)
        order = np.lexsort((rng.random(len(highest)), -values[highest]))
        return np.concatenate([taken, rest[highest[order]]])


class _Walk:
    """Takes one client after the other, the best first, and leaves the tournament as it is."""

    def __init__(self, tournament: Tournament) -> None:
        self._values: list[FloatArray] = [tournament.values]
        self._ties: list[IntArray | None] = [None]
        start = 0
        for size in _levels(len(tournament.values))[1:]:
            here = slice(start, start + size)
            self._values.append(tournament.peaks[here])
            self._ties.append(tournament.ties[here])
            start += size
        self._changed: dict[tuple[int, int], tuple[FloatArray, IntArray]] = {}
        self._last: int | None = None

    def next(self, rng: Generator) -> int | None:
        """The best client of those that are left, a random one of equals; None if there is none."""
        if self._last is not None:
            self._remove(self._last)
        place = 0
        for level in range(len(self._values) - 1, -1, -1):
            values, ties = self._group(level, place)
            peak = values.max()
            if peak == -np.inf:
                return None
            tied = np.flatnonzero(values == peak)
            chosen = tied[0] if len(tied) == 1 else _drawn(tied, ties[tied], rng)
            place = place * FAN_OUT + int(chosen)
        self._last = place
        return place

    def _remove(self, client: int) -> None:
        value, number = -np.inf, 0
        for level in range(len(self._values)):
            client, position = divmod(client, FAN_OUT)
            if (level, client) not in self._changed:
                values, ties = self._group(level, client)
                self._changed[level, client] = values.copy(), ties.copy()
            values, ties = self._changed[level, client]
            values[position], ties[position] = value, number
            value = values.max()
            number = int(ties[values == value].sum())

    def _group(self, level: int, number: int) -> tuple[FloatArray, IntArray]:
        """The values of a group, and how many clients each stands for."""
        if (level, number) in self._changed:
            return self._changed[level, number]
        part, ties = slice(number * FAN_OUT, (number + 1) * FAN_OUT), self._ties[level]
        values = self._values[level][part]
        return values, np.ones(len(values), dtype=np.int64) if ties is None else ties[part]


def _drawn(positions: IntArray, weights: IntArray, rng: Generator) -> int:
    """One of the positions, in proportion to the weights."""
    ends = np.cumsum(weights)
    return int(positions[np.searchsorted(ends, rng.integers(ends[-1]), side="right")])


def _padded(length: int) -> int:
    """The next multiple of the group size."""
    return -(-length // FAN_OUT) * FAN_OUT


def _levels(size: int) -> list[int]:
    """The size of each level of the tree, the values first; the last is one group."""
    sizes = [size]
    while sizes[-1] > FAN_OUT:
        sizes.append(_padded(sizes[-1] // FAN_OUT))
    return sizes


def _distinct(rows: IntArray) -> IntArray:
    return rows if len(rows) == 1 else np.unique(rows)


def _grouped(ties: IntArray, rows: IntArray) -> IntArray:
    return ties.reshape(-1, FAN_OUT)[rows]

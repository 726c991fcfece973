"""How many updates become one: means, and robust rules that a few bad updates cannot spoil.

The updates of a round may fill the memory: no rule copies more than a block of coordinates, and
norms are clipped by a ``scale`` for each row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray, blocks, ceil_of
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import DataError
from fedmuster.core.records import is_integer
from fedmuster.core.streams import SKETCH, stream
from fedmuster.training.training_records import Parameters

Deltas = NDArray[np.float32]
"""[n, P], one update a row."""
Scale = FloatArray | None
"""[n], a factor for each row; None for 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightedSum:
    """The sum, each update times its weight; no server rule of a spec names it."""

    name: ClassVar[str] = "weighted-sum"

    def combine(self, deltas: Deltas, weights: FloatArray, *, scale: Scale = None) -> Parameters:
        """The weighted sum of the rows of ``deltas``, each times its ``scale``."""
        factors = weights if scale is None else weights * scale
        # Client by client, in one thread: a BLAS adds in an order that depends on its threads.
        total: Parameters = np.einsum("n,np->p", factors.astype(np.float32), deltas, optimize=False)
        return total


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightedMean:
    """The mean, where a client counts as much as it has data (McMahan et al. 2017)."""

    name: ClassVar[str] = "weighted-mean"

    def combine(self, deltas: Deltas, weights: FloatArray, *, scale: Scale = None) -> Parameters:
        """The weighted mean of the rows of ``deltas``, each times its ``scale``."""
        return WeightedSum().combine(deltas, weights / weights.sum(), scale=scale)


@dataclass(frozen=True, kw_only=True, slots=True)
class UniformMean:
    """The mean, where every client counts alike."""

    name: ClassVar[str] = "uniform-mean"

    def combine(self, deltas: Deltas, weights: FloatArray, *, scale: Scale = None) -> Parameters:
        """The mean of the rows of ``deltas``, each times its ``scale``."""
        return WeightedMean().combine(deltas, np.ones(len(weights)), scale=scale)


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinateMedian:
    """The median of each coordinate, whatever the clients' data (Yin et al. 2018, Definition 1).

    Less than half of the clients cannot move a coordinate beyond what the others sent.

    References:
        D. Yin, Y. Chen, K. Ramchandran, P. Bartlett, Byzantine-Robust Distributed Learning:
        Towards Optimal Statistical Rates, ICML 2018.
    """

    name: ClassVar[str] = "coordinate-median"

    def combine(self, deltas: Deltas, weights: FloatArray, *, scale: Scale = None) -> Parameters:
        """The median of the rows of ``deltas``, each times its ``scale``."""
        count, length = deltas.shape
        median = np.empty(length, dtype=np.float32)
        for block, values in _sorted(deltas, scale):
            # Halved before they are added, so that the sum of two huge ones does not overflow.
            median[block] = 0.5 * values[:, (count - 1) // 2] + 0.5 * values[:, count // 2]
        return median


@dataclass(frozen=True, kw_only=True, slots=True)
class TrimmedMean:
    """The mean of each coordinate without its extremes (Yin et al. 2018, Definition 2).

    Args:
        trim: the share of values that is left out at either end, in [0, 0.5); rounded down, so
            with fewer than ``1 / trim`` clients nothing is.
    """

    name: ClassVar[str] = "trimmed-mean"

    trim: float = 0.1

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.trim < 0.5, self, "trim", "a number in [0, 0.5)")

    def combine(self, deltas: Deltas, weights: FloatArray, *, scale: Scale = None) -> Parameters:
        """The trimmed mean of the rows of ``deltas``, each times its ``scale``."""
        count, length = deltas.shape
        cut = int(self.trim * count)
        kept = slice(cut, count - cut)
        mean = np.empty(length, dtype=np.float32)
        for block, values in _sorted(deltas, scale):
            total = np.add.reduce(values[:, kept], axis=1, dtype=np.float64)
            mean[block] = total / (count - 2 * cut)
        return mean


@dataclass(frozen=True, kw_only=True, slots=True)
class Krum:
    """The update that is nearest to the others (Blanchard et al. 2017, section 4).

    Of n updates, f may be bad. The score of an update is the sum of its squared distances to its
    ``n - f - 2`` nearest others; the update with the lowest score is the result, of equal ones the
    first. Where ``n < 2 f + 3``, which the paper excludes, f is ``(n - 3) / 2``, rounded down; of
    fewer than three updates the result is the mean.

    Args:
        bad_share: f / n, at least the share of bad updates in a round; rounded up.

    References:
        P. Blanchard, E. M. El Mhamdi, R. Guerraoui, J. Stainer, Machine Learning with Adversaries:
        Byzantine Tolerant Gradient Descent, NeurIPS 2017.
    """

    name: ClassVar[str] = "krum"

    bad_share: float = 0.3

    def __post_init__(self) -> None:
        check_types(self)
        require(0 <= self.bad_share < 0.5, self, "bad_share", "a number in [0, 0.5)")

    def combine(self, deltas: Deltas, weights: FloatArray, *, scale: Scale = None) -> Parameters:
        """The mean of the chosen rows of ``deltas``, each times its ``scale``."""
        count = len(deltas)
        chosen = np.ones(count)
        if count >= 3:
            bad = min(ceil_of(self.bad_share * count), (count - 3) // 2)
            best = np.argsort(krum_scores(deltas, bad, scale=scale), kind="stable")
            chosen[best[self._num_chosen(count, bad) :]] = 0.0
        return WeightedMean().combine(deltas, chosen, scale=scale)

    def _num_chosen(self, count: int, bad: int) -> int:
        return 1


@dataclass(frozen=True, kw_only=True, slots=True)
class MultiKrum(Krum):
    """The mean of the ``n - f`` updates with the lowest scores of :class:`Krum` (section 5)."""

    name: ClassVar[str] = "multi-krum"

    def _num_chosen(self, count: int, bad: int) -> int:
        return count - bad


def krum_scores(deltas: Deltas, num_bad: int, *, scale: Scale = None) -> FloatArray:
    """[n], the sum of each row's squared distances to its ``n - num_bad - 2`` nearest others.

    Example:
        >>> krum_scores(np.float32([[0.0], [1.0], [3.0], [9.0]]), 1)
        array([ 1.,  1.,  4., 36.])
    """
    count = len(deltas)
    squares = np.zeros((count, count))
    for block in blocks(deltas.shape[1]):
        rows = _scaled(deltas[:, block], scale)
        for row in range(count - 1):  # differences, for products would cancel where rows are alike
            apart = rows[row + 1 :] - rows[row]
            squares[row, row + 1 :] += np.einsum("np,np->n", apart, apart)
    squares += squares.T
    np.fill_diagonal(squares, np.inf)  # so that no row is its own neighbour
    nearest = np.sort(squares, axis=1)[:, : max(count - num_bad - 2, 1)]
    scores: FloatArray = nearest.sum(axis=1)  # section 4: s(i)
    return scores


@dataclass(frozen=True, kw_only=True, slots=True)
class GeometricMedian:
    """The point with the least weighted sum of distances to the updates (Pillutla et al. 2022).

    Found by the smoothed Weiszfeld algorithm (Algorithm 2), until a step is shorter than a
    millionth of the typical distance. Bad updates with less than half of the weight move it by a
    bounded distance only. It starts from the median of each coordinate: one huge update moves the
    mean so far away that the way back takes more iterations than there are. The smoothing falls to
    nu tenfold an iteration: with nu from the first one on, a start at one of the updates stays.

    Args:
        smoothing: nu, the least distance by which is divided, relative to the median distance of
            the updates from where it starts. Paper: 1e-6, absolute.
        iterations: at most. Paper: 3 are enough in practice.

    References:
        K. Pillutla, S. M. Kakade, Z. Harchaoui, Robust Aggregation for Federated Learning, IEEE
        Transactions on Signal Processing 70, 2022, arXiv:1912.13445.
    """

    name: ClassVar[str] = "geometric-median"

    smoothing: float = 1e-6
    iterations: int = 100

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.smoothing < 1, self, "smoothing", "a number in (0, 1)")
        require(1 <= self.iterations <= 10**6, self, "iterations", "an integer from 1 to 1,000,000")

    def combine(self, deltas: Deltas, weights: FloatArray, *, scale: Scale = None) -> Parameters:
        """The geometric median of the rows of ``deltas``, each times its ``scale``."""
        point = CoordinateMedian().combine(deltas, weights, scale=scale).astype(np.float64)
        distance = _distances(deltas, point, scale)
        if not distance.any():
            return point.astype(np.float32)
        typical = float(np.median(distance[distance > 0]))
        for step in range(self.iterations):
            nu = max(self.smoothing, 0.1**step) * typical
            pull = weights / np.maximum(
                nu, distance
            )  # Alg. 2: eta_k = alpha_k / max(nu, |v - w_k|)
            before, point = point, _weighted_row(deltas, pull / pull.sum(), scale)
            moved = float(np.linalg.norm(point - before))
            if nu == self.smoothing * typical and moved <= _LEAST_STEP * typical:
                break
            distance = _distances(deltas, point, scale)
        return point.astype(np.float32)


_LEAST_STEP: Final = 1e-6


def _scaled(rows: Deltas, scale: Scale) -> FloatArray:
    """Some columns in float64, each row times its ``scale``."""
    wide = rows.astype(np.float64)
    return wide if scale is None else wide * scale[:, np.newaxis]


def _weighted_row(deltas: Deltas, weights: FloatArray, scale: Scale) -> FloatArray:
    """[P] in float64, the weighted sum of the rows."""
    row = np.empty(deltas.shape[1])
    for block in blocks(deltas.shape[1]):
        row[block] = np.einsum("n,np->p", weights, _scaled(deltas[:, block], scale))
    return row


def _distances(deltas: Deltas, point: FloatArray, scale: Scale) -> FloatArray:
    """[n], how far each row is from ``point``."""
    squares = np.zeros(len(deltas))
    for block in blocks(deltas.shape[1]):
        apart = _scaled(deltas[:, block], scale) - point[block]
        squares += np.einsum("np,np->n", apart, apart)
    return np.sqrt(squares)


Combine = (
    WeightedMean | UniformMean | CoordinateMedian | TrimmedMean | Krum | MultiKrum | GeometricMedian
)


def clip_factors(deltas: Deltas, clip_norm: float) -> FloatArray:
    """[n], what each row must be multiplied by for its L2 norm to be at most ``clip_norm``.

    Example:
        >>> clip_factors(np.array([[3.0, 4.0], [0.3, 0.4]], dtype=np.float32), 1.0)
        array([0.2, 1. ])
    """
    return np.asarray(clip_norm / np.maximum(l2_norms(deltas), clip_norm))


def l2_norms(deltas: Deltas) -> FloatArray:
    """[n], the L2 norm of each row, with no copy larger than a block."""
    squares = [
        sum(float(np.square(row[block], dtype=np.float64).sum()) for block in blocks(len(row)))
        for row in deltas
    ]
    return np.sqrt(np.array(squares, dtype=np.float64))


def _sorted(deltas: Deltas, scale: Scale) -> Iterator[tuple[slice, Deltas]]:
    """Blocks of coordinates and their values, [coordinates, n], increasing in each row."""
    for block in blocks(deltas.shape[1]):
        values = np.array(deltas[:, block].T, order="C", copy=True)
        if scale is not None:
            values *= scale.astype(np.float32)
        values.sort(axis=1)
        yield block, values


_BLOCK: Final = 1 << 17
"""Coordinates that share a random stream: a sketch changes with this number."""


def sketch(deltas: NDArray[np.floating], *, size: int, seed: int) -> FloatArray:
    """[n, size], a random projection of each row of ``deltas`` [n, d] that keeps angles.

    A count-sketch (Charikar, Chen and Farach-Colton 2002): every coordinate is added to one of
    ``size`` sums, with a sign, both drawn at random, but the same in all rows and at every call
    with this seed. So the sketch is linear, and scalar products are right in expectation; the
    cosine of two rows, c, comes out with a standard deviation of about ``(1 - c²) / sqrt(size)``
    where no few coordinates outweigh all others, and of at most about ``sqrt(2 / size)`` always.

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

"""Posteriors of the utility that attributes explain: none, exact, or by random features."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.state import derived, given
from fedmuster.core.streams import stream
from fedmuster.policies.fedsuv.kernel import (
    Family,
    Kernel,
    draw_frequencies,
    lower_root,
    solve_lower,
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A value for each of some distinct clients, with the variance of its noise."""

    clients: IntArray
    values: FloatArray
    noise: FloatArray


class Belief(Protocol):
    """Mean and variance of every client's utility, and what it takes to keep them up to date."""

    @property
    def mean(self) -> FloatArray:
        """Posterior mean of each client."""

    @property
    def variance(self) -> FloatArray:
        """Posterior variance of each client; rounding may push it below 0."""

    def rebuild(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """Forget everything, and believe ``evidence`` (which may be empty)."""

    def condition(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """Believe ``evidence``, too."""


@dataclass(slots=True)
class NoBelief:
    """Of clients without attributes: nothing is shared, each is known by its own history."""

    mean: FloatArray = derived()
    variance: FloatArray = derived()

    @classmethod
    def init(cls) -> "NoBelief":
        """Zero for all."""
        return cls(mean=np.array(0.0), variance=np.array(0.0))

    def rebuild(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """There is nothing to believe."""

    def condition(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """There is nothing to believe."""


_EXACT_BLOCK = 128  # rows: as much of the covariance as the cache holds


@dataclass(slots=True)
class ExactBelief:
    """Posterior mean [K] and covariance [K, K], of which only the lower triangle is kept.

    Conditioning on m observations costs K^2 m: half of what both triangles would.
    """

    mean: FloatArray = derived()
    covariance: FloatArray = derived()

    @classmethod
    def init(cls, num_clients: int) -> "ExactBelief":
        """Nothing believed yet, not even the prior."""
        return cls(mean=np.zeros(num_clients), covariance=np.zeros((num_clients, num_clients)))

    @property
    def variance(self) -> FloatArray:
        """Posterior variance of each client."""
        return self.covariance.diagonal()

    def rebuild(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """The prior, conditioned on everything at once."""
        self.mean[:] = 0.0
        explained = self._explained(kernel(attributes, attributes[evidence.clients]), evidence)
        for rows in self._rows():
            prior = kernel(attributes[rows], attributes[: rows.stop])
            prior -= explained[:, rows].T @ explained[:, : rows.stop]
            self.covariance[rows, : rows.stop] = prior

    def condition(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """A downdate of the covariance by as many ranks as there are observations."""
        explained = self._explained(self._columns(evidence.clients), evidence)
        for rows in self._rows():
            self.covariance[rows, : rows.stop] -= explained[:, rows].T @ explained[:, : rows.stop]

    def _explained(self, columns: FloatArray, evidence: Evidence) -> FloatArray:
        """Move the mean; V [m, K] with ``V' V`` what ``evidence`` explains of the covariance, of
        which ``columns`` are those of the observed clients."""
        clients = evidence.clients
        root = lower_root(columns[clients] + np.diag(evidence.noise))
        explained = solve_lower(root, columns.T)
        self.mean += solve_lower(root, evidence.values - self.mean[clients]) @ explained
        return explained

    def _columns(self, clients: IntArray) -> FloatArray:
        """Columns [K, m] of the covariance, from its lower triangle."""
        below = np.arange(len(self.mean))[:, None] >= clients
        return np.where(below, self.covariance[:, clients], self.covariance[clients].T)

    def _rows(self) -> Iterator[slice]:
        count = len(self.mean)
        return (
            slice(start, min(start + _EXACT_BLOCK, count))
            for start in range(0, count, _EXACT_BLOCK)
        )


_FEATURE_BLOCK = 1024  # clients whose features are made at once: few enough for the cache
_WORTH_THREADS = 100_000  # clients

Single = NDArray[np.float32]
Work = Callable[[slice, Single, Single], None]
"""(rows, their cosines, their sines): both are overwritten by the next block."""


@dataclass(slots=True)
class FeatureBelief:
    """Mean and covariance of D weights, and what follows from them for each client.

    The features of x are ``sqrt(2 signal / D)`` times the cosines and sines of ``w · x / length``
    for D/2 random frequencies w: their products are the kernel in expectation, and exactly so for
    x with itself (Rahimi and Recht, 2007). They are made anew whenever they are needed, because
    for a million clients they would fill a gigabyte. In single precision for the clients at
    large, whose means and variances they only approximate anyway; in double for the weights.
    """

    frequencies: FloatArray = given()
    weights: FloatArray = derived()
    covariance: FloatArray = derived()
    mean: FloatArray = derived()
    variance: FloatArray = derived()

    @classmethod
    def init(
        cls, num_clients: int, dimension: int, *, family: Family, num_features: int, seed: int
    ) -> "FeatureBelief":
        """Nothing believed yet, not even the prior."""
        rng = stream(seed, "random-features")
        return cls(
            frequencies=draw_frequencies(family, num_features // 2, dimension, rng),
            weights=np.zeros(num_features),
            covariance=np.zeros((num_features, num_features)),
            mean=np.zeros(num_clients),
            variance=np.zeros(num_clients),
        )

    def features(self, kernel: Kernel, attributes: FloatArray) -> FloatArray:
        """[n, D] of the rows of ``attributes``, such that weights have a standard normal prior."""
        phase = attributes @ (self.frequencies / kernel.length_scales).T
        features = np.hstack([np.cos(phase), np.sin(phase)])
        features *= np.sqrt(kernel.signal / len(self.frequencies))
        return features

    def rebuild(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """The normal equations of all observations, then every client's mean and variance."""
        precision, moment = np.eye(len(self.weights)), np.zeros(len(self.weights))
        for start in range(0, len(evidence.clients), _FEATURE_BLOCK):
            block = slice(start, start + _FEATURE_BLOCK)
            features = self.features(kernel, attributes[evidence.clients[block]])
            weighted = features / evidence.noise[block, None]
            precision += weighted.T @ features
            moment += evidence.values[block] @ weighted
        inverse_root = solve_lower(lower_root(precision), np.eye(len(moment)))
        self.covariance[:] = inverse_root.T @ inverse_root
        self.weights[:] = self.covariance @ moment
        self._spread_to_clients(kernel, attributes, inverse_root)

    def condition(self, kernel: Kernel, attributes: FloatArray, evidence: Evidence) -> None:
        """A downdate of the weights' covariance, and of what follows from it for each client."""
        features = self.features(kernel, attributes[evidence.clients])
        projected = features @ self.covariance
        root = lower_root(projected @ features.T + np.diag(evidence.noise))
        explained = solve_lower(root, projected)
        step = solve_lower(root, evidence.values - features @ self.weights) @ explained
        self.weights += step
        self.covariance -= explained.T @ explained
        if len(explained) > len(step):  # as many directions as there are weights tell it all
            explained = np.linalg.qr(explained)[1]
        half = len(self.frequencies)
        directions = self._single(kernel, np.vstack([explained, step]).T)

        def update(rows: slice, cosines: Single, sines: Single) -> None:
            # One product of the features with every direction that has changed.
            change = cosines @ directions[:half]
            change += sines @ directions[half:]
            self.mean[rows] += change[:, -1]
            self.variance[rows] -= np.einsum("ij,ij->i", change[:, :-1], change[:, :-1])

        self._for_all_clients(kernel, attributes, update)

    def _spread_to_clients(
        self, kernel: Kernel, attributes: FloatArray, inverse_root: FloatArray
    ) -> None:
        """Every client's mean and variance, from the weights'."""
        half = len(self.frequencies)
        weights = self._single(kernel, self.weights)
        root = self._single(kernel, inverse_root.T)

        def spread(rows: slice, cosines: Single, sines: Single) -> None:
            self.mean[rows] = cosines @ weights[:half] + sines @ weights[half:]
            # The root is upper triangular: the first half of its columns needs no sines.
            first, second = cosines @ root[:half, :half], cosines @ root[:half, half:]
            second += sines @ root[half:, half:]
            self.variance[rows] = np.einsum("ij,ij->i", first, first)
            self.variance[rows] += np.einsum("ij,ij->i", second, second)

        self._for_all_clients(kernel, attributes, spread)

    def _single(self, kernel: Kernel, directions: FloatArray) -> Single:
        """Single precision, with the features' amplitude, which :meth:`_waves` leaves out."""
        amplitude = np.sqrt(kernel.signal / len(self.frequencies))
        return np.asarray(directions * amplitude, dtype=np.float32)

    def _for_all_clients(self, kernel: Kernel, attributes: FloatArray, work: Work) -> None:
        """Let ``work`` have the waves of every block of clients, on all cores where it pays.

        The blocks are the same for any number of cores, and so is every bit of the result.
        """
        num_workers = 1 if len(attributes) < _WORTH_THREADS else os.cpu_count() or 1
        share = -(-len(attributes) // (num_workers * _FEATURE_BLOCK)) * _FEATURE_BLOCK

        def make(first: int) -> None:
            self._make_waves(kernel, attributes, first, first + share, work)

        if num_workers == 1:
            make(0)
            return
        with ThreadPoolExecutor(num_workers) as pool:
            list(pool.map(make, range(0, len(attributes), share)))  # a list, to raise what failed

    def _make_waves(
        self, kernel: Kernel, attributes: FloatArray, first: int, last: int, work: Work
    ) -> None:
        """Cosines and sines of some clients, each block in the same memory as the one before."""
        frequencies = (self.frequencies / kernel.length_scales).T.astype(np.float32)
        last = min(last, len(attributes))
        shape = min(_FEATURE_BLOCK, last - first), len(self.frequencies)
        phases, cosines = np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32)
        for start in range(first, last, _FEATURE_BLOCK):
            rows = slice(start, min(start + _FEATURE_BLOCK, last))
            phase, cosine = phases[: rows.stop - start], cosines[: rows.stop - start]
            np.matmul(attributes[rows].astype(np.float32), frequencies, out=phase)
            np.cos(phase, out=cosine)
            work(rows, cosine, np.sin(phase, out=phase))

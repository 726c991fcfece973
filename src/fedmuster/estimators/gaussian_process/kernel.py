"""How alike two clients are expected to be, given their attributes."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator

from fedmuster.core.records import FloatArray

Family = Literal["squared-exponential", "matern-5/2"]
"""Infinitely smooth; or twice differentiable, for what changes less smoothly."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """``signal * c(r)`` with ``r^2 = sum_j ((x_j - y_j) / length_j)^2``.

    The squared exponential has ``c = exp(-r^2 / 2)``, Matérn-5/2
    ``c = (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)`` (Rasmussen and Williams, Eq. 4.9, 4.17).
    """

    family: Family
    length_scales: FloatArray
    signal: float

    def __call__(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """The covariances [n, m] of the rows of ``left`` and ``right``."""
        squared = squared_distances(left / self.length_scales, right / self.length_scales)
        if self.family == "squared-exponential":
            covariance = np.exp(np.multiply(squared, -0.5, out=squared), out=squared)
        else:
            root = np.sqrt(5.0 * squared)
            covariance = (1.0 + root + squared * (5.0 / 3.0)) * np.exp(-root)
        covariance *= self.signal
        return covariance

    def with_slope(self, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The covariances of ``rows`` and G, with ``G_ab (x_aj - x_bj)^2 / length_j^2`` the
        derivative of the covariance by ``ln length_j``."""
        covariance = self(rows, rows)
        if self.family == "squared-exponential":
            return covariance, covariance
        scaled = rows / self.length_scales
        root = np.sqrt(5.0 * squared_distances(scaled, scaled))
        return covariance, self.signal * (5.0 / 3.0) * (1.0 + root) * np.exp(-root)


def squared_distances(left: FloatArray, right: FloatArray) -> FloatArray:
    """[n, m] squared Euclidean distances of rows."""
    # |a|^2 - 2 a · b + |b|^2 as one product: the matrix is large, and each pass over it costs.
    left_norm = np.einsum("ij,ij->i", left, left)
    right_norm = np.einsum("ij,ij->i", right, right)
    rows = np.column_stack([left, left_norm, np.ones(len(left))])
    columns = np.column_stack([-2.0 * right, np.ones(len(right)), right_norm])
    squared: FloatArray = rows @ columns.T
    return np.maximum(squared, 0.0, out=squared)  # rounding


def draw_frequencies(family: Family, count: int, dimension: int, rng: Generator) -> FloatArray:
    """[count, dimension] draws from the spectral density of unit length-scales (Bochner)."""
    frequencies = rng.standard_normal((count, dimension))
    if family == "matern-5/2":  # a Student t with 5 degrees of freedom
        frequencies *= np.sqrt(5.0 / rng.chisquare(5, size=count))[:, None]
    return frequencies

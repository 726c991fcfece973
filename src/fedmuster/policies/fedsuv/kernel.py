"""Kernels over the attributes of clients, their likelihood, and the fit of hyper-parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator

from fedmuster.bandits.similarity import squared_distances
from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.state import shared

_BLOCK = 64  # beyond it, products with what is solved already outweigh the small inverses


def lower_root(matrix: FloatArray) -> FloatArray:
    """The lower triangular L with ``L L' = matrix``, which must be positive definite."""
    return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)


def solve_lower(lower: FloatArray, right: FloatArray) -> FloatArray:
    """``lower^-1 right`` of a lower triangular matrix and one or many columns.

    Example:
        >>> solve_lower(np.array([[2.0, 0.0], [1.0, 4.0]]), np.array([2.0, 9.0]))
        array([1., 2.])
    """
    solution = np.array(right)
    for start in range(0, len(lower), _BLOCK):
        block = slice(start, start + _BLOCK)
        solution[block] -= lower[block, :start] @ solution[:start]
        solution[block] = np.linalg.inv(lower[block, block]) @ solution[block]
    return solution


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


def draw_frequencies(family: Family, count: int, dimension: int, rng: Generator) -> FloatArray:
    """[count, dimension] draws from the spectral density of unit length-scales (Bochner)."""
    frequencies = rng.standard_normal((count, dimension))
    if family == "matern-5/2":  # a Student t with 5 degrees of freedom
        frequencies *= np.sqrt(5.0 / rng.chisquare(5, size=count))[:, None]
    return frequencies


@dataclass(frozen=True, slots=True)
class Sample:
    """Of n observed clients: attributes, how often observed, mean, squared deviations from it."""

    attributes: FloatArray
    count: IntArray
    mean: FloatArray
    spread: FloatArray


def log_marginal_likelihood(
    family: Family, log_parameters: FloatArray, sample: Sample
) -> tuple[float, FloatArray]:
    """The log likelihood of all single observations, and its gradient.

    The n_k observations of a client enter through their mean, whose noise is ``noise / n_k``, and
    through their spread around it, which tells of the noise alone (Rasmussen and Williams,
    Eq. 5.8 and 5.9, for the means).

    Args:
        family: of the kernel.
        log_parameters: logarithms of the d length-scales, then of the variances of signal,
            individual part and noise. Minus infinity switches a variance off.
        sample: what was observed.
    """
    dimension = sample.attributes.shape[1]
    lengths = np.exp(log_parameters[:dimension])
    signal, individual, noise = np.exp(log_parameters[dimension:])
    covariance, slope = Kernel(family, lengths, signal).with_slope(sample.attributes)
    mean_noise = noise / sample.count
    root = lower_root(covariance + np.diag(individual + mean_noise))
    inverse_root = np.linalg.inv(root)
    inverse = inverse_root.T @ inverse_root
    weights = inverse @ sample.mean
    repeats = sample.count.sum() - len(sample.count)
    spread = sample.spread.sum() / noise
    value = -0.5 * (
        sample.mean @ weights
        + 2.0 * np.log(root.diagonal()).sum()
        + np.log(sample.count).sum()
        + repeats * np.log(noise)
        + spread
        + sample.count.sum() * np.log(2.0 * np.pi)
    )
    # d value = 1/2 trace(uphill dC) for every change dC of the covariance of the means.
    uphill = np.outer(weights, weights) - inverse
    diagonal = uphill.diagonal()
    slope = uphill * slope
    x = sample.attributes / lengths
    by_length = slope.sum(axis=1) @ x**2 - np.einsum("ij,ij->j", x, slope @ x)
    by_signal = 0.5 * np.vdot(uphill, covariance)
    by_individual = 0.5 * individual * diagonal.sum()
    by_noise = 0.5 * (diagonal @ mean_noise - repeats + spread)
    return float(value), np.append(by_length, [by_signal, by_individual, by_noise])


_STEPS = 40
_WIDTH = 1.5  # of the prior, in powers of e
_LARGEST = 1e3

Objective = Callable[[FloatArray], tuple[float, FloatArray]]


@dataclass(slots=True)
class Hyperparameters:
    """One length-scale for each attribute and three variances, all of standardised values; and
    the offset and scale that standardise them."""

    length_scales: FloatArray = shared()
    signal: FloatArray = shared()
    individual: FloatArray = shared()
    noise: FloatArray = shared()
    offset: FloatArray = shared()
    scale: FloatArray = shared()

    def logarithms(self) -> FloatArray:
        """As :func:`log_marginal_likelihood` wants them."""
        with np.errstate(divide="ignore"):
            return np.log([*self.length_scales, self.signal, self.individual, self.noise])

    def set_logarithms(self, log_parameters: FloatArray) -> None:
        """The inverse of :meth:`logarithms`."""
        values = np.exp(log_parameters)
        self.length_scales[:] = values[:-3]
        self.signal[...], self.individual[...], self.noise[...] = values[-3:]


def fitted(
    family: Family, sample: Sample, *, usual: FloatArray, current: FloatArray, noise_floor: float
) -> FloatArray:
    """The logarithms of the hyper-parameters that fit ``sample`` best.

    What is maximised is the marginal likelihood times a broad log-normal prior around the
    ``usual`` values, without which the first handful of observations would be believed to be free
    of noise, or nothing but noise. Parameters that are switched off stay so.
    """
    free = np.isfinite(usual)
    centre = usual[free]
    lower = np.full(len(usual), -np.log(_LARGEST))
    lower[-1] = np.log(noise_floor)

    def objective(point: FloatArray) -> tuple[float, FloatArray]:
        full = usual.copy()
        full[free] = point
        value, gradient = log_marginal_likelihood(family, full, sample)
        away = (point - centre) / _WIDTH
        return value - 0.5 * float(away @ away), gradient[free] - away / _WIDTH

    # Hills may be several: smooth and noisy, or rough and clean. Begin at the best of a few places.
    tilt = np.zeros(len(usual))
    tilt[:-3], tilt[-1] = 1.0, 2.0
    starts = [current[free], centre, (usual + tilt)[free], (usual - tilt)[free]]
    start = max(starts, key=lambda point: objective(point)[0])
    best = usual.copy()
    best[free] = climb(objective, start, lower[free], np.log(_LARGEST))
    return best


def climb(objective: Objective, start: FloatArray, lower: FloatArray, upper: float) -> FloatArray:
    """The best point that Rprop visits: steps by the signs of the gradient alone, each coordinate
    with its own length. Never leaves the bounds, needs no line search, cannot diverge.

    References:
        Blum and Riedmiller, Optimization of Gaussian Process Hyperparameters using Rprop,
        ESANN 2013.
    """
    point = best = np.clip(start, lower, upper)
    highest, before = -np.inf, np.zeros(len(start))
    step = np.full(len(start), 0.3)
    for _ in range(_STEPS):
        value, gradient = objective(point)
        if value > highest:
            highest, best = value, point
        turned = gradient * before < 0
        factor = np.where(turned, 0.5, np.where(gradient * before > 0, 1.2, 1.0))
        step = np.minimum(step * factor, 1.0)
        if step.max() < 0.01:
            break
        before = np.where(turned, 0.0, gradient)  # after a turn, go on carefully
        point = np.clip(point + np.sign(before) * step, lower, upper)
    return best

"""How likely the observations are under given hyper-parameters, and which way is uphill."""

from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray, IntArray
from fedmuster.estimators.gaussian_process.kernel import Family, Kernel
from fedmuster.estimators.gaussian_process.triangular import lower_root


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

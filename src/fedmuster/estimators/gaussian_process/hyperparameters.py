"""Length-scales and variances that make what was observed most likely."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedmuster.core.records import FloatArray
from fedmuster.core.state import shared
from fedmuster.estimators.gaussian_process.kernel import Family
from fedmuster.estimators.gaussian_process.likelihood import Sample, log_marginal_likelihood

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
    family: Family,
    sample: Sample,
    *,
    usual: FloatArray,
    current: FloatArray,
    noise_floor: float,
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

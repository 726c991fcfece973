"""Means over seeds, paired differences, and what may be said of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from fedmuster.core.arrays import FloatArray
from fedmuster.report.runs import Run

LEVEL = 0.95
"""The confidence of every interval, and of all verdicts of one comparison together."""

Verdict = Literal["lower", "higher", "no significant difference", "equal", "one seed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A mean with its Student-t confidence interval; ``half_width`` is NaN for a single value."""

    mean: float
    half_width: float
    count: int

    @property
    def low(self) -> float:
        """The lower end."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """The upper end."""
        return self.mean + self.half_width


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A policy less its baseline, seed by seed, and what may be said of it."""

    interval: Interval
    level: float
    verdict: Verdict


def interval(values: FloatArray, *, level: float = LEVEL) -> Interval:
    """The mean of independent values and its interval.

    Example:
        >>> around = interval(np.array([1.0, 2.0, 3.0]))
        >>> around.mean, round(around.half_width, 3)
        (2.0, 2.484)
    """
    mean, half_width = mean_and_half_width(np.asarray(values), level=level)
    return Interval(mean=float(mean), half_width=float(half_width), count=len(values))


def mean_and_half_width(
    values: FloatArray, *, level: float = LEVEL
) -> tuple[FloatArray, FloatArray]:
    """Mean and half-width over axis 0, for each of the other entries."""
    count = len(values)
    mean = np.asarray(values.mean(axis=0))
    if count < 2:
        return mean, np.full_like(mean, np.nan)
    with np.errstate(invalid="ignore"):  # an infinite loss has no standard deviation
        error = values.std(axis=0, ddof=1) / math.sqrt(count)
    return mean, np.asarray(student_t(count - 1, level) * error)


def paired(values: FloatArray, baseline: FloatArray, *, comparisons: int = 1) -> Difference:
    """``values - baseline``, whose entries belong together by seed.

    ``comparisons`` is how many policies are held against the same baseline. The interval is
    widened by Bonferroni's inequality, so that all of them together are right with
    :data:`LEVEL`; a verdict says no more than that its interval leaves out 0.

    Example:
        >>> paired(np.array([1.0, 2.0, 3.0]), np.array([5.0, 6.1, 6.9])).verdict
        'lower'
        >>> paired(np.array([1.0, 2.0, 3.0]), np.array([1.1, 1.9, 3.1])).verdict
        'no significant difference'
    """
    level = 1.0 - (1.0 - LEVEL) / comparisons
    differences = np.asarray(values) - np.asarray(baseline)
    around = interval(differences, level=level)
    verdict: Verdict
    if around.count < 2:
        verdict = "one seed"
    elif not differences.any():
        verdict = "equal"
    elif around.high < 0:
        verdict = "lower"
    elif around.low > 0:
        verdict = "higher"
    else:
        verdict = "no significant difference"
    return Difference(interval=around, level=level, verdict=verdict)


@lru_cache(maxsize=256)
def student_t(dof: int, level: float) -> float:
    """The t with ``P(|T| <= t) = level``, for T of Student's law with ``dof`` degrees of freedom.

    Example:
        >>> round(student_t(9, 0.95), 6)
        2.262157
    """
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:  # until they are neighbours
        if _probability_within(middle, dof) < level:
            low = middle
        else:
            high = middle
    return math.sqrt(dof) * math.tan(low)


def _probability_within(angle: float, dof: int) -> float:
    """``P(|T| <= sqrt(dof) tan(angle))``: Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    odd = dof % 2
    cosine = math.cos(angle)
    term = cosine if odd else 1.0
    total = term if dof > 1 else 0.0
    for k in range(2 + odd, dof - 1, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    total *= math.sin(angle)
    return (angle + total) * 2 / math.pi if odd else total


# A number that a run is judged by.


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One number of a run.

    Args:
        key: its name in files.
        title: its name for people.
        unit: e.g. "s"; empty for a plain number.
        of: computes it; NaN where a run has none.
        about: which table it belongs to.
        words: what a policy is that has less or more of it than the baseline; None where the
            difference is not tested.
        better: whether less or more of it is good; None where neither is.
        may_be_missing: whether a run may lack it although it was measured: a target never reached.
    """

    key: str
    title: str
    unit: str
    of: Callable[[Run], float]
    about: Literal["learning", "privacy", "network", "selection"]
    words: tuple[str, str] | None = None
    better: Literal["lower", "higher"] | None = None
    may_be_missing: bool = False

    @property
    def heading(self) -> str:
        """The title with its unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

"""Bring an update onto a lattice, into a ball of whole numbers, where its sensitivity is exact.

Floating-point noise leaks: which numbers ``x + noise`` can reach depends on x (Mironov 2012; Haney
et al. 2022). So an update is first made a vector of whole multiples of a grid, clipped as whole
numbers, and gets whole noise. Every multiple of the grid can then come from every update, and
the grid follows from clip and noise alone, never from the data.

Rounding is random and unbiased: with many coordinates most of them are far smaller than the grid,
and rounding them to the nearest would make nothing of them all. How a vector gets into the ball
does not matter to privacy, which holds between any two vectors in it.
"""

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np

from fedmuster.core.arrays import BoolArray, FloatArray, IntArray
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.privacy.randomness import (
    MARGIN,
    Inversion,
    RandomBytes,
    UniformReal,
    exponential,
    random_uint16,
)

_STEPS_PER_SCALE: Final = 2**10  # rounding then adds less than a millionth to the noise's variance
_HUGE: Final = 1e100  # beyond any clip; neither it nor its square can overflow a sum
_SUM_BLOCK: Final = 2**16


@dataclass(frozen=True, kw_only=True, slots=True)
class Lattice:
    """The multiples of ``grid`` (a power of two); ``radius`` of them are a clip."""

    grid: float
    radius: int

    @classmethod
    def of(cls, *, clip: float, noise_scale: float, least_radius: int) -> "Lattice":
        """Fine enough that neither noise nor clip feel it.

        Args:
            clip: the ball's radius, in the update's units.
            noise_scale: of one coordinate, in the same units.
            least_radius: of the ball, in steps of the grid. The clip is rounded down to whole
                steps, and the noise with it.
        """
        _, exponent = math.frexp(min(noise_scale / _STEPS_PER_SCALE, clip / least_radius))
        grid = math.ldexp(1.0, exponent - 1)  # the largest power of two that is not more
        return cls(grid=grid, radius=math.floor(clip / grid))


def checked_update(update: Any) -> FloatArray:
    """An update as float64 [d], or a DataError."""
    array = np.asarray(update)
    if array.ndim != 1 or not (
        np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)
    ):
        raise DataError(
            f"an update is {array.dtype} of shape {array.shape}, expected a vector of numbers"
        )
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise DataError(
            f"an update has {np.count_nonzero(~np.isfinite(array))} of {array.size} coordinates "
            "that are not finite; release zeros in its place: even that it is not finite tells of "
            "data"
        )
    return np.clip(array, -_HUGE, _HUGE, out=array)


def into_l1_ball(update: FloatArray, lattice: Lattice, random_bytes: RandomBytes) -> IntArray:
    """Whole numbers whose absolute values sum to at most the radius.

    The running sum of absolute values is rounded, with one random offset for all (systematic
    sampling): each coordinate is unbiased, and their sum is known to a step, so that clipping,
    which is done before, is not undone by rounding.
    """
    if not update.size:
        return np.zeros(0, dtype=np.int64)
    running = np.cumsum(np.abs(update))
    total = float(running[-1])
    running *= min(1 / lattice.grid, lattice.radius / max(total, 1 / _HUGE))
    running += (int.from_bytes(random_bytes(8), "little") >> 11) / 2**53
    np.floor(running, out=running)
    np.minimum(running, lattice.radius, out=running)  # the clip, on whole numbers
    steps = np.diff(running, prepend=0.0)
    return np.copysign(steps, update, out=steps).astype(np.int64)


def into_box(update: FloatArray, lattice: Lattice, random_bytes: RandomBytes) -> IntArray:
    """Whole numbers, each at most the radius; each from its own coordinate alone."""
    steps = _round(update / lattice.grid, _offsets(update.size, random_bytes))
    return np.clip(steps, -lattice.radius, lattice.radius).astype(np.int64)


def into_l2_ball(update: FloatArray, lattice: Lattice, random_bytes: RandomBytes) -> IntArray:
    """Whole numbers whose squares sum to at most the radius' square."""
    norm = math.sqrt(float(update @ update))
    # Rounding adds at most 1/4 for each coordinate to the sum of squares, in the mean, and 4 radii
    # are about 4 of its standard deviations: with this room a second turn is rare.
    square = lattice.radius**2
    room = max(square - update.size / 4 - 4 * lattice.radius, square / 4)
    exact = update * min(1 / lattice.grid, math.sqrt(room) / max(norm, 1 / _HUGE))
    offsets = _offsets(update.size, random_bytes)
    while True:
        steps = _round(exact, offsets).astype(np.int64)
        squares = _sum_of_squares(steps)
        if squares <= square:  # the clip, on whole numbers
            return steps
        exact *= 0.999 * math.sqrt(square / squares)


def _offsets(count: int, random_bytes: RandomBytes) -> FloatArray:
    offsets = random_uint16(count, random_bytes).astype(np.float64)
    offsets += 0.5
    offsets /= 2**16
    return offsets


def _round(exact: FloatArray, offsets: FloatArray) -> FloatArray:
    """Up with the probability of the fractional part, within 2^-17."""
    return np.floor(exact + offsets)


def _sum_of_squares(steps: IntArray) -> int:
    # in int64 a block cannot overflow, as no coordinate is beyond 2^23; in Python nothing can
    return sum(
        int(np.dot(block, block))
        for block in np.split(steps, range(_SUM_BLOCK, steps.size, _SUM_BLOCK))
    )


# Two-sided geometric noise, ``P(z) = (1 - q) / (1 + q) q^|z|`` with ``q = exp(-rate)``, exactly.

_LOW_BITS: Final = 7  # and the sign: 256 values
_GROUP_BITS: Final = 8
_MORE: Final = 2**_GROUP_BITS - 1  # of the highest group: this and more
_BLOCK: Final = 2**15  # numbers at a time, so that they stay in the processor's cache
_SMALLEST_RATE: Final = Fraction(1, 2**50)  # noise that is finite in int64


def discrete_laplace(rate: Fraction, count: int, random_bytes: RandomBytes) -> IntArray:
    """``count`` independent integers with ``P(z)`` in proportion to ``exp(-rate |z|)``.

    Example:
        >>> from fedmuster.core.streams import NOISE, stream
        >>> from fedmuster.privacy.randomness import seeded_bytes
        >>> discrete_laplace(Fraction(1, 1000), 4, seeded_bytes(stream(0, NOISE)))
        array([-300,  657, 1054,  205])
    """
    if rate < _SMALLEST_RATE:
        raise ConfigError(f"discrete_laplace: a rate of {float(rate):.3g}, expected >= 2^-50")
    groups = _groups(rate)
    noise = np.empty(count, dtype=np.int64)
    for start in range(0, count, _BLOCK):
        block = noise[start : start + _BLOCK]
        block[:] = groups.draw(block.size, random_bytes)
    return noise


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Groups:
    """The tables of one rate: sign and lowest digits, groups of digits above, all the rest."""

    low: Inversion
    middle: tuple[Inversion, ...]
    high: Inversion

    def draw(self, count: int, random_bytes: RandomBytes) -> IntArray:
        noise = self.low.draw(count, random_bytes).astype(np.int64)
        noise -= 2**_LOW_BITS
        shift = _LOW_BITS
        for group in self.middle:
            noise ^= group.draw(count, random_bytes).astype(np.int64) << shift
            shift += _GROUP_BITS
        # the sign of the low digits fills all digits above, so this flips them where Z = -1 - G
        noise ^= self._draw_high(count, random_bytes) << shift
        return noise

    def _draw_high(self, count: int, random_bytes: RandomBytes) -> IntArray:
        digits = self.high.draw(count, random_bytes).astype(np.int64)
        unfinished = np.flatnonzero(digits == _MORE)
        while unfinished.size:
            further = self.high.draw(unfinished.size, random_bytes)
            digits[unfinished] += further
            unfinished = unfinished[further == _MORE]
        return digits


@lru_cache(maxsize=32)  # clients on the same step of a schedule share a rate
def _groups(rate: Fraction) -> _Groups:
    shift, middle = _LOW_BITS, []
    while rate * 2**shift * _MORE < 3:  # else more than 1 in 20 would be beyond the table
        middle.append(_group(rate * 2**shift))
        shift += _GROUP_BITS
    return _Groups(low=_low(rate), middle=tuple(middle), high=_high(rate * 2**shift))


def _low(rate: Fraction) -> Inversion:
    """Of ``z + 128``, where z is the sign and the seven lowest digits, from -128 to 127."""
    half = 2**_LOW_BITS
    below = _truncated(np.arange(1, half), rate, half)
    negative = 1 / (1 + np.exp(float(rate)))
    cumulative = np.concatenate(
        (negative * (1 - below[::-1]), [negative], negative + (1 - negative) * below)
    )
    return Inversion(cumulative=cumulative, exact=partial(_exact_low, rate))


def _group(rate: Fraction) -> Inversion:
    size = 2**_GROUP_BITS
    return Inversion(
        cumulative=_truncated(np.arange(1, size), rate, size),
        exact=partial(_exact_truncated, rate, size),
    )


def _high(rate: Fraction) -> Inversion:
    cumulative = -np.expm1(-float(rate) * np.arange(1, _MORE + 1))
    return Inversion(cumulative=cumulative, exact=partial(_exact_below, rate))


def _truncated(index: IntArray, rate: Fraction, size: int) -> FloatArray:
    """``P(G < index | G < size)``."""
    below: FloatArray = np.expm1(-float(rate) * index) / np.expm1(-float(rate) * size)
    return below


def _exact_low(rate: Fraction, index: int, context: Context) -> Decimal:
    half = 2**_LOW_BITS
    q = exponential(-rate, context)
    negative = context.divide(q, context.add(Decimal(1), q))
    below = _exact_truncated(rate, half, abs(index - half), context)
    if index <= half:
        return context.multiply(negative, context.subtract(Decimal(1), below))
    return context.add(negative, context.multiply(context.subtract(Decimal(1), negative), below))


def _exact_truncated(rate: Fraction, size: int, index: int, context: Context) -> Decimal:
    return context.divide(_exact_below(rate, index, context), _exact_below(rate, size, context))


def _exact_below(rate: Fraction, index: int, context: Context) -> Decimal:
    """``P(G < index)``."""
    return context.subtract(Decimal(1), exponential(-rate * index, context))


# Gaussian noise on the integers, ``P(z)`` in proportion to ``exp(-z^2 / (2 variance))``, exactly.

_KEPT: Final = 0.75  # of the proposals, about; exactly it is 0.76 for a large variance


def discrete_gaussian(variance: Fraction, count: int, random_bytes: RandomBytes) -> IntArray:
    """``count`` independent integers with ``P(z)`` in proportion to ``exp(-z^2 / (2 variance))``.

    Example:
        >>> from fedmuster.core.streams import NOISE, stream
        >>> from fedmuster.privacy.randomness import seeded_bytes
        >>> discrete_gaussian(Fraction(1000), 4, seeded_bytes(stream(0, NOISE)))
        array([-14,   9,  30,   2])
    """
    noise = np.empty(count, dtype=np.int64)
    done = 0
    while done < count:
        proposals = min(_BLOCK, math.ceil((count - done) / _KEPT) + 16)
        kept = _propose(variance, proposals, random_bytes)[: count - done]
        noise[done : done + kept.size] = kept
        done += kept.size
    return noise


def _propose(variance: Fraction, count: int, random_bytes: RandomBytes) -> IntArray:
    scale = math.isqrt(math.floor(variance)) + 1  # t = floor(sigma) + 1
    proposal = discrete_laplace(Fraction(1, scale), count, random_bytes)
    return proposal[_is_kept(proposal, variance, scale, random_bytes)]


def _is_kept(
    proposal: IntArray, variance: Fraction, scale: int, random_bytes: RandomBytes
) -> BoolArray:
    """True with probability ``exp(-(|y| - variance / t)^2 / (2 variance))`` for each y."""
    distance = np.abs(proposal).astype(np.float64)
    distance -= float(variance / scale)
    distance /= math.sqrt(variance)
    np.square(distance, out=distance)
    distance *= -0.5
    probability = np.exp(distance, out=distance)
    first_bits = random_uint16(proposal.size, random_bytes)
    # how far the threshold is above the uniform number's first 16 bits, in units of the last one
    lead = probability * 2**16 - first_bits
    margin = MARGIN * 2**16
    kept: BoolArray = lead >= 1 + margin
    for row in np.flatnonzero(~kept & (lead > -margin)):
        exponent = -((abs(int(proposal[row])) - variance / scale) ** 2) / (2 * variance)
        uniform = UniformReal(int(first_bits[row]), 16, random_bytes)
        kept[row] = uniform.is_below(partial(exponential, exponent))
    return kept

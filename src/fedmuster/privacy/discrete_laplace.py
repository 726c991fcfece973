"""Two-sided geometric noise, ``P(z) = (1 - q) / (1 + q) q^|z|`` with ``q = exp(-rate)``, exactly.

A geometric number G >= 0 has independent binary digits: digit i is 1 with probability
``1 / (1 + exp(rate 2^i))``. So groups of digits are independent too, and a group is drawn at once.
With ``Z = G`` or, with probability ``q / (1 + q)``, ``Z = -1 - G`` (all digits flipped), Z has the
law above, without rejections. The highest group has no end: by the geometric law's lack of memory,
what is beyond its table is the table's size plus a fresh draw. Nothing is cut off and nothing
is rounded, so there is no δ.
"""

from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final

import numpy as np

from fedmuster.core.errors import ConfigError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.privacy.inversion import Inversion
from fedmuster.privacy.randomness import RandomBytes, exponential

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

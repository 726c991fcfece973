"""Gaussian noise on the integers, ``P(z)`` in proportion to ``exp(-z^2 / (2 variance))``, exactly.

By rejection from the discrete Laplace law (Canonne, Kamath and Steinke 2020, Algorithm 3). Like
that, nothing is cut off and nothing is rounded: where 16 random bits and float64 do not decide
whether a number is kept, more bits and decimals do.
"""

import math
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np

from fedmuster.core.records import BoolArray, IntArray
from fedmuster.privacy.discrete_laplace import discrete_laplace
from fedmuster.privacy.inversion import MARGIN
from fedmuster.privacy.randomness import RandomBytes, UniformReal, exponential, random_uint16

_BLOCK: Final = 2**15
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

"""Where the noise's random bits come from, and exact comparisons with them.

There are two sources and no third: the operating system's for real runs, a seeded stream for
simulations, whose reports must then say ``privacy: simulated``.
"""

import os
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

RandomBytes = Callable[[int], bytes]
"""``random_bytes(n)``: n independent uniform bytes."""

secure_bytes: Final[RandomBytes] = os.urandom
"""The operating system's randomness: for every release that shall be private."""


def seeded_bytes(generator: np.random.Generator) -> RandomBytes:
    """Bytes that repeat with the generator: for simulations only, they protect nobody.

    Example:
        >>> from fedmuster.core.streams import NOISE, stream
        >>> seeded_bytes(stream(7, NOISE, 1))(3) == seeded_bytes(stream(7, NOISE, 1))(3)
        True
    """

    def random_bytes(count: int) -> bytes:
        # seven times as fast as Generator.bytes, which asks for 32 bits at a time
        words = generator.integers(0, 2**64, size=-(-count // 8), dtype=np.uint64)
        return words.astype("<u8", copy=False).tobytes()[:count]

    return random_bytes


def random_uint16(count: int, random_bytes: RandomBytes) -> NDArray[np.uint16]:
    """``count`` uniform numbers of 16 bits."""
    return np.frombuffer(random_bytes(2 * count), dtype="<u2")


Computable = Callable[[Context], Decimal]
"""A real number in [0, 1], within ``10^(20 - prec)`` in a decimal context of ``prec`` digits."""


def exponential(exponent: Fraction, context: Context) -> Decimal:
    """``e^exponent`` of a number that is not positive."""
    numerator, denominator = map(Decimal, exponent.as_integer_ratio())
    return context.exp(context.divide(numerator, denominator))


class UniformReal:
    """A uniform number in [0, 1) with as many bits as a comparison needs.

    A comparison of finitely many random bits with a rounded threshold is wrong with a small
    probability, and that probability would be a δ of the release. This comparison is never wrong.

    Args:
        bits: the first ``num_bits`` binary digits after the point, already drawn.
        num_bits: how many these are.
        random_bytes: for more of them.
    """

    def __init__(self, bits: int, num_bits: int, random_bytes: RandomBytes) -> None:
        self._bits = bits
        self._num_bits = num_bits
        self._random_bytes = random_bytes

    def is_below(self, threshold: Computable) -> bool:
        """Whether this number is smaller than ``threshold``."""
        while True:
            digits = 40 + self._num_bits // 2  # finer than the bits known, so that they decide
            context = Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])
            value, error = Fraction(threshold(context)), Fraction(1, 10 ** (digits - 20))
            if Fraction(self._bits + 1, 2**self._num_bits) <= value - error:
                return True
            if Fraction(self._bits, 2**self._num_bits) >= value + error:
                return False
            self._bits = self._bits << 64 | int.from_bytes(self._random_bytes(8), "little")
            self._num_bits += 64

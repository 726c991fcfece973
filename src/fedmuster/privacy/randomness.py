"""Where the noise's random bits come from, and exact comparisons with them.

There are two sources and no third: the operating system's for real runs, a seeded stream for
simulations, whose reports must then say ``privacy: simulated``.
"""

import os
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.arrays import FloatArray

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


# Draw small integers with exactly given probabilities, most of them from 16 random bits each.

MARGIN: Final = 2.0**-44
"""More than float64 arithmetic can be wrong about a cumulative probability (about 2^-50)."""

_UNDECIDED: Final = -1


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Inversion:
    """``j = #{i : F_i <= U}`` of a uniform real number U, without any rounding.

    The first 16 bits of U decide, by a table, unless some ``F_i`` is in or next to their bucket;
    then 48 bits more, unless they are within the margin of some ``F_i`` (once in 2^35 draws);
    then as many as are needed, against ``F_i`` in decimals of any precision.

    Args:
        cumulative: ``F_1 <= F_2 <= …``, each within the margin of the truth; ``F_i = P(j < i)``.
        exact: ``F_i`` as a :data:`~fedmuster.privacy.randomness.Computable`, given i >= 1.
        margin: within which the float64 ``cumulative`` is not believed, less than 2^-16.
    """

    cumulative: FloatArray
    exact: Callable[[int, Context], Decimal]
    margin: float = MARGIN
    _by_first_bits: NDArray[np.int16] = field(init=False)

    def __post_init__(self) -> None:
        first, last = (
            np.clip(np.floor((self.cumulative + shift) * 2**16), 0, 2**16 - 1).astype(np.int64)
            for shift in (-self.margin, self.margin)
        )
        starts = np.concatenate(([0], last + 1, [2**16]))
        table = np.repeat(np.arange(starts.size - 1, dtype=np.int16), np.diff(starts))
        table[first] = table[last] = _UNDECIDED  # neighbours or one: the margin is below a bucket
        object.__setattr__(self, "_by_first_bits", table)

    def draw(self, count: int, random_bytes: RandomBytes) -> NDArray[np.int16]:
        """``count`` independent values from 0 to ``len(cumulative)``."""
        first_bits = random_uint16(count, random_bytes)
        values = self._by_first_bits.take(first_bits)
        undecided = np.flatnonzero(values == _UNDECIDED)
        if undecided.size:
            values[undecided] = self._decide(first_bits[undecided], random_bytes)
        return values

    def _decide(
        self, first_bits: NDArray[np.uint16], random_bytes: RandomBytes
    ) -> NDArray[np.int64]:
        more_bits = np.frombuffer(random_bytes(6 * first_bits.size), dtype="<u2").reshape(-1, 3)
        bits = first_bits.astype(np.uint64)
        for column in more_bits.T:
            bits = bits << np.uint64(16) | column
        uniform = (bits >> np.uint64(11)) * 2.0**-53  # exact; the bits cut off add less than 2^-53
        values = np.searchsorted(self.cumulative, uniform - self.margin, side="left")
        most = np.searchsorted(self.cumulative, uniform + self.margin, side="right")
        for row in np.flatnonzero(values != most):
            values[row] = self._decide_exactly(UniformReal(int(bits[row]), 64, random_bytes))
        return values

    def _decide_exactly(self, uniform: UniformReal) -> int:
        indices = range(1, self.cumulative.size + 1)
        return bisect_left(indices, True, key=lambda i: uniform.is_below(partial(self.exact, i)))

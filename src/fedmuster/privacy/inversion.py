"""Draw small integers with exactly given probabilities, most of them from 16 random bits each."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedmuster.core.records import FloatArray
from fedmuster.privacy.randomness import RandomBytes, UniformReal, random_uint16

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

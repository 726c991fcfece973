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
from typing import Any, Final

import numpy as np

from fedmuster.core.errors import DataError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.privacy.randomness import RandomBytes, random_uint16

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

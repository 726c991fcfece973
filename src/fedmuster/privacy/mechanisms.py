"""The two mechanisms: clip an update, add noise that costs what the ledger debited.

Both release whole multiples of a power of two (``lattice.py``) with noise of exactly the stated
law (``discrete_laplace.py``, ``discrete_gaussian.py``). The promise is local: it holds between any
two updates that one client might send, so the sensitivity is twice the clip.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final, Literal

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError
from fedmuster.privacy.accounting import largest_rho, zcdp_epsilon
from fedmuster.privacy.discrete_noise import (
    Lattice,
    checked_update,
    discrete_gaussian,
    discrete_laplace,
    into_box,
    into_l1_ball,
    into_l2_ball,
)
from fedmuster.privacy.randomness import RandomBytes
from fedmuster.privacy.schedules import UNITS_PER_ONE, Currency, to_units

_LAPLACE_RADIUS: Final = 2**10  # steps: the clip is rounded down by less than a thousandth
_GAUSSIAN_RADIUS: Final = 2**16  # for d = 10^8 coordinates rounding takes 0.3 % of the norm
_SMALLEST_CLIP, _LARGEST_CLIP = 1e-20, 1e20  # with noise for 1e-9 it still fits float32


@dataclass(frozen=True, kw_only=True, slots=True)
class Laplace:
    """Laplace noise, for pure ε (PAUSE Eq. 5).

    Two modes that promise different things:

    - ``vector``: the update's L1 norm is clipped, the noise of each coordinate has the scale
      ``2 clip / ε``, and the whole update is ε-LDP (PAUSE, Theorem 1).
    - ``per-coordinate``: each coordinate is clipped, the noise has the same scale, and each
      *coordinate* is ε-LDP; a whole update of d coordinates is only ``d ε``-LDP. That is what
      PAUSE's authors run (their Δf is ``2 clip``).

    Args:
        mode: see above.
        clip: of the L1 norm, or of each coordinate.
    """

    name: ClassVar[str] = "laplace"

    mode: Literal["vector", "per-coordinate"] = "vector"
    clip: float = 1.0

    def __post_init__(self) -> None:
        check_types(self)
        _require_clip(self, self.clip)

    @property
    def currency(self) -> Currency:
        """What the ledger counts."""
        return "epsilon" if self.mode == "vector" else "epsilon-per-coordinate"

    def cap(self, epsilon: float) -> float:
        """How much of the currency a promise of ``epsilon`` allows: ``epsilon``."""
        return epsilon

    def noise_scale(self, amount: float) -> float:
        """b of one coordinate's noise, in the update's units."""
        lattice, rate = self._lattice(amount)
        return float(lattice.grid / rate)

    def release(self, update: Any, amount: float, random_bytes: RandomBytes) -> FloatArray:
        """The noisy update [d], for which ``amount`` of the currency was debited.

        Raises:
            DataError: a coordinate is not finite.
            ConfigError: the amount is less than a unit of the ledger or more than it counts.
        """
        lattice, rate = self._lattice(amount)
        into_ball = into_l1_ball if self.mode == "vector" else into_box
        steps = into_ball(checked_update(update), lattice, random_bytes)
        return _on_lattice(steps, discrete_laplace(rate, steps.size, random_bytes), lattice)

    def whole_vector_epsilon(self, amount: float, num_coordinates: int) -> float:
        """The ε of whole updates for which ``amount`` of the currency was spent in all."""
        return amount if self.mode == "vector" else num_coordinates * amount

    def describe(self, amount: float, num_coordinates: int) -> str:
        """What ``amount`` promises, for reports.

        Example:
            >>> Laplace(mode="per-coordinate").describe(40.0, 26_000)
            'Laplace per coordinate: ε = 40 of each coordinate is ε = 1,040,000 of the update'
        """
        if self.mode == "vector":
            return f"Laplace: ε = {amount:,.6g} of the update"
        whole = self.whole_vector_epsilon(amount, num_coordinates)
        return (
            f"Laplace per coordinate: ε = {amount:,.6g} of each coordinate is "
            f"ε = {whole:,.10g} of the update"
        )

    def _lattice(self, amount: float) -> tuple[Lattice, Fraction]:
        """The lattice, and what one step on it costs: the sensitivity, 2 radii, costs ε."""
        epsilon = _exact(self, amount)
        lattice = Lattice.of(
            clip=self.clip,
            noise_scale=2 * self.clip / float(epsilon),
            least_radius=_LAPLACE_RADIUS,
        )
        return lattice, epsilon / (2 * lattice.radius)  # 1 / (PAUSE Eq. 5's scale), in steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Gaussian:
    """Gaussian noise, for ρ-zCDP of the whole update, and so (ε, δ)-DP (Bun and Steinke 2016).

    The update's L2 norm is clipped; of d coordinates that leaves up to ``sqrt(d)`` times as much as
    an L1 clip of the same noise. A sum of ρ over releases is ρ of them all.

    Args:
        clip: of the L2 norm.
        delta: δ of the (ε, δ) into which ρ is converted, for the cap and for reports.
    """

    name: ClassVar[str] = "gaussian"

    clip: float = 1.0
    delta: float = 1e-6

    def __post_init__(self) -> None:
        check_types(self)
        _require_clip(self, self.clip)
        require(0 < self.delta < 1, self, "delta", "a number between 0 and 1")

    @property
    def currency(self) -> Currency:
        """What the ledger counts."""
        return "rho"

    def cap(self, epsilon: float) -> float:
        """The largest ρ that is still (``epsilon``, δ)-DP.

        By the conversion of Canonne, Kamath and Steinke (2020), which allows more than the simpler
        ``ε = ρ + 2 sqrt(ρ ln(1/δ))`` of Bun and Steinke (2016): ρ = 1.54 instead of 1.35 for
        ε = 10 and δ = 1e-6.
        """
        return largest_rho(epsilon, self.delta)

    def noise_scale(self, amount: float) -> float:
        """σ of one coordinate's noise, in the update's units."""
        lattice, variance = self._lattice(amount)
        return lattice.grid * math.sqrt(variance)

    def release(self, update: Any, amount: float, random_bytes: RandomBytes) -> FloatArray:
        """The noisy update [d], for which ``amount`` of ρ was debited. See :class:`Laplace`."""
        lattice, variance = self._lattice(amount)
        steps = into_l2_ball(checked_update(update), lattice, random_bytes)
        return _on_lattice(steps, discrete_gaussian(variance, steps.size, random_bytes), lattice)

    def whole_vector_epsilon(self, amount: float, num_coordinates: int) -> float:
        """The ε, at δ, of whole updates for which ``amount`` of ρ was spent in all."""
        return zcdp_epsilon(amount, self.delta)

    def describe(self, amount: float, num_coordinates: int) -> str:
        """What ``amount`` promises, for reports."""
        epsilon = self.whole_vector_epsilon(amount, num_coordinates)
        return (
            f"Gaussian: ρ = {amount:,.6g} of zCDP is ε = {epsilon:,.6g} of the update "
            f"at δ = {self.delta:g}"
        )

    def _lattice(self, amount: float) -> tuple[Lattice, Fraction]:
        """The lattice, and the noise's variance on it: ``(2 radii)^2 / (2 ρ)``."""
        rho = _exact(self, amount)
        lattice = Lattice.of(
            clip=self.clip,
            noise_scale=2 * self.clip / math.sqrt(2 * rho),
            least_radius=_GAUSSIAN_RADIUS,
        )
        return lattice, 2 * lattice.radius**2 / rho  # Canonne et al. 2020, Theorem 4


Mechanism = Laplace | Gaussian


def _on_lattice(steps: IntArray, noise: IntArray, lattice: Lattice) -> FloatArray:
    noise += steps
    released: FloatArray = noise * np.float64(
        lattice.grid
    )  # exact: whole numbers below 2^53 times a power of two
    return released


def _exact(owner: object, amount: float) -> Fraction:
    """The amount in whole units, as the ledger has it: noise for not a bit more than was paid."""
    units = to_units(amount)
    if units < 1:
        raise ConfigError(
            f"{type(owner).__name__}: a release for {amount!r}, expected at least "
            f"1e-9, a unit of the ledger: without a debit nothing is released"
        )
    return Fraction(units, UNITS_PER_ONE)


def _require_clip(owner: object, clip: float) -> None:
    expected = f"a number from {_SMALLEST_CLIP:g} to {_LARGEST_CLIP:g}"
    require(_SMALLEST_CLIP <= clip <= _LARGEST_CLIP, owner, "clip", expected)

"""Mechanisms: clip an update, add noise that costs what the ledger debited.

A mechanism declares facts about itself: its currency, its sensitivity, its δ, what it does to an
update. Every statement in reports, pages and ledger commands is made of these facts, so nothing
else needs to know which mechanism it is.

The two mechanisms here release whole multiples of a power of two with noise of exactly the stated
law (``discrete_noise.py``). Their promise is local: it holds between any two updates that one
client might send, so the sensitivity is twice the clip.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final, Literal

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, kind_of, named, require
from fedmuster.core.errors import ConfigError
from fedmuster.core.registry import Registry, is_outside
from fedmuster.privacy.accounting import (
    Currency,
    gaussian_epsilon,
    largest_rho,
    tighter_epsilon,
    zcdp_epsilon,
)
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
from fedmuster.privacy.schedules import UNITS_PER_ONE, to_units

_LAPLACE_RADIUS: Final = 2**10  # steps: the clip is rounded down by less than a thousandth
_GAUSSIAN_RADIUS: Final = 2**16  # for d = 10^8 coordinates rounding takes 0.3 % of the norm
_SMALLEST_CLIP, _LARGEST_CLIP = 1e-20, 1e20  # with noise for 1e-9 it still fits float32


class Mechanism(ABC):
    """Makes updates private, and declares what that costs and promises.

    A mechanism of your own is a frozen dataclass below this class with a ``name``, the ``noise``
    it adds, its ``currencies`` and the abstract members. Two mechanisms may share a currency only
    if their amounts mean the same and compose in the same way.
    """

    __slots__ = ()

    name: ClassVar[str]
    noise: ClassVar[str]
    """The noise's law, as reports name it."""
    currencies: ClassVar[tuple[Currency, ...]]
    """All currencies that its ledgers may count; usually one."""

    @property
    def currency(self) -> Currency:
        """What the ledger counts; the first of :attr:`currencies` unless overridden."""
        return self.currencies[0]

    @property
    def variant(self) -> str:
        """The noise, and the mode where there are several: a report names the mechanism so."""
        return self.noise

    @property
    @abstractmethod
    def delta(self) -> float:
        """δ of the (ε, δ) that is promised; 0 for pure ε."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """The largest distance of two clipped updates, in the norm that is clipped."""

    @property
    @abstractmethod
    def procedure(self) -> str:
        """A sentence: how updates are clipped and which noise they get."""

    @abstractmethod
    def cap(self, epsilon: float) -> float:
        """What a client may spend in all under a promise of (``epsilon``, δ), in the currency."""

    @abstractmethod
    def noise_scale(self, amount: float) -> float:
        """The scale of one coordinate's noise, in the update's units, for ``amount``.

        Raises:
            ConfigError: the amount is less than a unit of the ledger or more than it counts.
        """

    @abstractmethod
    def release(self, update: Any, amount: float, random_bytes: RandomBytes) -> FloatArray:
        """The noisy update [d], for which ``amount`` of the currency was debited.

        Raises:
            DataError: a coordinate is not finite.
            ConfigError: see :meth:`noise_scale`.
        """

    @abstractmethod
    def whole_vector_epsilon(self, amount: float, num_coordinates: int) -> float:
        """The ε, at δ, of whole updates for which ``amount`` of the currency was spent in all.

        ``num_coordinates`` matters only to a currency that is counted per coordinate.
        """

    def bound(self, epsilon: float, sign: str = "≤") -> str:
        """The promise of ``epsilon`` in symbols.

        Example:
            >>> Gaussian().bound(30.0), Laplace(mode="per-coordinate").bound(4.0, "=")
            ('ε ≤ 30, δ = 1e-06', 'ε = 4 per coordinate')
        """
        delta = f", δ = {self.delta:g}" if self.delta else ""
        return f"ε {sign} {epsilon:g}{delta}{' per coordinate' * self.currency.per_coordinate}"

    def describe(self, amount: float, num_coordinates: int | None) -> str:
        """What ``amount`` promises of an update of ``num_coordinates``, None if that is unknown.

        Example:
            >>> Laplace(mode="per-coordinate").describe(40.0, 26_000)
            'Laplace per coordinate: ε = 40 of each coordinate is ε = 1,040,000 of the update'
        """
        unit = self.currency
        measure = f" of {unit.measure}" if unit.measure else ""
        spent = f"{unit.symbol} = {amount:,.6g}{measure}"
        delta = f" at δ = {self.delta:g}" if self.delta else ""
        if unit.per_coordinate:
            spent = f"{self.noise} per coordinate: {spent} of each coordinate"
            if num_coordinates is None:
                return f"{spent}{delta}; the ε of a whole update grows with its coordinates"
            whole = self.whole_vector_epsilon(amount, num_coordinates)
            return f"{spent} is ε = {whole:,.10g} of the update{delta}"
        if not unit.is_epsilon:
            spent = f"{spent} is ε = {self.whole_vector_epsilon(amount, 1):,.6g}"
        return f"{self.noise}: {spent} of the update{delta}"


MECHANISMS: Final[Registry[Mechanism]] = Registry(
    "mechanism",
    Mechanism,
    modules=("fedmuster.privacy.mechanisms",),
    methods=("bound", "cap", "describe", "noise_scale", "release", "whole_vector_epsilon"),
    group="fedmuster.mechanisms",
)


@MECHANISMS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Laplace(Mechanism):
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
    noise: ClassVar[str] = "Laplace"
    currencies: ClassVar[tuple[Currency, ...]] = tuple(
        Currency(
            key=key,
            symbol="ε",
            per_coordinate=per_coordinate,
            methods={method: partial(tighter_epsilon, method=method) for method in ("rdp", "pld")},
        )
        for key, per_coordinate in (("epsilon", False), ("epsilon-per-coordinate", True))
    )

    mode: Literal["vector", "per-coordinate"] = "vector"
    clip: float = 1.0

    def __post_init__(self) -> None:
        check_types(self)
        _require_clip(self, self.clip)

    @property
    def currency(self) -> Currency:
        """ε of the update, or of each coordinate."""
        return self.currencies[self.mode == "per-coordinate"]

    @property
    def variant(self) -> str:
        """See :class:`Mechanism`."""
        return f"{self.noise}, {self.mode}"

    @property
    def delta(self) -> float:
        """0: ε is pure."""
        return 0.0

    @property
    def sensitivity(self) -> float:
        """Twice the clip, of the L1 norm or of each coordinate."""
        return 2 * self.clip

    @property
    def procedure(self) -> str:
        """See :class:`Mechanism`."""
        if self.mode == "vector":
            return f"Updates are clipped to an L1 norm of {self.clip:g} and get Laplace noise."
        return f"Each coordinate of an update is clipped to ±{self.clip:g} and gets Laplace noise."

    def cap(self, epsilon: float) -> float:
        """``epsilon``: amounts are ε."""
        return epsilon

    def noise_scale(self, amount: float) -> float:
        """b of one coordinate's noise, in the update's units."""
        lattice, rate = self._lattice(amount)
        return float(lattice.grid / rate)

    def release(self, update: Any, amount: float, random_bytes: RandomBytes) -> FloatArray:
        """See :class:`Mechanism`."""
        lattice, rate = self._lattice(amount)
        into_ball = into_l1_ball if self.mode == "vector" else into_box
        steps = into_ball(checked_update(update), lattice, random_bytes)
        return _on_lattice(steps, discrete_laplace(rate, steps.size, random_bytes), lattice)

    def whole_vector_epsilon(self, amount: float, num_coordinates: int) -> float:
        """``amount``, or that times the coordinates."""
        return amount if self.mode == "vector" else num_coordinates * amount

    def _lattice(self, amount: float) -> tuple[Lattice, Fraction]:
        """The lattice, and what one step on it costs: the sensitivity, 2 radii, costs ε."""
        epsilon = _exact(self, amount)
        lattice = Lattice.of(
            clip=self.clip,
            noise_scale=self.sensitivity / float(epsilon),
            least_radius=_LAPLACE_RADIUS,
        )
        return lattice, epsilon / (2 * lattice.radius)  # 1 / (PAUSE Eq. 5's scale), in steps


def _zcdp(amounts: Iterable[float], delta: float) -> float:
    # RDP of every order adds up, and is α ρ here: the sum of ρ is the whole account.
    return gaussian_epsilon(math.fsum(amounts), delta)


@MECHANISMS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Gaussian(Mechanism):
    """Gaussian noise, for ρ-zCDP of the whole update, and so (ε, δ)-DP (Bun and Steinke 2016).

    The update's L2 norm is clipped; of d coordinates that leaves up to ``sqrt(d)`` times as much as
    an L1 clip of the same noise. A sum of ρ over releases is ρ of them all.

    Args:
        clip: of the L2 norm.
        delta: δ of the (ε, δ) into which ρ is converted, for the cap and for reports.
    """

    name: ClassVar[str] = "gaussian"
    noise: ClassVar[str] = "Gaussian"
    currencies: ClassVar[tuple[Currency, ...]] = (
        Currency(key="rho", symbol="ρ", measure="zCDP", methods={"rdp": _zcdp}),
    )

    clip: float = 1.0
    delta: float = 1e-6

    def __post_init__(self) -> None:
        check_types(self)
        _require_clip(self, self.clip)
        require(0 < self.delta < 1, self, "delta", "a number between 0 and 1")

    @property
    def sensitivity(self) -> float:
        """Twice the clip, of the L2 norm."""
        return 2 * self.clip

    @property
    def procedure(self) -> str:
        """See :class:`Mechanism`."""
        return f"Updates are clipped to an L2 norm of {self.clip:g} and get Gaussian noise."

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
        """See :class:`Mechanism`."""
        lattice, variance = self._lattice(amount)
        steps = into_l2_ball(checked_update(update), lattice, random_bytes)
        return _on_lattice(steps, discrete_gaussian(variance, steps.size, random_bytes), lattice)

    def whole_vector_epsilon(self, amount: float, num_coordinates: int) -> float:
        """The ε, at δ, of ``amount`` of ρ."""
        return zcdp_epsilon(amount, self.delta)

    def _lattice(self, amount: float) -> tuple[Lattice, Fraction]:
        """The lattice, and the noise's variance on it: ``(2 radii)^2 / (2 ρ)``."""
        rho = _exact(self, amount)
        lattice = Lattice.of(
            clip=self.clip,
            noise_scale=self.sensitivity / math.sqrt(2 * rho),
            least_radius=_GAUSSIAN_RADIUS,
        )
        return lattice, 2 * lattice.radius**2 / rho  # Canonne et al. 2020, Theorem 4


def currency_of(key: str, mechanism: str | None = None) -> Currency | None:
    """What a ledger with the currency ``key`` counts; None where no mechanism tells.

    Args:
        key: as the ledger has it.
        mechanism: the name or address of the mechanism to ask; None for all that are registered.
    """
    kinds: Iterable[type[Mechanism]] = MECHANISMS.values()
    if mechanism is not None:
        kinds = [kind_of(MECHANISMS, mechanism, key=("mechanism",), what="mechanism")]
    units = [unit for kind in kinds for unit in getattr(kind, "currencies", ())]
    meant = [unit for unit in units if unit.key == key]
    return meant[0] if meant and all(unit == meant[0] for unit in meant) else None


def require_own_currency(mechanism: Mechanism) -> None:
    """Refuse a mechanism that does not declare its noise, or a currency of its own."""
    unit = getattr(mechanism, "currency", None)
    misfit = "it declares no currency" if not isinstance(unit, Currency) else ""
    if not isinstance(getattr(mechanism, "noise", None), str):
        misfit = "it declares no noise: write noise: ClassVar[str] = 'the law that reports name'"
    if isinstance(unit, Currency) and currency_of(unit.key) not in (None, unit):
        misfit = f"its currency {unit.key!r} is another mechanism's: choose a key of its own"
    if misfit:
        raise ConfigError(f"{type(mechanism).__name__}: {misfit}", key=("mechanism",))


def received_mechanism(table: Any) -> Mechanism:
    """A mechanism that another machine names: only registered ones, so that it imports nothing."""
    if isinstance(table, dict) and is_outside(str(table.get("name"))):
        raise ConfigError(
            f"mechanism {table['name']!r} is not registered here: install its package, with an "
            "entry point in the group fedmuster.mechanisms, on clients and server",
            key=("mechanism", "name"),
        )
    return named(MECHANISMS, table, key=("mechanism",), what="mechanism")


def _on_lattice(steps: IntArray, noise: IntArray, lattice: Lattice) -> FloatArray:
    noise += steps
    # exact: whole numbers below 2^53 times a power of two
    released: FloatArray = noise * np.float64(lattice.grid)
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

"""How much of its budget a client spends the i-th time it takes part, in whole units.

Privacy is counted in integers: sums are exact, and no rounding can pass a cap.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, Protocol

import numpy as np

from fedmuster.core.arrays import FloatArray, IntArray
from fedmuster.core.config import check_types, require
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.registry import Registry

UNITS_PER_ONE: Final = 10**9
"""A unit of a ledger is a billionth of its currency."""

_MOST = 10**6  # a larger ε promises nothing; its units are whole numbers in float64, too
MOST_UNITS: Final = _MOST * UNITS_PER_ONE
"""Of a cap or a debit."""


def to_units(amount: float) -> int:
    """The largest number of units that is not more than ``amount``."""
    if not 0 <= amount <= _MOST:
        raise ConfigError(f"a privacy budget of {amount!r}, expected a number from 0 to {_MOST:,}")
    units = math.floor(Fraction(amount) * UNITS_PER_ONE)  # a product of floats may round up
    # The float 0.57 is a little less than 570 000 000 units: take it for what it means.
    return units + 1 if to_amount(units + 1) == amount else units


def to_amount(units: int) -> float:
    """Units as an amount of the currency."""
    return units / UNITS_PER_ONE


class Schedule(Protocol):
    """How the participations of a client share its budget out.

    A schedule of your own is a frozen dataclass with a ``name`` and this method.
    """

    name: ClassVar[str]

    def spent_share(self, count: IntArray) -> FloatArray:
        """``F(count)``, the share of the budget that the first ``count`` participations spend.

        The share never falls, and is at most 1.
        """
        ...


SCHEDULES: Final[Registry[Schedule]] = Registry(
    "schedule",
    Schedule,
    modules=("fedmuster.privacy.schedules",),
    methods=("spent_share",),
    group="fedmuster.schedules",
)


@SCHEDULES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Geometric:
    """``eps_i = eps_bar (e^eta - 1) e^(-eta i)``: less every time, for ever (PAUSE Eq. 6).

    The sum of the first c is ``eps_bar (1 - e^(-eta c)) < eps_bar``.

    Args:
        eta: decay, > 0. PAUSE's authors: 0.04.
    """

    name: ClassVar[str] = "geometric"

    eta: float = 0.04

    def __post_init__(self) -> None:
        check_types(self)
        require(0 < self.eta < math.inf, self, "eta", "a number > 0")

    def spent_share(self, count: IntArray) -> FloatArray:
        """See :class:`Schedule`."""
        share: FloatArray = -np.expm1(-self.eta * count)  # PAUSE Eq. 6, summed
        return share


@SCHEDULES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Uniform:
    """The same every time, for a fixed number of participations; then the client is exhausted.

    The sum of the first c is ``eps_bar min(c, n) / n <= eps_bar``.

    Args:
        participations: n, how often a client may take part.
    """

    name: ClassVar[str] = "uniform"

    participations: int = 100

    def __post_init__(self) -> None:
        check_types(self)
        require(self.participations >= 1, self, "participations", "an integer >= 1")

    def spent_share(self, count: IntArray) -> FloatArray:
        """See :class:`Schedule`."""
        return np.minimum(count, self.participations) / self.participations


@SCHEDULES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Harmonic:
    """``eps_i`` in proportion to ``(i + a)^-(p+1)``: falls off more slowly than geometric.

    Telescoped, so that it sums in closed form: the first c spend ``1 - (a / (a + c))^p`` of the
    budget, which tends to 1 and never passes it (the plain harmonic series would).

    Args:
        power: p, > 0; the larger, the sooner the budget is spent.
        offset: a, > 0; the larger, the more even the first participations.
    """

    name: ClassVar[str] = "harmonic"

    power: float = 1.0
    offset: float = 10.0

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("power", "offset"):
            require(0 < getattr(self, name) < math.inf, self, name, "a number > 0")

    def spent_share(self, count: IntArray) -> FloatArray:
        """See :class:`Schedule`."""
        share: FloatArray = -np.expm1(-self.power * np.log1p(count / self.offset))
        return share


@SCHEDULES.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """Shares of the budget, written out: the first participation, the second, and so on.

    Args:
        shares: of the budget, each > 0; together at most 1. After the last a client is exhausted.
    """

    name: ClassVar[str] = "listed"

    shares: tuple[float, ...] = (0.5, 0.25, 0.125, 0.0625)

    def __post_init__(self) -> None:
        check_types(self)
        fits = len(self.shares) > 0 and all(0 < share <= 1 for share in self.shares)
        require(fits, self, "shares", "numbers > 0, and at most 1")
        total = math.fsum(self.shares)
        require(total <= 1 + 1e-12, self, "shares", f"a sum of at most 1, not {total:.6g}")

    def spent_share(self, count: IntArray) -> FloatArray:
        """See :class:`Schedule`."""
        sums = np.minimum(np.cumsum((0.0, *self.shares)), 1.0)
        share: FloatArray = sums[np.minimum(count, len(self.shares))]
        return share


def units_of_next(schedule: Schedule, cap_units: int, count: IntArray) -> IntArray:
    """What the participation after ``count`` others costs; sums to at most ``cap_units``.

    0 for a client that is exhausted.
    """
    before, after = (_spent_units(schedule, cap_units, c) for c in (count, count + 1))
    if (after < before - 1).any():  # one unit may be rounding
        raise DataError(f"{schedule} gives back what was spent, expected a share that never falls")
    units: IntArray = np.maximum(after - before, 0)
    return units


def _spent_units(schedule: Schedule, cap_units: int, count: IntArray) -> IntArray:
    share = schedule.spent_share(count)
    if not ((share >= 0.0) & (share <= 1.0)).all():  # NaN compares false
        raise DataError(f"{schedule} spends a share of {share}, expected numbers from 0 to 1")
    return np.floor(cap_units * share).astype(np.int64)

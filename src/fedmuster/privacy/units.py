"""Privacy is counted in integers: sums are exact, and no rounding can pass a cap."""

import math
from fractions import Fraction
from typing import Final, Literal

from fedmuster.core.errors import ConfigError

UNITS_PER_ONE: Final = 10**9
"""One unit is a billionth of ε (or of ρ)."""

Currency = Literal["epsilon", "epsilon-per-coordinate", "rho"]
"""What a ledger counts: ε of the whole update, ε of each coordinate of it, or ρ of zCDP."""

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
    """Units as ε (or ρ)."""
    return units / UNITS_PER_ONE

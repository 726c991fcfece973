"""A client's own limits: how it releases, and how much in all, whatever a server grants."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final

from fedmuster.core.config import configured, require, to_table
from fedmuster.core.errors import BudgetError, ConfigError, DataError, StateError
from fedmuster.flower.client_vault import VaultContents
from fedmuster.flower.wire import Ask
from fedmuster.privacy.mechanisms import MECHANISMS, Mechanism, require_own_currency
from fedmuster.privacy.schedules import UNITS_PER_ONE, to_amount, to_units

MECHANISM_KEY: Final = "privacy-mechanism"
MAX_EPSILON_KEY: Final = "privacy-max-epsilon"
LIMIT_KEYS: Final = frozenset({MECHANISM_KEY, MAX_EPSILON_KEY})
NODE_CONFIG_EXAMPLE: Final = f'{MECHANISM_KEY}="gaussian:clip=1.0,delta=1e-6" {MAX_EPSILON_KEY}=4.0'
"""As ``flower-supernode --node-config`` takes it."""
_LARGEST_EPSILON: Final = 1e6  # as in a promise of the server's; a larger one promises nothing


class Limits:
    """What a client allows.

    The server may choose each amount after it has seen earlier releases, because a sum of amounts
    that is held below a cap fixed beforehand is a valid privacy filter: of ε (Rogers, Roth, Ullman
    and Vadhan 2016) and of zCDP's ρ (Feldman and Zrnic 2021).

    Args:
        mechanism: the only one that makes its updates private; or the name of one, with settings.
        max_epsilon: all releases together are (``max_epsilon``, δ)-DP, with the mechanism's δ; each
            coordinate by itself is, where the mechanism counts so.

    Example:
        >>> limits = Limits("gaussian:clip=0.5,delta=1e-6", 10.0)
        >>> round(to_amount(limits.cap_units), 2)  # of ρ
        1.54
    """

    def __init__(self, mechanism: Mechanism | str, max_epsilon: float) -> None:
        self.mechanism = configured(MECHANISMS, mechanism, owner="PrivateMod")
        require_own_currency(self.mechanism)
        self.max_epsilon = max_epsilon
        expected = "a number from 1e-9 (a unit of the ledger) to a million"
        fits = isinstance(max_epsilon, Real) and not isinstance(max_epsilon, bool)
        require(fits and 0 < max_epsilon <= _LARGEST_EPSILON, self, "max_epsilon", expected)
        self.cap_units = to_units(self.mechanism.cap(max_epsilon))
        require(self.cap_units >= 1, self, "max_epsilon", expected)

    def check(self, granted: Mechanism) -> None:
        """Refuse the grant of another mechanism.

        An amount promises the same with every clip, but neither a larger nor a smaller one is more
        private: a smaller clip comes with less noise. So the clip must be this client's own. Of δ,
        which changes no noise, every side has its own: it converts ρ into ε.
        """
        if _settings(granted) != _settings(self.mechanism):
            raise DataError(
                f"grant: this client accepts the mechanism {_settings(self.mechanism)} alone, and "
                "the grant is of another: Muster's Privacy and the client must have the same"
            )


def chosen_limits(
    mechanism: Mechanism | str | None,
    max_epsilon: float | None,
    node_config: Mapping[str, bool | int | float | str],
) -> Limits | None:
    """The limits that the app and the node's operator set; what the operator says counts first."""
    named: Any = node_config.get(MECHANISM_KEY, mechanism)
    most: Any = node_config.get(MAX_EPSILON_KEY, max_epsilon)
    if named is None and most is None:
        return None
    if named is None or most is None:
        missing = "mechanism" if named is None else "max_epsilon"
        raise ConfigError(
            f"PrivateMod: {missing} is missing, and a limit needs a mechanism and max_epsilon: "
            "write PrivateMod(mechanism=Gaussian(clip=1.0, delta=1e-6), max_epsilon=4.0), or start "
            f"the SuperNode with --node-config '{NODE_CONFIG_EXAMPLE}'",
            key=(missing,),
        )
    return Limits(named, most)


def _settings(mechanism: Mechanism) -> dict[str, Any]:
    return {key: value for key, value in to_table(mechanism).items() if key != "delta"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Payment:
    """What one release costs a client.

    ``cap_units`` is the largest total that the client allows; None without limits.
    """

    run: str
    round: int
    currency: str
    units: int
    cap_units: int | None

    @classmethod
    def of(cls, ask: Ask, mechanism: Mechanism, amount: float, limits: Limits | None) -> "Payment":
        """The payment for a grant: for whole units, so that what is counted buys the noise."""
        units = to_units(amount)
        if units < 1:
            raise DataError(
                f"grant: of {amount!r}, expected at least {1 / UNITS_PER_ONE:g}, a unit of the "
                "ledger: without a debit nothing is released"
            )
        return cls(
            run=ask.run,
            round=ask.round,
            currency=mechanism.currency.key,
            units=units,
            cap_units=None if limits is None else limits.cap_units,
        )

    @property
    def amount(self) -> float:
        """What the mechanism may use up."""
        return to_amount(self.units)

    def on(self, before: VaultContents) -> VaultContents:
        """The vault after the payment; an error where the client does not allow it.

        The texts leave the client, so they do not say what it has released elsewhere.
        """
        if self.round <= before.rounds.get(self.run, 0):
            raise StateError(
                f"round {self.round} of run {self.run} was released, or is over: nothing is "
                "released twice"
            )
        after = before.after(
            run=self.run, round_=self.round, currency=self.currency, units=self.units
        )
        if self.cap_units is None:
            return after
        if after.released.keys() != {self.currency}:
            raise StateError(
                f"this client's record also counts releases in another currency than "
                f"{self.currency!r}, and the two do not add up: give it back the mechanism that it "
                "had, or a new file, which forgets what was released"
            )
        if after.released[self.currency] > self.cap_units:
            raise BudgetError(
                f"a release for {self.amount:g} would pass the largest total that this client "
                "allows (max_epsilon), so nothing is released"
            )
        return after

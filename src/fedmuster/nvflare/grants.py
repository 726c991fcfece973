"""Grants: what a client has paid for, on its way with the work of a round."""

import json
import math
from dataclasses import dataclass
from typing import Any, Final, Self

from fedmuster.core.config import to_table
from fedmuster.core.errors import ConfigError, DataError
from fedmuster.core.records import is_integer
from fedmuster.privacy.mechanisms import Mechanism, received_mechanism

_HEADER: Final = "fedmuster_grant"
_LONGEST: Final = 4_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """A debit of the server's, by which a client may release an update.

    Args:
        run: the run's id.
        round: its round.
        amount: in the mechanism's currency, as the ledger has it.
        mechanism: that makes the release private.
    """

    run: str
    round: int
    amount: float
    mechanism: Mechanism

    def into(self, work: Any) -> None:
        """Add the grant to a client's own copy of the work."""
        told = {"run": self.run, "round": self.round, "amount": self.amount}
        work.set_header(_HEADER, json.dumps({**told, "mechanism": to_table(self.mechanism)}))

    @classmethod
    def of(cls, work: Any) -> Self:
        """The grant that came with the work; a :class:`DataError` if there is none, or no such."""
        text = work.get_header(_HEADER)
        if not isinstance(text, str) or len(text) > _LONGEST:
            raise DataError(
                "no grant came with the work, so nothing is released: give the server's workflow a "
                "privacy=…"
            )
        try:
            told = json.loads(text)
            run, number, amount = told["run"], told["round"], told["amount"]
            mechanism = received_mechanism(told["mechanism"])
        except (ValueError, TypeError, KeyError, RecursionError, ConfigError) as error:
            raise DataError(f"the grant cannot be read: {error}") from None
        is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
        known = isinstance(run, str) and 0 < len(run) <= 200 and is_integer(number, least=1)
        if not known or not is_number or not 0 < amount < math.inf:
            raise DataError(f"the grant is of run {run!r}, round {number!r}, amount {amount!r}")
        return cls(run=run, round=int(number), amount=float(amount), mechanism=mechanism)

"""What a client demands of the receipt that comes with a grant.

A client holds to one ledger: it keeps the newest receipt beside its releases, and what the next one
proves must follow from it. A server that rewrote its ledger, runs a copy of it, or begins a new one
gets nothing from the clients that have a receipt.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from fedmuster.core.errors import ConfigError, DataError, LedgerError
from fedmuster.flower.client_vault import VaultContents
from fedmuster.flower.release_limits import Payment
from fedmuster.privacy.ledger.notes import VerifierKey
from fedmuster.privacy.ledger.receipts import Receipt

LEDGER_KEY: Final = "privacy-ledger-key"
"""Where ``node_config`` holds the public key of the one ledger that a client accepts."""


class GrantReceipt:
    """A receipt, whose proofs hold, for what a grant grants.

    Args:
        text: as it came; empty where the grant brings none.
        payment: what the grant says.
        key: the public key of the ledger that the client accepts; None for the first that comes.
    """

    def __init__(self, text: str, payment: Payment, key: VerifierKey | None) -> None:
        self._receipt = Receipt.of_json(text) if text else None
        self._key = key
        if self._receipt is not None:
            _require_same(self._receipt, payment)

    @property
    def text(self) -> str:
        """As it came, for the evidence of a client that refuses it."""
        return "" if self._receipt is None else self._receipt.to_json()

    def on(self, vault: VaultContents) -> VaultContents:
        """The vault with this receipt in place of the last one.

        Raises:
            LedgerError: the receipt does not follow from the last one, or there is none.
        """
        receipt, held = self._receipt, receipt_in(vault)
        if receipt is None:
            if held is not None or self._key is not None:
                raise LedgerError(
                    "the grant brings no receipt of a ledger, and this client had one before, or "
                    f"demands one ({LEDGER_KEY}): nothing shows that its debits are kept"
                )
            return vault
        if self._key is not None and receipt.key != str(self._key):
            raise LedgerError(
                f"the receipt is of the ledger with the key {receipt.key}, this client accepts "
                f"{self._key} alone"
            )
        # Another ledger than before is accepted only if the client's own operator has named it.
        if held is not None and (held.key == receipt.key or self._key is None):
            receipt.require_follows(held)
        kept = receipt.kept(time.time_ns() // 1000)
        return replace(vault, receipt=kept.to_json())


def receipt_in(vault: VaultContents) -> Receipt | None:
    """The newest receipt that the client holds."""
    return Receipt.of_json(vault.receipt) if vault.receipt else None


def log_size_in(vault: VaultContents) -> int:
    """How many leaves the ledger's log had in the client's newest receipt; 0 without one."""
    held = receipt_in(vault)
    return 0 if held is None else held.state.size


def chosen_key(text: str | None, node_config: Mapping[str, Any]) -> VerifierKey | None:
    """The ledger's key that the node's operator, or else the app, names."""
    named = node_config.get(LEDGER_KEY, text)
    if named is None:
        return None
    try:
        return VerifierKey.of(named)
    except (DataError, AttributeError) as error:
        raise ConfigError(
            f"PrivateMod: ledger_key cannot be read: {error}; it is in the file NAME.vkey beside "
            "the server's ledger",
            key=("ledger_key",),
        ) from None


def _require_same(receipt: Receipt, payment: Payment) -> None:
    said = receipt.statement()
    debit = said.debit
    expected = (payment.run, payment.round, payment.units, payment.currency, "real")
    found = (said.run.text, debit.round, debit.units, said.ledger.currency, said.ledger.kind)
    if found != expected:
        raise LedgerError(
            f"the receipt is of a debit of {debit.units:,} units for round {debit.round} of run "
            f"{said.run.text} in {said.ledger.currency} ({said.ledger.kind}), and the grant is of "
            f"{payment.units:,} units for round {payment.round} of run {payment.run} in "
            f"{payment.currency}"
        )

"""A ledger of privacy budgets that an auditor can accept; docs/ledger.md has its format."""

from fedmuster.privacy.ledger.chain import ChainHead, LedgerKind
from fedmuster.privacy.ledger.debits import Balances, Debit, Ledger
from fedmuster.privacy.ledger.evidence import Evidence
from fedmuster.privacy.ledger.notes import VerifierKey
from fedmuster.privacy.ledger.reading import Audit, audit
from fedmuster.privacy.ledger.receipts import Receipt
from fedmuster.privacy.ledger.verification import Verification, accept_clock, adopt, verify
from fedmuster.privacy.ledger.witness import Witness, WitnessRequest

__all__ = [
    "Audit",
    "Balances",
    "ChainHead",
    "Debit",
    "Evidence",
    "Ledger",
    "LedgerKind",
    "Receipt",
    "Verification",
    "VerifierKey",
    "Witness",
    "WitnessRequest",
    "accept_clock",
    "adopt",
    "audit",
    "verify",
]

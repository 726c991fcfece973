"""A ledger of privacy budgets that an auditor can accept; docs/ledger.md has its format."""

from fedmuster.privacy.ledger.chain import ChainHead, LedgerKind
from fedmuster.privacy.ledger.debits import Balances, Debit, Ledger
from fedmuster.privacy.ledger.reading import Audit, audit
from fedmuster.privacy.ledger.verification import Verification, accept_clock, adopt, verify

__all__ = [
    "Audit",
    "Balances",
    "ChainHead",
    "Debit",
    "Ledger",
    "LedgerKind",
    "Verification",
    "accept_clock",
    "adopt",
    "audit",
    "verify",
]

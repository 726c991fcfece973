"""A ledger of privacy budgets that an auditor can accept; docs/ledger.md has its format."""

from fedmuster.privacy.ledger.chain import Head, LedgerKind
from fedmuster.privacy.ledger.ledger import Balances, Debit, Ledger

__all__ = ["Balances", "Debit", "Head", "Ledger", "LedgerKind"]

"""The chain: each entry's digest covers the entry and the digest before it.

``digest_n = SHA-256(digest_(n-1) ‖ line_n)``, where ``line_n`` is the entry's columns as text with
tabs between them. The only free text comes last, so no two entries have the same line.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import chain as joined
from typing import Final, Literal, NamedTuple, get_args

import numpy as np

from fedmuster.core.arrays import IntArray

LedgerKind = Literal["real", "simulated"]
"""Whether the budgets are people's, or those of clients that exist in a simulation only."""

EntryKind = Literal["accounts", "run", "debit", "adopt", "clock"]
ENTRY_KINDS: Final[tuple[str, ...]] = get_args(EntryKind)


class Head(NamedTuple):
    """The newest entry of a chain; entry 0 is the ledger itself."""

    sequence: int
    digest: str
    """64 hexadecimal digits."""


class Entry(NamedTuple):
    """What is on record. 0 and the empty text stand where a kind of entry has no use for a column.

    ============ =================================================================================
    kind         meaning
    ============ =================================================================================
    ``accounts`` ``clients`` clients got the accounts from ``account`` on, each with the cap
                 ``units``; ``text`` is :func:`digest_of_identities` of them
    ``run``      the run with the id ``text`` debits for the first time; from now on ``run`` is
                 this entry's sequence number
    ``debit``    ``account`` paid ``units`` for ``round`` of ``run``
    ``adopt``    an operator accepted the ledger on a machine that did not know it
    ``clock``    an operator accepted that the clock went back; the only entry that may be earlier
                 than the one before it
    ============ =================================================================================
    """

    sequence: int
    time_us: int
    """UTC, microseconds since 1970."""
    kind: str
    run: int
    round: int
    account: int
    clients: int
    units: int
    text: str


class Info(NamedTuple):
    """What a ledger is, fixed when it was made."""

    id: str
    currency: str
    kind: str
    created_us: int

    def digest(self) -> bytes:
        """Where the chain begins."""
        return sha256("\t".join(("fedmuster-ledger-1", *map(str, self))).encode()).digest()


def link(previous: bytes, entry: Iterable[object]) -> bytes:
    """The digest of the entry that follows the one with the digest ``previous``."""
    return sha256(previous + "\t".join(map(str, entry)).encode()).digest()


def digest_of_identities(identities: Iterable[str]) -> str:
    """SHA-256 over the identities in order, each as its length in bytes (4, big-endian) and UTF-8.

    Example:
        >>> digest_of_identities(["ab"]) == digest_of_identities(["a", "b"])
        False
    """
    encoded = (identity.encode() for identity in identities)
    return sha256(b"".join(len(each).to_bytes(4) + each for each in encoded)).hexdigest()


class Links:
    """Entries to be appended in one transaction, with the same time."""

    def __init__(self, *, sequence: int, digest: bytes, time_us: int) -> None:
        self.sequence = sequence
        self.digest = digest
        self.rows: list[tuple[object, ...]] = []
        """The columns of each entry, and its digest."""
        self._time_us = time_us

    @property
    def head(self) -> Head:
        """The newest of them."""
        return Head(self.sequence, self.digest.hex())

    def add(
        self,
        kind: EntryKind,
        *,
        run: int = 0,
        in_round: int = 0,
        account: int = 0,
        clients: int = 0,
        units: int = 0,
        text: str = "",
    ) -> int:
        """Link one more entry; its sequence number."""
        self.sequence += 1
        entry = (self.sequence, self._time_us, kind, run, in_round, account, clients, units, text)
        self.digest = link(self.digest, entry)
        self.rows.append((*entry, self.digest))
        return self.sequence


# What is asked of the database, in few statements for many clients.


class Last(NamedTuple):
    """The newest entry; of a ledger without entries, the ledger itself."""

    sequence: int
    time_us: int
    digest: bytes


def last_entry(database: sqlite3.Connection, info: Info) -> Last:
    """Where the chain ends."""
    row = database.execute(
        "SELECT sequence, CAST(time_us AS INTEGER), CAST(digest AS BLOB) FROM entries "
        "ORDER BY sequence DESC LIMIT 1"
    ).fetchone()
    return Last(0, info.created_us, info.digest()) if row is None else Last(*row)


def digest_at(database: sqlite3.Connection, info: Info, sequence: int) -> str | None:
    """The digest of an entry; None if there is no such entry."""
    if sequence == 0:
        return info.digest().hex()
    row = database.execute(
        "SELECT lower(hex(digest)) FROM entries WHERE sequence = ?", (sequence,)
    ).fetchone()
    return None if row is None else row[0]


def balances_of(database: sqlite3.Connection, accounts: IntArray) -> IntArray:
    """[n, 4] account, spent units, debits and cap units of those of ``accounts`` that exist."""
    return integer_table(
        database.execute(
            "SELECT account, spent_units, debits, cap_units FROM json_each(?) AS wanted "
            "JOIN accounts ON account = wanted.value",
            (json.dumps(accounts.tolist()),),
        ),
        width=4,
    )


def accounts_of(database: sqlite3.Connection, identities: Sequence[str]) -> IntArray:
    """[n, 3] place in ``identities``, account and cap units of those that are known."""
    return integer_table(
        database.execute(
            "SELECT wanted.key, account, cap_units FROM json_each(?) AS wanted "
            "JOIN accounts ON identity = wanted.value",
            (json.dumps(identities),),
        ),
        width=3,
    )


def identities_of(database: sqlite3.Connection, accounts: IntArray) -> list[str]:
    """The identity of each account, in order."""
    find = "SELECT identity FROM accounts WHERE account = ?"
    return [database.execute(find, (account,)).fetchone()[0] for account in accounts.tolist()]


def run_number(database: sqlite3.Connection, run: str) -> int | None:
    """The entry that introduced the run; None if it has never debited."""
    row = database.execute(
        "SELECT sequence FROM entries WHERE kind = 'run' AND text = ?", (run,)
    ).fetchone()
    return None if row is None else row[0]


def debits_of_round(database: sqlite3.Connection, run: int, number: int) -> IntArray:
    """[n, 2] accounts, increasing, and units that are on record for a round."""
    return integer_table(
        database.execute(
            "SELECT account, units FROM entries "
            "WHERE kind = 'debit' AND run = ? AND round = ? ORDER BY account",
            (run, number),
        ),
        width=2,
    )


def integer_table(rows: Iterable[tuple[int, ...]], *, width: int) -> IntArray:
    """Rows of integers as an array [n, width]."""
    return np.fromiter(joined.from_iterable(rows), dtype=np.int64).reshape(-1, width)

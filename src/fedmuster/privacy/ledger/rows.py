"""What is asked of the database, in few statements for many clients."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain as joined
from typing import NamedTuple

import numpy as np

from fedmuster.core.records import IntArray
from fedmuster.privacy.ledger.chain import Info


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

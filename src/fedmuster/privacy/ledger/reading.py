"""What a ledger says, for people and programs that only read."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger.chain import Head, Info, last_entry
from fedmuster.privacy.ledger.schema import open_to_read, read_info

LEVELS_PERCENT: Final = (50, 90, 99, 100)

EXPORTED: Final = (
    "sequence",
    "time_us",
    "kind",
    "run",
    "round",
    "account",
    "clients",
    "units",
    "text",
    "digest",
    "run_id",
    "identity",
)
"""The chained columns as they are hashed, the digest, and whom a debit's numbers stand for."""


class Standing(NamedTuple):
    """One account."""

    account: int
    identity: str
    cap_units: int
    spent_units: int
    debits: int


class Payment(NamedTuple):
    """One debit of a client."""

    sequence: int
    time_us: int
    run: str
    round: int
    units: int
    spent_units: int
    """What the client had spent after it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """A ledger in few numbers.

    Args:
        info: what it is.
        head: its newest entry.
        newest_us: when that was written (or the ledger made).
        clients: how many have an account.
        unspent: how many of them never paid.
        at_least: for each of :data:`LEVELS_PERCENT`, how many have spent so much of their cap.
        debits: how many there are.
        runs: how many runs have debited.
        top: who has spent most of the cap, first.
    """

    info: Info
    head: Head
    newest_us: int
    clients: int
    unspent: int
    at_least: dict[int, int]
    debits: int
    runs: int
    top: list[Standing]


def summarise(path: Path, *, top: int = 10) -> Summary:
    """Totals, and the ``top`` clients that have spent the largest share of their cap."""
    with reading(path) as (database, info):
        last = last_entry(database, info)
        levels = ", ".join(
            f"count(*) FILTER (WHERE spent_units * 100 >= cap_units * {level})"
            for level in LEVELS_PERCENT
        )
        clients, debits, unspent, *reached = database.execute(
            "SELECT count(*), coalesce(sum(debits), 0), count(*) FILTER (WHERE debits = 0), "
            f"{levels} FROM accounts"
        ).fetchone()
        (runs,) = database.execute("SELECT count(*) FROM entries WHERE kind = 'run'").fetchone()
        spenders = database.execute(
            "SELECT * FROM accounts WHERE debits > 0 "
            "ORDER BY 1.0 * spent_units / cap_units DESC, account LIMIT ?",
            (top,),
        ).fetchall()
    return Summary(
        info=info,
        head=Head(last.sequence, last.digest.hex()),
        newest_us=last.time_us,
        clients=clients,
        unspent=unspent,
        at_least=dict(zip(LEVELS_PERCENT, reached, strict=True)),
        debits=debits,
        runs=runs,
        top=[Standing(*row) for row in spenders],
    )


def history(path: Path, identity: str) -> tuple[Info, Standing, list[Payment]]:
    """How a client stands, and its debits in order."""
    with reading(path) as (database, info):
        row = database.execute("SELECT * FROM accounts WHERE identity = ?", (identity,)).fetchone()
        if row is None:
            raise LedgerError(f"{path} has no client {identity!r}")
        standing = Standing(*row)
        payments = database.execute(
            "SELECT debit.sequence, debit.time_us, run.text, debit.round, debit.units, "
            "sum(debit.units) OVER (ORDER BY debit.sequence) "
            "FROM entries AS debit JOIN entries AS run ON run.sequence = debit.run "
            "WHERE debit.kind = 'debit' AND debit.account = ? ORDER BY debit.sequence",
            (standing.account,),
        ).fetchall()
    return info, standing, [Payment(*payment) for payment in payments]


def all_entries(database: sqlite3.Connection) -> Iterator[tuple[int | str, ...]]:
    """Every entry in order, with the columns :data:`EXPORTED`."""
    return database.execute(
        "SELECT e.sequence, e.time_us, e.kind, e.run, e.round, e.account, e.clients, e.units, "
        "e.text, lower(hex(e.digest)), coalesce(r.text, ''), coalesce(a.identity, '') "
        "FROM entries AS e "
        "LEFT JOIN entries AS r ON e.kind = 'debit' AND r.sequence = e.run "
        "LEFT JOIN accounts AS a ON e.kind = 'debit' AND a.account = e.account "
        "ORDER BY e.sequence"
    )


def all_accounts(database: sqlite3.Connection) -> Iterator[Standing]:
    """Every account in order."""
    return map(Standing._make, database.execute("SELECT * FROM accounts ORDER BY account"))


@contextmanager
def reading(path: Path) -> Iterator[tuple[sqlite3.Connection, Info]]:
    """One moment of the ledger, and what it is."""
    with open_to_read(path := path.resolve()) as database:
        yield database, read_info(path, database)

"""The digests by which a journal shows that none of its rows was changed, added or lost.

The rows of a round (of all tables that have a row for it) are linked to the round before:
``digest_t = SHA-256(digest_(t-1) ‖ rows of round t)``. Each table with a single row, or with few,
has a seal of its own; the seal of the chain says where the chain ends. Digests are computed from
what SQLite returns after writing, within the same transaction.

Digests are no signatures: they find damage, not a forger who computes them anew.
"""

import hashlib
import sqlite3
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

_LINKED: Final = ("rounds", "scores", "network", "jobs", "metrics")
SEALED: Final = (
    *("identity", "origin", "ending", "starts", "clients", "loop", "afterwards", "checkpoint"),
    "unlinked",
)
_CHAIN: Final = "chain"

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS chain (round INTEGER PRIMARY KEY, digest BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS seals (name TEXT PRIMARY KEY, digest BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS unlinked (id INTEGER PRIMARY KEY CHECK (id = 0), round INTEGER NOT NULL);
"""
"""``unlinked`` holds the last round that was written before journals had digests."""

_START: Final = b""


def seal(database: sqlite3.Connection, *, tables: set[str], first_round: int | None) -> None:
    """Compute the digests of these tables anew, and those of the chain from a round on."""
    if first_round is not None:
        _link(database, first_round)
    for name in (*tables, *([_CHAIN] if first_round is not None else [])):
        digest = _digest_of_table(database, name)
        database.execute("INSERT OR REPLACE INTO seals VALUES (?, ?)", (name, digest))


def seal_everything(database: sqlite3.Connection) -> None:
    """Compute all digests anew."""
    seal(database, tables=set(SEALED), first_round=0)


def faults(database: sqlite3.Connection) -> Iterator[str]:
    """What does not fit its digest, the first bad row first; nothing in a sound journal."""
    written = dict(database.execute("SELECT round, digest FROM chain ORDER BY round").fetchall())
    previous = _START
    for number, content in _contents(database, first_round=None):
        if number not in written:
            yield f"round {number}: it was added, or its digest was lost"
        elif written[number] != _linked(previous, content):
            yield f"round {number}: one of its rows was changed, or a row before it is missing"
        previous = written.pop(number, previous)
    for number in written:
        yield f"round {number}: its rows are missing"
    seals = dict(database.execute("SELECT name, digest FROM seals").fetchall())
    for name in (_CHAIN, *SEALED):
        if seals.pop(name, None) != _digest_of_table(database, name):
            yield f"{name}: a row was changed, added or lost"
    for name in seals:
        yield f"seals: there is no table {name!r}"


def _link(database: sqlite3.Connection, first_round: int) -> None:
    database.execute("DELETE FROM chain WHERE round >= ?", (first_round,))
    last = database.execute("SELECT digest FROM chain ORDER BY round DESC LIMIT 1").fetchone()
    previous = _START if last is None else last[0]
    links = []
    for number, content in _contents(database, first_round=first_round):
        previous = _linked(previous, content)
        links.append((number, previous))
    database.executemany("INSERT INTO chain VALUES (?, ?)", links)


def _linked(previous: bytes, content: bytes) -> bytes:
    return hashlib.sha256(previous + content).digest()


def _contents(
    database: sqlite3.Connection, *, first_round: int | None
) -> Iterator[tuple[int, bytes]]:
    """The rows of each round from ``first_round`` on, of all linked tables, as bytes."""
    where, values = ("", ()) if first_round is None else (" WHERE round >= ?", (first_round,))
    rows: list[tuple[int, int, bytes]] = []
    for place, table in enumerate(_LINKED):
        found = database.execute(f"SELECT * FROM {table}{where} ORDER BY round, rowid", values)
        rows += ((row[0], place, _encoded(table, row)) for row in found)
    rows.sort(key=itemgetter(0, 1))
    for number, parts in groupby(rows, key=itemgetter(0)):
        yield number, b"".join(part for _, _, part in parts)


def _digest_of_table(database: sqlite3.Connection, name: str) -> bytes:
    query = f"SELECT * FROM {name} ORDER BY rowid"
    if name == _CHAIN:  # its end stands for all of it
        query = "SELECT count(*), max(round), (SELECT digest FROM chain ORDER BY round DESC) FROM "
        query += _CHAIN
    digest = hashlib.sha256()
    for row in database.execute(query):
        digest.update(_encoded(name, row))
    return digest.digest()


def _encoded(table: str, row: tuple[object, ...]) -> bytes:
    """The row as bytes, no two rows alike: each value with its type and its length."""
    parts = [f"{table} {len(row)}\n".encode()]
    for value in row:
        data = value if isinstance(value, bytes) else repr(value).encode()
        parts += (f"{type(value).__name__} {len(data)}\n".encode(), data)
    return b"".join(parts)

"""What an operator can write who owns a ledger, its heads and its state folder."""

import json
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path


def forge(path: Path, state: Path, *changes: str) -> None:
    """Change entries, then make everything fit again: digests, balances, heads."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        triggers = database.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid"
        ).fetchall()
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        for change in changes:
            database.execute(change)
        info = database.execute("SELECT id, currency, kind, created_us FROM ledger").fetchone()
        digest = sha256("\t".join(["fedmuster-ledger-1", *map(str, info)]).encode()).digest()
        for *entry, _ in database.execute("SELECT * FROM entries ORDER BY sequence").fetchall():
            digest = sha256(digest + "\t".join(map(str, entry)).encode()).digest()
            change = "UPDATE entries SET digest = ? WHERE sequence = ?"
            database.execute(change, (digest, entry[0]))
        database.execute(
            "UPDATE accounts SET (spent_units, debits) = (SELECT coalesce(sum(units), 0), count(*) "
            "FROM entries WHERE kind = 'debit' AND account = accounts.account)"
        )
        (last,) = database.execute("SELECT max(sequence) FROM entries").fetchone()
        for _, sql in triggers:
            database.execute(sql)
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for head in (path.with_name(f"{path.name}.head"), state / f"{info[0]}.head"):
        line = f"fedmuster-ledger-head-1 {info[0]} {last:020d} {digest.hex()}\n"
        head.write_text(line + json.dumps(str(path)) + "\n")

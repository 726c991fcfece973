"""What must hold before anything is written: the right file, whole and newest; a sane clock."""

import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger.anchor import Anchor
from fedmuster.privacy.ledger.chain import Entry, Head, Info, link
from fedmuster.privacy.ledger.rows import Last, digest_at, last_entry

LARGEST_STEP_BACK_US: Final = 60_000_000
_TAIL: Final = 256
_MICROSECONDS: Final = 1_000_000


class OpenFiles:
    """The ledger and its log as they were when we opened them.

    SQLite goes on writing into a file that was deleted or replaced, and nobody would ever see it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = (path, path.with_name(f"{path.name}-wal"))
        self._known = [_number(file) for file in self._files]
        if (names := path.stat().st_nlink) > 1:
            raise LedgerError(
                f"{path} has {names} names (hard links), and each would have a log of its own: "
                "remove the others, or make a real copy"
            )

    def check(self) -> None:
        """Refuse if somebody has put other files in their place."""
        for file, known in zip(self._files, self._known, strict=True):
            if _number(file) != known:
                raise LedgerError(
                    f"{file} was replaced or deleted while it was in use: stop every run on it, "
                    "then check the ledger with fedmuster ledger verify"
                )


def check_tail(path: Path, database: sqlite3.Connection, info: Info) -> None:
    """The newest entries fit together, and the balances count as many debits as there are."""
    rows = database.execute(
        "SELECT * FROM (SELECT * FROM entries ORDER BY sequence DESC LIMIT ?) ORDER BY sequence",
        (_TAIL,),
    ).fetchall()
    before = rows[0][0] - 1 if rows else 0
    stored = digest_at(database, info, before)
    digest = b"" if stored is None else bytes.fromhex(stored)
    for expected, row in enumerate(rows, start=before + 1):
        digest = link(digest, row[: len(Entry._fields)])
        if row[0] != expected or row[-1] != digest:
            raise LedgerError(
                f"{path} is damaged or was tampered with: entry {row[0]:,} does not fit the one "
                "before it; see fedmuster ledger verify, restore the newest copy"
            )
    (others,) = database.execute("SELECT count(*) FROM entries WHERE kind <> 'debit'").fetchone()
    (counted,) = database.execute("SELECT coalesce(sum(debits), 0) FROM accounts").fetchone()
    if (debits := before + len(rows) - others) != counted:
        raise LedgerError(
            f"{path} is damaged or was tampered with: it has {debits:,} debits, the balances "
            f"count {counted:,}; see fedmuster ledger verify, restore the newest copy"
        )


def check_contains(
    path: Path, database: sqlite3.Connection, info: Info, head: Head, *, source: str
) -> None:
    """The chain has this entry, with this digest."""
    if digest_at(database, info, head.sequence) == head.digest:
        return
    last = last_entry(database, info).sequence
    if last < head.sequence:
        raise LedgerError(
            f"{path} was restored from an old backup: {head.sequence - last:,} entries are "
            f"missing (it ends at entry {last:,}, {source} knows entry {head.sequence:,}); "
            "restore the newest copy, with its -wal file if it has one"
        )
    raise LedgerError(
        f"{path} is not the ledger that {source} knows: entry {head.sequence:,} is another one; "
        "it was restored from an old backup and written to, tampered with, or replaced"
    )


def check_anchors(
    path: Path, database: sqlite3.Connection, info: Info, anchors: Iterable[Anchor]
) -> None:
    """The ledger is the newest of its kind, as far as anybody outside of it knows."""
    for anchor in anchors:
        note = anchor.read()
        if note is None:
            raise LedgerError(
                f"{path} is not known here: {anchor.path} is missing (the ledger was moved or "
                "copied, or the file was deleted). If this is the newest copy and no other is in "
                "use: fedmuster ledger adopt"
            )
        if note.ledger != info.id:
            raise LedgerError(
                f"{path} was replaced by another ledger ({info.id}): {anchor.path} belongs to "
                f"{note.ledger}; put each ledger back in its place"
            )
        check_contains(path, database, info, note.head, source=str(anchor.path))


def time_of_next(path: Path, last: Last, now_us: int) -> int:
    """When the next entry is written; never earlier than the last, if need be by a small lie."""
    if now_us < last.time_us - LARGEST_STEP_BACK_US:
        raise LedgerError(
            f"{path}: the clock says {utc(now_us)}, but the newest entry is of "
            f"{utc(last.time_us)}. Set the clock right; if it is right and the entry was written "
            "with a wrong one: fedmuster ledger accept-clock"
        )
    return max(now_us, last.time_us)


def utc(time_us: int) -> str:
    """For people.

    Example:
        >>> utc(1_700_000_000_000_000)
        '2023-11-14 22:13:20 UTC'
    """
    try:
        return f"{datetime.fromtimestamp(time_us // _MICROSECONDS, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # a year that no calendar has
        return f"{time_us} µs after 1970"


def _number(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino

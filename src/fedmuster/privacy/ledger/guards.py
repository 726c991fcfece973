"""What must hold before anything is written: the right file, whole and newest; a sane clock."""

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from fedmuster.core.errors import LedgerError
from fedmuster.core.files import write_file
from fedmuster.privacy.ledger.chain import Entry, Head, Info, Last, digest_at, last_entry, link
from fedmuster.privacy.ledger.schema import plain_errors

STATE_FOLDER_VARIABLE: Final = "FEDMUSTER_STATE"
_TITLE: Final = "fedmuster-ledger-head-1"


class Note(NamedTuple):
    """What an anchor says: this ledger, there, has come so far."""

    ledger: str
    head: Head
    place: Path

    def to_line(self) -> bytes:
        """All but the place, in a length that never changes."""
        return f"{_TITLE} {self.ledger} {self.head.sequence:020d} {self.head.digest}\n".encode()

    def to_bytes(self) -> bytes:
        """The whole file."""
        return self.to_line() + json.dumps(str(self.place)).encode() + b"\n"


class Anchor:
    """One such file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Note | None:
        """What it says; None if it is not there."""
        try:
            with plain_errors(self.path), self.path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                return self._parse(file.read())
        except LedgerError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def write(self, note: Note) -> None:
        """Make it anew."""
        with plain_errors(self.path):
            write_file(self.path, note.to_bytes())

    def advance(self, head: Head) -> Head:
        """Let it name ``head``, unless it is further already: two processes may pass each other.

        What it names then.
        """
        with plain_errors(self.path), self.path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            note = self._parse(file.read())
            if note.head.sequence >= head.sequence:
                return note.head
            # In place: one sector of unchanging length, which no crash leaves half written.
            os.pwrite(file.fileno(), note._replace(head=head).to_line(), 0)
            os.fsync(file.fileno())
            return head

    def check_writable(self) -> None:
        """Complain now rather than after a debit."""
        with plain_errors(self.path):
            os.close(os.open(self.path, os.O_RDWR))

    def _parse(self, image: bytes) -> Note:
        try:
            line, place, rest = image.decode().split("\n")
            title, ledger, sequence, digest = line.split(" ")
            note = Note(ledger, Head(int(sequence), digest), Path(json.loads(place)))
        except (ValueError, TypeError) as error:
            raise _damaged(self.path) from error
        if title != _TITLE or rest or note.to_bytes() != image:
            raise _damaged(self.path)
        return note


def anchors_of(path: Path, info: Info) -> tuple[Anchor, ...]:
    """Where the head of this ledger must be noted."""
    if info.kind == "simulated":
        return (beside(path),)
    return (beside(path), Anchor(state_folder() / f"{info.id}.head"))


def beside(path: Path) -> Anchor:
    """The anchor in the ledger's own folder."""
    return Anchor(path.with_name(f"{path.name}.head"))


def once_at(path: Path) -> Note | None:
    """What the state folder knows of a real ledger with entries at ``path``; None if nothing."""
    with plain_errors(state_folder()):
        for file in sorted(state_folder().glob("*.head")):
            note = Anchor(file).read()
            if note is not None and note.place == path and note.head.sequence > 0:
                return note
    return None


def state_folder() -> Path:
    """Where a user's programs keep what must survive, but belongs to no project."""
    if named := os.environ.get(STATE_FOLDER_VARIABLE):
        if not Path(named).is_absolute():
            raise LedgerError(
                f"{STATE_FOLDER_VARIABLE} is {named!r}, expected a path that starts with /: what "
                "a ledger's head is must not depend on the folder one happens to be in"
            )
        return Path(named)
    if base := os.environ.get("XDG_STATE_HOME"):
        return Path(base) / "fedmuster"
    try:
        return Path.home() / ".local" / "state" / "fedmuster"
    except RuntimeError as error:
        raise LedgerError(
            f"a real ledger keeps its head in the user's state folder, and there is no home "
            f"folder: name one in {STATE_FOLDER_VARIABLE}"
        ) from error


def _damaged(path: Path) -> LedgerError:
    return LedgerError(
        f"{path} is damaged: it does not name a ledger's head; if fedmuster ledger verify finds "
        "the ledger whole, remove this file and run fedmuster ledger adopt"
    )


# What must hold before anything is written: the right file, whole and newest; a sane clock.

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

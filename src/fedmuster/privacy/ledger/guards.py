"""Checks before anything is written: the right file, whole and newest; a sane clock."""

import fcntl
import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from fedmuster.core.errors import LedgerError
from fedmuster.core.files import write_file
from fedmuster.privacy.ledger.chain import (
    OWNER_ONLY,
    Chain,
    ChainHead,
    Entry,
    Info,
    Last,
    link,
    plain_errors,
)

STATE_FOLDER_VARIABLE: Final = "FEDMUSTER_STATE"
_TITLE: Final = "fedmuster-ledger-head-1"


class Note(NamedTuple):
    """What an anchor says: the ledger with this id, at this place, ends at this head."""

    ledger: str
    head: ChainHead
    place: Path

    def to_line(self) -> bytes:
        """All but the place, in a length that never changes."""
        return f"{_TITLE} {self.ledger} {self.head.sequence:020d} {self.head.digest}\n".encode()

    def to_bytes(self) -> bytes:
        """The whole file."""
        return self.to_line() + json.dumps(str(self.place)).encode() + b"\n"


class Anchor:
    """A file outside the ledger that names the ledger's newest committed entry."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Note | None:
        """What the file says; None if it is missing."""
        with plain_errors(self.path):
            try:
                file = self.path.open("rb")
            except FileNotFoundError:
                return None
            with file:
                fcntl.flock(file, fcntl.LOCK_SH)
                return self._parse(file.read())

    def write(self, note: Note) -> None:
        """Replace the file."""
        with plain_errors(self.path):
            write_file(self.path, note.to_bytes(), mode=OWNER_ONLY)

    def advance(self, head: ChainHead) -> ChainHead:
        """Name ``head``, unless the file names a later one: two processes may pass each other.

        Returns the head that the file names then.
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
        """Raise an error before a debit if the file cannot be written."""
        with plain_errors(self.path):
            os.close(os.open(self.path, os.O_RDWR))

    def _parse(self, image: bytes) -> Note:
        try:
            line, place, rest = image.decode().split("\n")
            title, ledger, sequence, digest = line.split(" ")
            note = Note(ledger, ChainHead(int(sequence), digest), Path(json.loads(place)))
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
        notes = [Anchor(file).read() for file in sorted(state_folder().glob("*.head"))]
    known = (note for note in notes if note and note.place == path and note.head.sequence > 0)
    return next(known, None)


def state_folder() -> Path:
    """The folder in which a user's programs keep state that belongs to no project."""
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


LARGEST_STEP_BACK_US: Final = 60_000_000
_TAIL: Final = 256


class OpenFiles:
    """The ledger and its log as they were when they were opened.

    SQLite goes on writing into a file that was deleted or replaced, where no reader finds it.
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


def check_tail(chain: Chain) -> None:
    """The newest entries fit together, and the balances count as many debits as there are."""
    path, database, _ = chain
    rows = database.execute(
        "SELECT * FROM (SELECT * FROM entries ORDER BY sequence DESC LIMIT ?) ORDER BY sequence",
        (_TAIL,),
    ).fetchall()
    before = rows[0][0] - 1 if rows else 0
    stored = chain.digest_at(before)
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


def check_contains(chain: Chain, head: ChainHead, *, source: str) -> None:
    """The chain has this entry, with this digest."""
    last = chain.last().sequence
    if last >= head.sequence and chain.digest_at(head.sequence) == head.digest:
        return
    if last < head.sequence:  # perhaps by more than SQLite can count
        raise LedgerError(
            f"{chain.path} was restored from an old backup: {head.sequence - last:,} entries are "
            f"missing (it ends at entry {last:,}, {source} knows entry {head.sequence:,}); "
            "restore the newest copy, with its -wal file if it has one"
        )
    raise LedgerError(
        f"{chain.path} is not the ledger that {source} knows: entry {head.sequence:,} is another "
        "one; it was restored from an old backup and written to, tampered with, or replaced"
    )


def check_anchors(chain: Chain, anchors: Iterable[Anchor]) -> None:
    """The ledger has every entry that the files outside of it know."""
    path, info = chain.path, chain.info
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
        check_contains(chain, note.head, source=str(anchor.path))


def time_of_next(path: Path, last: Last, now_us: int) -> int:
    """The time of the next entry: now, but never earlier than the last entry."""
    if now_us < last.time_us - LARGEST_STEP_BACK_US:
        raise LedgerError(
            f"{path}: the clock says {utc(now_us)}, but the newest entry is of "
            f"{utc(last.time_us)}. Set the clock right; if it is right and the entry was written "
            "with a wrong one: fedmuster ledger accept-clock"
        )
    return max(now_us, last.time_us)


def utc(time_us: int) -> str:
    """The findings in sentences.

    Example:
        >>> utc(1_700_000_000_000_000)
        '2023-11-14 22:13:20 UTC'
    """
    try:
        return f"{datetime.fromtimestamp(time_us // 1_000_000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # a year that no calendar has
        return f"{time_us} µs after 1970"


def _number(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino

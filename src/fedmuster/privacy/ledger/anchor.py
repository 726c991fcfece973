"""The head of the chain, kept outside the ledger, where restoring an old copy does not reach.

An anchor names an entry that was committed. It may lag behind (a crash after the commit), but it
is never ahead: a ledger that lacks what an anchor names is not the newest one. Every ledger has
an anchor beside it; real ledgers have a second one in the user's state folder.
"""

import fcntl
import json
import os
from pathlib import Path
from typing import Final, NamedTuple

from fedmuster.core.errors import LedgerError
from fedmuster.core.files import write_file
from fedmuster.privacy.ledger.chain import Head, Info
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

"""One process that may append to a ledger: checks, commit, anchors, in this order, every time."""

import fcntl
import glob
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO
from uuid import uuid4
from weakref import WeakSet

from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger.chain import Head, Info, LedgerKind, Links, last_entry
from fedmuster.privacy.ledger.guards import (
    Anchor,
    Note,
    OpenFiles,
    anchors_of,
    beside,
    check_anchors,
    check_contains,
    check_tail,
    once_at,
    state_folder,
    time_of_next,
)
from fedmuster.privacy.ledger.schema import lay_out, open_to_write, plain_errors, read_info
from fedmuster.privacy.schedules import Currency


class WriterLock:
    """Held from construction to ``close``; refused if it cannot be had at once.

    Args:
        ledger: the ledger's path; the lock is ``<name>.lock`` beside it.
        exclusive_for: the run that wants to be alone; None to share with others that share.
    """

    def __init__(self, ledger: Path, *, exclusive_for: str | None) -> None:
        path = ledger.with_name(f"{ledger.name}.lock")
        with plain_errors(path):
            self._file = path.open("a+", encoding="utf-8", errors="replace")
            wanted = fcntl.LOCK_SH if exclusive_for is None else fcntl.LOCK_EX
            try:
                fcntl.flock(self._file, wanted | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _read(self._file)
                self._file.close()
                raise LedgerError(
                    f"{ledger} is in use by {holder}: wait until it is done, or give this run a "
                    "ledger of its own"
                ) from None
            _OPEN.add(self)
            # Nobody is alone now but we: what an earlier run left here is out of date.
            self._file.truncate(0)
            if exclusive_for is not None:
                self._file.write(f"run {exclusive_for!r} (process {os.getpid()} on ")
                self._file.write(f"{socket.gethostname()})")
            self._file.flush()

    def close(self) -> None:
        """Let others write."""
        self._file.close()


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Wait for, and be, the only one who makes a ledger in this folder."""
    with plain_errors(folder):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _read(file: TextIO) -> str:
    file.seek(0)
    return file.read() or "another process that shares it with others"


_OPEN: WeakSet[WriterLock] = WeakSet()


def _let_go_in_child() -> None:
    """A forked child inherits the lock; were it to outlive us, nobody could resume the run."""
    for lock in _OPEN:
        lock.close()


os.register_at_fork(after_in_child=_let_go_in_child)


# How a ledger comes into being: whole and with its anchors, or not at all.


def create_if_missing(path: Path, *, currency: Currency, kind: LedgerKind, now_us: int) -> None:
    """Make an empty ledger, unless there is one, or there must have been one.

    The anchors come first and the ledger's name last, all of it under a lock. A crash on the way
    leaves anchors of a ledger without entries, which are no loss: the next attempt goes over
    them. So a ledger with entries has had its anchors from the beginning.
    """
    with folder_lock(path.parent):
        if os.path.lexists(path):
            return
        _refuse_if_lost(path, kind)
        with plain_errors(path):
            for left in path.parent.glob(f".{glob.escape(path.name)}.*.new*"):
                left.unlink()  # of a process that died here; the lock says that nobody is at it
        info = Info(str(uuid4()), currency, kind, now_us)
        start = Head(0, info.digest().hex())
        unnamed = path.with_name(f".{path.name}.{info.id}.new")
        with plain_errors(path):
            try:
                lay_out(unnamed, info)
                for anchor in anchors_of(path, info):
                    if anchor.path.parent != path.parent:
                        anchor.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    anchor.write(Note(info.id, start, path))
                unnamed.rename(path)
            except BaseException:
                unnamed.unlink(missing_ok=True)
                raise
            _sync_folder(path.parent)


def _refuse_if_lost(path: Path, kind: LedgerKind) -> None:
    """A new ledger must not stand where the old one got lost: all budgets would be fresh."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size > 0:
        raise LedgerError(f"{path} is gone, but {log.name} is still there: restore the ledger")
    note = beside(path).read()
    if note is not None and note.head.sequence > 0:
        raise LedgerError(
            f"{path} is gone: {beside(path).path.name} says that it had {note.head.sequence:,} "
            "entries; restore it, or choose another place for a new ledger"
        )
    note = once_at(path) if kind == "real" else None
    if note is not None:
        raise LedgerError(
            f"{path} is gone: {state_folder() / note.ledger}.head says that a ledger with "
            f"{note.head.sequence:,} entries was here; restore it (if it was moved, open it once "
            "at its new place), or choose another place for a new ledger"
        )


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)  # the new name
    finally:
        os.close(handle)


# One process that may append to a ledger: checks, commit, anchors, in this order, every time.

Clock = Callable[[], int]
"""Nanoseconds since 1970, as ``time.time_ns``."""

_APPEND: Final = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Writer:
    """Holds the lock and the connection; see :meth:`transaction`."""

    def __init__(self, path: Path, *, exclusive_for: str | None, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._process = os.getpid()
        self._lock = WriterLock(path, exclusive_for=exclusive_for)
        try:
            self.database = open_to_write(path)
        except BaseException:
            self._lock.close()
            raise
        try:
            with plain_errors(path):
                self.database.execute("BEGIN IMMEDIATE")  # now the log is there, too
                self._files = OpenFiles(path)
                self.info = read_info(path, self.database)
                self.anchors = anchors_of(path, self.info)
                check_tail(path, self.database, self.info)
                self._seen = self._head()
                self.database.execute("ROLLBACK")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others write."""
        self.database.close()
        self._lock.close()

    def check(self) -> None:
        """All that :meth:`transaction` checks, and whether the anchors could be moved."""
        with self.transaction() as links:
            for anchor in self.anchors:
                anchor.check_writable()
                note = anchor.read()
                if note is not None and note.place != self.path:  # so that it is missed there
                    anchor.write(Note(self.info.id, links.head, self.path))

    @contextmanager
    def transaction(
        self, *, anchors: Sequence[Anchor] | None = None, clock_may_go_back: bool = False
    ) -> Iterator[Links]:
        """Commit what the body adds, durably, and move the anchors; or change nothing at all."""
        anchors = self.anchors if anchors is None else anchors
        if os.getpid() != self._process:
            raise LedgerError(f"{self.path} was opened by another process: open it in this one")
        with plain_errors(self.path):
            self.database.execute("BEGIN IMMEDIATE")
            try:
                self._files.check()
                check_contains(
                    self.path, self.database, self.info, self._seen, source="this process"
                )
                check_anchors(self.path, self.database, self.info, anchors)
                links = self._continued(clock_may_go_back)
                yield links
                self.database.executemany(_APPEND, links.rows)
                self.database.execute("COMMIT")
            except BaseException:
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
                raise
            self._files.check()  # or the commit went into a file that nobody will find
            self._seen = links.head
            self._move(anchors, links.head)

    def _move(self, anchors: Sequence[Anchor], head: Head) -> None:
        try:
            for anchor in anchors:
                noted = anchor.advance(head)
                if noted != head:  # by another process with this ledger, or with a copy of it?
                    check_contains(
                        self.path, self.database, self.info, noted, source=anchor.path.name
                    )
        except LedgerError as error:
            raise LedgerError(
                f"{self.path}: the entries up to {head.sequence:,} are on record, but their head "
                f"could not be noted: {error}"
            ) from error

    def _continued(self, clock_may_go_back: bool) -> Links:
        last = last_entry(self.database, self.info)
        now_us = self._clock() // 1000
        time_us = now_us if clock_may_go_back else time_of_next(self.path, last, now_us)
        return Links(sequence=last.sequence, digest=last.digest, time_us=time_us)

    def _head(self) -> Head:
        last = last_entry(self.database, self.info)
        return Head(last.sequence, last.digest.hex())

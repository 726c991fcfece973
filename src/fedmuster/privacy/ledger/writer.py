"""One process that may append to a ledger: lock, creation, checks, commit, anchors."""

import fcntl
import glob
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4
from weakref import WeakSet

from fedmuster.core.errors import LedgerError
from fedmuster.core.files import sync_folder, sync_folders_above
from fedmuster.privacy.ledger.chain import (
    OWNER_ONLY,
    Chain,
    ChainHead,
    EntryKind,
    Info,
    Last,
    LedgerKind,
    lay_out,
    link,
    open_to_write,
    plain_errors,
    read_info,
)
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


class WriterLock:
    """Held from construction to ``close``; refused if it cannot be had at once.

    Args:
        ledger: the ledger's path; the lock is ``<name>.lock`` beside it.
        exclusive_for: the run that wants to be alone; None to share with others that share.
    """

    def __init__(self, ledger: Path, *, exclusive_for: str | None) -> None:
        path = ledger.with_name(f"{ledger.name}.lock")
        with plain_errors(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, OWNER_ONLY)
            self._file = os.fdopen(handle, "a+", encoding="utf-8", errors="replace")
            wanted = fcntl.LOCK_SH if exclusive_for is None else fcntl.LOCK_EX
            try:
                fcntl.flock(self._file, wanted | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.seek(0)
                holder = self._file.read() or "another process that shares it with others"
                self._file.close()
                raise LedgerError(
                    f"{ledger} is in use by {holder}: wait until it is done, or give this run a "
                    "ledger of its own"
                ) from None
            _OPEN.add(self)
            # This process has the lock, so what an earlier run left here is out of date.
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
    """Wait until no other process makes a ledger in this folder, and keep others from it."""
    with plain_errors(folder):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


_OPEN: WeakSet[WriterLock] = WeakSet()


def _let_go_in_child() -> None:
    """A forked child inherits the lock; if it outlived its parent, no run could be resumed."""
    for lock in _OPEN:
        lock.close()


os.register_at_fork(after_in_child=_let_go_in_child)


def create_if_missing(path: Path, *, currency: str, kind: LedgerKind, now_us: int) -> None:
    """Make an empty ledger, unless there is one, or there must have been one.

    The anchors come first and the ledger's name last, all of it under a lock. A crash on the way
    leaves anchors of a ledger without entries, which the next attempt overwrites. So a ledger with
    entries has had its anchors from the beginning.
    """
    with folder_lock(path.parent):
        if os.path.lexists(path):
            return
        _refuse_if_lost(path, kind)
        with plain_errors(path):
            for left in path.parent.glob(f".{glob.escape(path.name)}.*.new*"):
                left.unlink()  # of a process that died; under the lock no live one has it
        info = Info(str(uuid4()), currency, kind, now_us)
        start = ChainHead(0, info.digest().hex())
        unnamed = path.with_name(f".{path.name}.{info.id}.new")
        with plain_errors(path):
            try:
                lay_out(unnamed, info)
                for anchor in anchors_of(path, info):
                    if anchor.path.parent != path.parent:
                        anchor.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                        sync_folders_above(anchor.path.parent)
                    anchor.write(Note(info.id, start, path))
                unnamed.rename(path)
            except BaseException:
                unnamed.unlink(missing_ok=True)
                raise
            sync_folder(path.parent)
            sync_folders_above(path.parent)


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


Clock = Callable[[], int]
"""Nanoseconds since 1970, as ``time.time_ns``."""

_APPEND: Final = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Links:
    """Entries to be appended in one transaction, with the same time."""

    def __init__(self, last: Last, time_us: int) -> None:
        self.sequence, _, self.digest = last
        self.rows: list[tuple[object, ...]] = []
        """The columns of each entry, and its digest."""
        self._time_us = time_us

    @property
    def head(self) -> ChainHead:
        """The newest entry."""
        return ChainHead(self.sequence, self.digest.hex())

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
                self.database.execute("BEGIN IMMEDIATE")  # now the log exists, too
                self._files = OpenFiles(path)
                self.chain = Chain(path, self.database, read_info(path, self.database))
                self.anchors = anchors_of(path, self.chain.info)
                check_tail(self.chain)
                self._seen = self.chain.last().head
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
                    anchor.write(Note(self.chain.info.id, links.head, self.path))

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
                check_contains(self.chain, self._seen, source="this process")
                check_anchors(self.chain, anchors)
                last, now_us = self.chain.last(), self._clock() // 1000
                if not clock_may_go_back:
                    now_us = time_of_next(self.path, last, now_us)
                links = Links(last, now_us)
                yield links
                self.database.executemany(_APPEND, links.rows)
                self.database.execute("COMMIT")
            except BaseException:
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
                raise
            self._files.check()  # or the commit went into a file that no reader finds
            self._seen = links.head
            self._move(anchors, links.head)

    def _move(self, anchors: Sequence[Anchor], head: ChainHead) -> None:
        try:
            for anchor in anchors:
                noted = anchor.advance(head)
                if noted != head:  # by another process with this ledger, or with a copy of it?
                    check_contains(self.chain, noted, source=anchor.path.name)
        except LedgerError as error:
            raise LedgerError(
                f"{self.path}: the entries up to {head.sequence:,} are on record, but their head "
                f"could not be noted: {error}"
            ) from error

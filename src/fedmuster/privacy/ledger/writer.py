"""One process that may append to a ledger: checks, commit, anchors, in this order, every time."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger.anchor import Anchor, Note, anchors_of
from fedmuster.privacy.ledger.chain import Head, Links
from fedmuster.privacy.ledger.guards import (
    OpenFiles,
    check_anchors,
    check_contains,
    check_tail,
    time_of_next,
)
from fedmuster.privacy.ledger.lock import WriterLock
from fedmuster.privacy.ledger.rows import last_entry
from fedmuster.privacy.ledger.schema import open_to_write, plain_errors, read_info

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

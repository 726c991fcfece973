"""Who may write: one run alone, or any number of processes that take turns.

The lock is the operating system's (``flock`` on a file beside the ledger): it is gone when the
process is, however that died.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO
from weakref import WeakSet

from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger.schema import plain_errors


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

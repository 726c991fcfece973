"""Opens and locks the SQLite files of a run, and says in plain words what SQLite refuses."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmuster.core.errors import InUseError, StateError


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into a :class:`StateError`."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StateError(
            f"{path} cannot be read or written: {error} (is the disk full or read-only?); mend "
            "that and resume the run, its committed rounds are safe"
        ) from error
    except sqlite3.DatabaseError as error:
        raise StateError(f"{path} is damaged or no journal: {error}") from error


def connect(path: Path) -> sqlite3.Connection:
    """A connection that waits for other writers."""
    with plain_errors(path):
        return sqlite3.connect(path, timeout=30.0)


def hold_lock(folder: Path) -> sqlite3.Connection:
    """Lock a run by an open transaction; the system releases it when the process dies."""
    path = folder / "lock.sqlite"
    with plain_errors(path):
        lock = sqlite3.connect(path, timeout=0.0, isolation_level=None)
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            lock.close()
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            raise InUseError(f"{folder} is in use: another process is running it") from error
    return lock

"""Opens and locks the SQLite files of a run, and says in plain words what SQLite refuses."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

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
    except (sqlite3.DatabaseError, UnicodeDecodeError, OverflowError, MemoryError) as error:
        # The latter at texts, numbers and lengths that no writer wrote.
        raise StateError(f"{path} is damaged or no journal: {error}") from error


def connect(path: Path) -> sqlite3.Connection:
    """A connection that waits for other writers."""
    with plain_errors(path):
        return sqlite3.connect(path, timeout=30.0)


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """One moment of a file, which may be on a read-only medium and in use by a writer."""
    with (
        plain_errors(path),
        _openable(path) as address,
        closing(sqlite3.connect(address, uri=True, timeout=30.0)) as database,
    ):
        database.execute("BEGIN")
        yield database


@contextmanager
def _openable(path: Path) -> Iterator[str]:
    """What SQLite can open to read: the file, or where its folder is read-only a copy of it.

    To read a write-ahead log, SQLite writes beside the file.
    """
    if os.access(path.parent, os.W_OK):
        yield f"{path.absolute().as_uri()}?mode=rw"
        return
    log = path.with_name(f"{path.name}-wal")
    if not log.exists():
        yield f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        return
    with TemporaryDirectory() as folder:
        for file in (path, log):
            shutil.copyfile(file, Path(folder) / file.name)
        yield f"{(Path(folder) / path.name).as_uri()}?mode=rw"


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

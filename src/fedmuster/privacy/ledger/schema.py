"""The file: what is in it, how it is opened, and what SQLite's complaints mean."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger.chain import Info

FORMAT: Final = 1
APPLICATION_ID: Final = int.from_bytes(b"fmLG")
"""In the file's header, so that no other SQLite file is taken for a ledger."""

BUSY_SECONDS: Final = 30.0
_NEEDED_SQLITE: Final = (3, 37, 0)  # STRICT tables
_PAGE_BYTES: Final = 1024  # a random account's debit rewrites its page: the smaller, the better
_CHECKPOINT_PAGES: Final = 32_000  # rounds come back to pages: move them to the file less often
_MOST_WAL_BYTES: Final = 64 * 2**20
_CACHE_KIB: Final = 64 * 2**10

# What a file holds must be this, letter by letter.
_STATEMENTS: Final = (
    """CREATE TABLE ledger (
    id TEXT PRIMARY KEY, currency TEXT NOT NULL, kind TEXT NOT NULL, created_us INTEGER NOT NULL
) STRICT""",
    # No CHECK here: digests tell more, and these would double the time that an entry takes.
    """CREATE TABLE entries (
    sequence INTEGER PRIMARY KEY,
    time_us INTEGER NOT NULL,
    kind TEXT NOT NULL,
    run INTEGER NOT NULL,
    round INTEGER NOT NULL,
    account INTEGER NOT NULL,
    clients INTEGER NOT NULL,
    units INTEGER NOT NULL,
    text TEXT NOT NULL,
    digest BLOB NOT NULL
) STRICT""",
    # A round's debits stand together in this index, wherever their accounts are.
    """CREATE UNIQUE INDEX one_debit_a_round ON entries (run, round, account)
    WHERE kind = 'debit'""",
    "CREATE UNIQUE INDEX one_entry_a_run ON entries (text) WHERE kind = 'run'",
    "CREATE INDEX all_but_debits ON entries (sequence) WHERE kind <> 'debit'",
    """CREATE TABLE accounts (
    account INTEGER PRIMARY KEY,
    identity TEXT NOT NULL UNIQUE,
    cap_units INTEGER NOT NULL,
    spent_units INTEGER NOT NULL CHECK (spent_units BETWEEN 0 AND cap_units),
    debits INTEGER NOT NULL CHECK (debits >= 0)
) STRICT""",
    """CREATE TRIGGER entries_stay BEFORE DELETE ON entries
    BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never deleted'); END""",
    """CREATE TRIGGER entries_stay_the_same BEFORE UPDATE ON entries
    BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never changed'); END""",
    """CREATE TRIGGER accounts_stay BEFORE DELETE ON accounts
    BEGIN SELECT RAISE(ABORT, 'accounts of a ledger are never deleted'); END""",
    """CREATE TRIGGER accounts_stay_the_same
    BEFORE UPDATE OF account, identity, cap_units ON accounts
    BEGIN SELECT RAISE(ABORT, 'identity and cap of an account are never changed'); END""",
)


def lay_out(path: Path, info: Info) -> None:
    """Make the file ``path`` a ledger without entries."""
    with plain_errors(path):
        database = sqlite3.connect(path, isolation_level=None)
        try:
            database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.execute("BEGIN IMMEDIATE")
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(f"PRAGMA user_version = {FORMAT}")
            for statement in _STATEMENTS:
                database.execute(statement)
            database.execute("INSERT INTO ledger VALUES (?, ?, ?, ?)", info)
            database.execute("COMMIT")
        finally:
            database.close()


def open_to_write(path: Path) -> sqlite3.Connection:
    """A connection whose commits are on disk when they return."""
    _check_size(path)
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        # Before SQLite makes a log that is as read-only as the ledger, and stays so.
        raise LedgerError(f"{path}: the file or its folder is read-only; nothing was debited")
    with plain_errors(path):
        database = _connect(path, "mode=rw")
        try:
            _check_format(path, database)  # before anything is changed
            (journal,) = database.execute("PRAGMA journal_mode = WAL").fetchone()
            # NORMAL may lose commits in a power cut; fullfsync is what FULL means on macOS.
            for setting in ("synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON"):
                database.execute(f"PRAGMA {setting}")
            database.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            database.execute(f"PRAGMA journal_size_limit = {_MOST_WAL_BYTES}")
        except BaseException:
            database.close()
            raise
        if journal != "wal":
            database.close()
            raise LedgerError(
                f"{path}: SQLite cannot keep a write-ahead log here (it offers {journal!r}); put "
                "the ledger on a local disk"
            )
        return database


@contextmanager
def open_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that sees one moment of the ledger and changes nothing."""
    _check_size(path)
    # Without a log there is nothing to share with writers, and a read-only folder will do. Nor may
    # somebody else leave a log there to which the ledger's owner cannot write.
    visitor = path.stat().st_uid != os.geteuid()
    alone = not _log_bytes(path) and (visitor or not os.access(path.parent, os.W_OK))
    with plain_errors(path):
        database = _connect(path, "mode=ro&immutable=1" if alone else "mode=ro")
        try:
            database.execute("BEGIN")
            _check_format(path, database)
            yield database
        finally:
            database.close()


def read_info(path: Path, database: sqlite3.Connection) -> Info:
    """What the ledger is."""
    rows = database.execute("SELECT id, currency, kind, created_us FROM ledger").fetchall()
    if len(rows) != 1:
        raise LedgerError(f"{path} is damaged: {len(rows)} rows say what it is, expected one")
    info = Info(*rows[0])
    if not isinstance(info.created_us, int):
        raise LedgerError(f"{path} is damaged: it was made at {info.created_us!r}")
    return info


def _check_format(path: Path, database: sqlite3.Connection) -> None:
    """Refuse other files, other formats, and tables, indices or triggers other than ours."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise LedgerError(f"{path} is an SQLite file, but no ledger (or a damaged one)")
    if version != FORMAT:
        raise LedgerError(
            f"{path} has format {version}, this version of fedmuster reads and writes {FORMAT}: "
            "use the version that wrote it"
        )
    if _schema_of(database) != _expected_schema():
        raise LedgerError(f"{path} is damaged: its tables are not those of a ledger")


@cache
def _expected_schema() -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as database:
        for statement in _STATEMENTS:
            database.execute(statement)
        return _schema_of(database)


def _schema_of(database: sqlite3.Connection) -> list[tuple[str, ...]]:
    return database.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid"
    ).fetchall()


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Tell what SQLite and the operating system complain about as a :class:`LedgerError`."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        reason = next((text for key, text in _REASONS.items() if name.startswith(key)), "")
        raise LedgerError(f"{path}: {reason or 'SQLite failed'} ({error})") from error
    except UnicodeDecodeError as error:  # what SQLite quotes from a damaged file
        raise LedgerError(f"{path} {_REASONS['SQLITE_CORRUPT']} ({error})") from error
    except OSError as error:
        raise LedgerError(f"{path}: {error.strerror or error}") from error


_REASONS: Final = {
    "SQLITE_FULL": "the disk is full; free some space",
    "SQLITE_READONLY": "the file or its folder is read-only",
    "SQLITE_CANTOPEN": "the file, or the -wal and -shm files beside it, cannot be opened",
    "SQLITE_BUSY": f"another process has been writing for more than {BUSY_SECONDS:g} s; try again",
    "SQLITE_NOTADB": "is damaged or no SQLite file; restore the newest copy",
    "SQLITE_CORRUPT": "is damaged; see fedmuster ledger verify, restore the newest copy",
    "SQLITE_IOERR": "reading or writing failed: a full disk, or a broken one",
    "SQLITE_CONSTRAINT": "the ledger's own rules refuse the entry",
}


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < _NEEDED_SQLITE:
        needed = ".".join(map(str, _NEEDED_SQLITE))
        raise LedgerError(f"a ledger needs SQLite {needed}, this is {sqlite3.sqlite_version}")
    database = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=BUSY_SECONDS, isolation_level=None
    )
    try:
        for setting in (
            f"cache_size = {-_CACHE_KIB}",
            "trusted_schema = OFF",
            "cell_size_check = ON",
        ):
            database.execute(f"PRAGMA {setting}")
    except BaseException:
        database.close()
        raise
    return database


def _check_size(path: Path) -> None:
    """To SQLite an empty file is a new database. (Never open the file but through SQLite: closing
    it would drop the locks that SQLite holds on it in this process.)"""
    with plain_errors(path):
        if path.stat().st_size == 0:
            raise LedgerError(
                f"{path} is empty: it was cut off, or never was a ledger; restore the newest copy"
            )


def _log_bytes(path: Path) -> int:
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size
    except FileNotFoundError:
        return 0

"""The ledger's file: its tables, how SQLite opens it, and the chain of entries in it.

Each entry's digest covers the entry and the digest before it: ``digest_n = SHA-256(digest_(n-1) ‖
line_n)``, where ``line_n`` is the entry's columns as text with tabs between them. The only free
text comes last, so no two entries have the same line.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from hashlib import sha256
from itertools import chain as joined
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self, get_args

import numpy as np

from fedmuster.core.arrays import IntArray
from fedmuster.core.errors import LedgerError

LedgerKind = Literal["real", "simulated"]
"""Whether the budgets are people's, or those of clients that exist in a simulation only."""

EntryKind = Literal["accounts", "run", "debit", "adopt", "clock"]
ENTRY_KINDS: Final[tuple[str, ...]] = get_args(EntryKind)


class ChainHead(NamedTuple):
    """The newest entry of a chain; entry 0 is the ledger itself."""

    sequence: int
    digest: str
    """64 hexadecimal digits."""


class Entry(NamedTuple):
    """One entry. 0 and the empty text stand where a kind of entry has no use for a column.

    - ``accounts``: ``clients`` clients got the accounts from ``account`` on, each with the cap
      ``units``; ``text`` is :func:`digest_of_identities` of them.
    - ``run``: the run with the id ``text`` debits for the first time; in its debits ``run`` is
      this entry's sequence number.
    - ``debit``: ``account`` paid ``units`` for ``round`` of ``run``.
    - ``adopt``: an operator accepted the ledger on a machine that did not know it.
    - ``clock``: an operator accepted that the clock went back; the only entry that may be earlier
      than the one before it.
    """

    sequence: int
    time_us: int
    """UTC, microseconds since 1970."""
    kind: str
    run: int
    round: int
    account: int
    clients: int
    units: int
    text: str

    @classmethod
    def of_line(cls, line: bytes) -> Self:
        """The entry with this line; a ValueError where there is none."""
        sequence, time_us, kind, run, round_, account, clients, units, text = line.decode().split(
            "\t", 8
        )
        places = int(run), int(round_), int(account), int(clients), int(units)
        entry = cls(int(sequence), int(time_us), kind, *places, text)
        if line_of(entry) != line:
            raise ValueError("it does not describe an entry")
        return entry


class Info(NamedTuple):
    """What a ledger is, fixed when it was made."""

    id: str
    currency: str
    kind: str
    created_us: int

    @property
    def line(self) -> bytes:
        """What stands for the ledger itself where entries have their lines."""
        return line_of((_TITLE, *self))

    def digest(self) -> bytes:
        """Where the chain begins."""
        return sha256(self.line).digest()

    @classmethod
    def of_line(cls, line: bytes) -> Self:
        """The ledger that a line stands for; a ValueError where it stands for none."""
        title, id_, currency, kind, created = line.decode().split("\t")
        info = cls(id_, currency, kind, int(created))
        if title != _TITLE or info.line != line:
            raise ValueError("it does not describe a ledger")
        return info


_TITLE: Final = "fedmuster-ledger-1"


def line_of(values: Iterable[object]) -> bytes:
    """Values with tabs between them, which digests and trees are made of."""
    return "\t".join(map(str, values)).encode()


def link(previous: bytes, entry: Iterable[object]) -> bytes:
    """The digest of the entry that follows the one with the digest ``previous``."""
    return sha256(previous + line_of(entry)).digest()


def digest_of_identities(identities: Iterable[str]) -> str:
    """SHA-256 over the identities in order, each as its length in bytes (4, big-endian) and UTF-8.

    Example:
        >>> digest_of_identities(["ab"]) == digest_of_identities(["a", "b"])
        False
    """
    encoded = (identity.encode() for identity in identities)
    return sha256(b"".join(len(each).to_bytes(4) + each for each in encoded)).hexdigest()


# The file

FORMAT: Final = 1
APPLICATION_ID: Final = int.from_bytes(b"fmLG")
"""In the file's header, so that no other SQLite file is taken for a ledger."""

OWNER_ONLY: Final = 0o600
"""The permissions of everything that belongs to a ledger but its public key."""
BUSY_SECONDS: Final = 30.0
_NEEDED_SQLITE: Final = (3, 37, 0)  # STRICT tables
_PAGE_BYTES: Final = 1024  # a random account's debit rewrites its page: the smaller, the better
_CHECKPOINT_PAGES: Final = 32_000  # rounds come back to pages: move them to the file less often
_MOST_WAL_BYTES: Final = 64 * 2**20
_CACHE_KIB: Final = 64 * 2**10
_NAMED: Final = 3  # ledgers that a message names
_USUAL_NAME: Final = "ledger.sqlite"

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
    """Make ``path`` a ledger without entries, which its owner alone can read.

    SQLite gives the files beside it the same permissions.
    """
    with plain_errors(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    with plain_errors(path), closing(sqlite3.connect(path, isolation_level=None)) as database:
        for statement in (
            f"PRAGMA page_size = {_PAGE_BYTES}",
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "BEGIN IMMEDIATE",
            f"PRAGMA application_id = {APPLICATION_ID}",
            f"PRAGMA user_version = {FORMAT}",
            *_STATEMENTS,
        ):
            database.execute(statement)
        database.execute("INSERT INTO ledger VALUES (?, ?, ?, ?)", info)
        database.execute("COMMIT")


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
def reading(path: Path) -> Iterator["Chain"]:
    """One moment of the ledger; nothing is changed."""
    path = path.resolve()
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
            yield Chain(path, database, read_info(path, database))
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


def require_there(path: Path) -> None:
    """Refuse a path without a ledger, and say where ledgers are."""
    if path.is_file():
        return
    folder = next(parent for parent in (path, *path.absolute().parents) if parent.is_dir())
    patterns = ("", "*/", "*/*/", "*/*/*/") if folder != Path(folder.anchor) else ()
    near = [str(file) for start in patterns for file in sorted(folder.glob(start + _USUAL_NAME))]
    advice = "a run keeps a ledger only if its spec has a [privacy] table"
    if near:
        advice = f"{folder} has {', '.join(near[:_NAMED])}{' and others' * (len(near) > _NAMED)}"
    raise LedgerError(f"{path} is {'a folder' if path.is_dir() else 'not there'}: {advice}")


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the operating system into a :class:`LedgerError`."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        reason = next((text for key, text in _REASONS.items() if name.startswith(key)), "")
        raise LedgerError(f"{path}: {reason or 'SQLite failed'} ({error})") from error
    except (UnicodeDecodeError, MemoryError) as error:
        # What SQLite quotes from a damaged file, or lengths in it that nobody wrote.
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
        require_there(path)
        if path.stat().st_size == 0:
            raise LedgerError(
                f"{path} is empty: it was cut off, or never was a ledger; restore the newest copy"
            )


def _log_bytes(path: Path) -> int:
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size
    except FileNotFoundError:
        return 0


# Queries


class Last(NamedTuple):
    """The newest entry; of a ledger without entries, the ledger itself."""

    sequence: int
    time_us: int
    digest: bytes

    @property
    def head(self) -> ChainHead:
        """Without the time."""
        return ChainHead(self.sequence, self.digest.hex())


class Chain(NamedTuple):
    """A ledger that is open: its path, the connection to it, and what it is."""

    path: Path
    database: sqlite3.Connection
    info: Info

    def last(self) -> Last:
        """Where the chain ends."""
        row = self.database.execute(
            "SELECT sequence, CAST(time_us AS INTEGER), CAST(digest AS BLOB) FROM entries "
            "ORDER BY sequence DESC LIMIT 1"
        ).fetchone()
        return Last(0, self.info.created_us, self.info.digest()) if row is None else Last(*row)

    def digest_at(self, sequence: int) -> str | None:
        """The digest of an entry; None if there is no such entry."""
        if sequence == 0:
            return self.info.digest().hex()
        row = self.database.execute(
            "SELECT lower(hex(digest)) FROM entries WHERE sequence = ?", (sequence,)
        ).fetchone()
        return None if row is None else row[0]

    def integers(self, query: str, *values: object, width: int) -> IntArray:
        """The rows of a query as an array [n, width]."""
        return integer_table(self.database.execute(query, values), width=width)

    def accounts_of(self, identities: Sequence[str]) -> IntArray:
        """[n, 3] place in ``identities``, account and cap units of those that are known."""
        return self.integers(
            "SELECT wanted.key, account, cap_units FROM json_each(?) AS wanted "
            "JOIN accounts ON identity = wanted.value",
            json.dumps(identities),
            width=3,
        )

    def run_number(self, run: str) -> int | None:
        """The entry that introduced the run; None if it has never debited."""
        row = self.database.execute(
            "SELECT sequence FROM entries WHERE kind = 'run' AND text = ?", (run,)
        ).fetchone()
        return None if row is None else row[0]

    def debits_of_round(self, run: int, number: int) -> IntArray:
        """[n, 2] accounts, increasing, and units that are on record for a round."""
        return self.integers(
            "SELECT account, units FROM entries "
            "WHERE kind = 'debit' AND run = ? AND round = ? ORDER BY account",
            run,
            number,
            width=2,
        )


def integer_table(rows: Iterable[tuple[int, ...]], *, width: int) -> IntArray:
    """Rows of integers as an array [n, width]."""
    return np.fromiter(joined.from_iterable(rows), dtype=np.int64).reshape(-1, width)

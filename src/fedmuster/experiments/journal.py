"""The journal of one run: an SQLite file that survives ``kill -9``.

Rows of finished rounds and the checkpoint that follows them are committed in one transaction, so
whatever is found after a crash fits together: continue from the checkpoint, and the rounds that
were lost are played again, bit for bit. Digests show whether a row was changed since
(``sealing.py``).
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, Self
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from fedmuster.core import state as states
from fedmuster.core.errors import StateError
from fedmuster.core.records import FloatArray, IntArray
from fedmuster.experiments import sealing
from fedmuster.experiments.database import connect, hold_lock, plain_errors, reading
from fedmuster.experiments.origin import Origin
from fedmuster.federation import Checkpoint, EdgeRow, JobRows, RoundRow

FILE_NAME = "journal.sqlite"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS origin (
    id INTEGER PRIMARY KEY CHECK (id = 0), spec TEXT NOT NULL, inputs TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS identity (id INTEGER PRIMARY KEY CHECK (id = 0), run TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS ending (id INTEGER PRIMARY KEY CHECK (id = 0), reason TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS starts (
    start INTEGER PRIMARY KEY, after_round INTEGER NOT NULL, versions TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS clients (id INTEGER PRIMARY KEY CHECK (id = 0), npz BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS rounds (
    round INTEGER PRIMARY KEY, seconds REAL NOT NULL, reward REAL, regret REAL,
    num_available INTEGER NOT NULL, num_completed INTEGER NOT NULL, num_refused INTEGER NOT NULL,
    loss REAL, accuracy REAL, train_loss REAL, num_aggregated INTEGER NOT NULL,
    spent_max REAL, spent_mean REAL, num_exhausted INTEGER NOT NULL,
    clients BLOB NOT NULL, rejected BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS scores (round INTEGER PRIMARY KEY, npz BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS network (round INTEGER PRIMARY KEY, npz BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (round INTEGER PRIMARY KEY, npz BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS loop (id INTEGER PRIMARY KEY CHECK (id = 0), npz BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS metrics (
    round INTEGER NOT NULL, stage TEXT NOT NULL, json TEXT NOT NULL, PRIMARY KEY (round, stage));
CREATE TABLE IF NOT EXISTS afterwards (
    id INTEGER PRIMARY KEY CHECK (id = 0), round INTEGER NOT NULL, image BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS checkpoint (
    id INTEGER PRIMARY KEY CHECK (id = 0), round INTEGER NOT NULL, elapsed_seconds REAL NOT NULL,
    selector BLOB NOT NULL, judge BLOB, trainer BLOB, budget BLOB);
"""
_FORMAT = 8
UNSEALED = 7
"""The format before digests and origins; read as it is, and brought up to date before writing."""

_PLAYED = ("round", "seconds", "reward", "regret", "num_available", "num_completed", "num_refused")
_LEARNED = ("loss", "accuracy", "train_loss", "num_aggregated")
_SPENT = ("spent_max", "spent_mean", "num_exhausted")
_COLUMNS = (*_PLAYED, *_LEARNED, *_SPENT)


class Journal:
    """Writes one run; a second writer is refused, readers are not."""

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        self.path = folder / FILE_NAME
        self._lock = hold_lock(folder)
        self._synced = False
        self._touched: set[str] = set()
        self._first_touched: int | None = None
        try:
            self._database = connect(self.path)
        except BaseException:
            self._lock.close()
            raise
        try:
            with plain_errors(self.path), self._database as database:
                database.execute("PRAGMA journal_mode = WAL")
                version = check_format(database, self.path)
                if version == _FORMAT:
                    _require_sound(database, self.path)
                else:
                    _lay_out(database)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process write."""
        self._database.close()
        self._lock.close()

    @property
    def run(self) -> str:
        """The run's id, drawn once: the ledger records the run's debits under it."""
        with plain_errors(self.path):
            (run,) = self._database.execute("SELECT run FROM identity").fetchone()
        return str(run)

    def sync_every_commit(self, wanted: bool = True) -> None:
        """Lose no round in a power cut, for runs whose rounds cannot be played again."""
        self._synced = wanted

    @contextmanager
    def together(self, *, synced: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction: everything that the body writes is committed, or nothing.

        ``synced=False`` does not wait for the disk even after :meth:`sync_every_commit`: a power
        cut may lose the commit until the next synced one.
        """
        with plain_errors(self.path):
            if self._database.in_transaction:
                yield self._database
                return
            # NORMAL loses nothing when the process dies; a power cut may cost the last second.
            level = "FULL" if synced and self._synced else "NORMAL"
            self._database.execute(f"PRAGMA synchronous = {level}")
            self._touched, self._first_touched = set(), None
            with self._database as database:
                database.execute("BEGIN IMMEDIATE")
                yield database
                sealing.seal(database, tables=self._touched, first_round=self._first_touched)

    def _touch(self, *tables: str, from_round: int | None = None) -> None:
        """Have these tables, and the rounds from this one on, sealed before the next commit."""
        self._touched.update(tables)
        if from_round is not None:
            self._first_touched = min(from_round, self._first_touched or from_round)

    @property
    def origin(self) -> Origin | None:
        """What the run began with; None before it began, or if journals did not keep that yet."""
        with plain_errors(self.path):
            row = self._database.execute("SELECT spec, inputs FROM origin").fetchone()
        return None if row is None else Origin(row[0], json.loads(row[1]))

    def begin(
        self,
        versions: Mapping[str, str],
        clients: Mapping[str, NDArray[Any]],
        origin: Origin | None = None,
    ) -> None:
        """Record that a process starts or continues the run, with what, and its clients."""
        checkpoint = self.checkpoint()
        with self.together() as database:
            self._touch("starts", "clients", "origin")
            if origin is not None:
                database.execute(
                    "INSERT OR REPLACE INTO origin VALUES (0, ?, ?)",
                    (origin.spec, json.dumps(origin.inputs)),
                )
            database.execute(
                "INSERT INTO starts (after_round, versions) VALUES (?, ?)",
                (0 if checkpoint is None else checkpoint.round, json.dumps(versions)),
            )
            database.execute(
                "INSERT OR IGNORE INTO clients VALUES (0, ?)", (states.to_bytes(clients, {}),)
            )

    def append(
        self, rows: Sequence[RoundRow], checkpoint: Checkpoint, *, ending: str | None = None
    ) -> None:
        """Commit rounds and the checkpoint after the last of them, or nothing.

        ``ending`` says why the run is over before its horizon.
        """
        with self.together() as database:
            self._touch("checkpoint", from_round=rows[0].round if rows else None)
            database.executemany(
                f"INSERT INTO rounds VALUES ({', '.join('?' * (len(_COLUMNS) + 2))})",
                (
                    (
                        *(getattr(row, name) for name in _PLAYED),
                        *(getattr(row.learning, name) for name in _LEARNED),
                        *(getattr(row.privacy, name) for name in _SPENT),
                        row.clients.astype("<i4").tobytes(),
                        row.learning.rejected.astype("<i4").tobytes(),
                    )
                    for row in rows
                ),
            )
            for row in rows:
                network = None if row.network is None else _edge_arrays(row.network)
                jobs = None if row.jobs is None else row.jobs.arrays()
                tables = (("scores", row.scores), ("network", network), ("jobs", jobs))
                for table, arrays in tables:
                    if arrays is not None:
                        image = states.to_bytes(arrays, {})
                        database.execute(f"INSERT INTO {table} VALUES (?, ?)", (row.round, image))
            *columns, loop = checkpoint
            database.execute(
                "INSERT OR REPLACE INTO checkpoint VALUES (0, ?, ?, ?, ?, ?, ?)", columns
            )
            if loop is not None:
                self._touch("loop")
                database.execute("INSERT OR REPLACE INTO loop VALUES (0, ?)", (loop,))
            self.keep_afterwards(checkpoint.round, None)
            if ending is not None:
                self._touch("ending")
                database.execute("INSERT OR REPLACE INTO ending VALUES (0, ?)", (ending,))

    def know_clients(self, clients: Mapping[str, NDArray[Any]]) -> None:
        """Replace what is known of clients, where clients join during the run."""
        image = states.to_bytes(clients, {})
        with self.together() as database:
            self._touch("clients")
            database.execute("INSERT OR REPLACE INTO clients VALUES (0, ?)", (image,))

    def evaluated(
        self, round_number: int, *, loss: float | None = None, accuracy: float | None = None
    ) -> None:
        """Add to a round that is written what was measured after it; None leaves it as it is."""
        with self.together() as database:
            self._touch(from_round=round_number)
            database.execute(
                "UPDATE rounds SET loss = coalesce(?, loss), accuracy = coalesce(?, accuracy) "
                "WHERE round = ?",
                (loss, accuracy, round_number),
            )

    def forget_evaluation(self, round_number: int) -> None:
        """Remove a round's loss and accuracy: it was evaluated as the last round, and is not."""
        with self.together() as database:
            self._touch(from_round=round_number)
            database.execute(
                "UPDATE rounds SET loss = NULL, accuracy = NULL WHERE round = ?", (round_number,)
            )

    def note(self, round_number: int, stage: str, metrics: Mapping[str, Any]) -> None:
        """Keep what was reported at a stage of a round, beyond what the columns hold."""
        named = {str(name): value for name, value in metrics.items()}
        try:
            text = json.dumps(named, default=_plain)
        except (TypeError, ValueError):  # keys that JSON has not, or circles
            text = json.dumps({name: str(value) for name, value in named.items()})
        with self.together() as database:
            self._touch(from_round=round_number)
            database.execute(
                "INSERT OR REPLACE INTO metrics VALUES (?, ?, ?)", (round_number, stage, text)
            )

    def noted(self, stage: str) -> dict[int, dict[str, Any]]:
        """What :meth:`note` kept at a stage, by round."""
        with plain_errors(self.path):
            rows = self._database.execute(
                "SELECT round, json FROM metrics WHERE stage = ? ORDER BY round", (stage,)
            ).fetchall()
        return {number: json.loads(text) for number, text in rows}

    def keep_afterwards(self, round_number: int, image: bytes | None) -> None:
        """Keep what has changed since a round's checkpoint, in place of what was kept before."""
        with self.together() as database:
            self._touch("afterwards")
            database.execute("DELETE FROM afterwards")
            if image is not None:
                database.execute("INSERT INTO afterwards VALUES (0, ?, ?)", (round_number, image))

    def afterwards(self, round_number: int) -> bytes | None:
        """What has changed since that round's checkpoint, if anything was kept."""
        with plain_errors(self.path):
            row = self._database.execute(
                "SELECT image FROM afterwards WHERE round = ?", (round_number,)
            ).fetchone()
        return None if row is None else bytes(row[0])

    def checkpoint(self) -> Checkpoint | None:
        """Where the run stands; None before its first commit."""
        with plain_errors(self.path):
            row = self._database.execute(
                "SELECT round, elapsed_seconds, selector, judge, trainer, budget, npz "
                "FROM checkpoint LEFT JOIN loop USING (id)"
            ).fetchone()
        return None if row is None else Checkpoint(*row)


class JournalReader:
    """What a journal says; may be read while the run goes on.

    ``columns`` holds round, seconds, reward, regret, num_available, num_completed, num_refused,
    loss, accuracy, train_loss, num_aggregated, spent_max, spent_mean and num_exhausted, one entry
    a round (NaN where there is none); ``cohorts`` the clients chosen in each round, ``rejected``
    those whose update was not finite.
    """

    columns: dict[str, FloatArray]
    cohorts: list[IntArray]
    rejected: list[IntArray]

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)
        if self.path.name != FILE_NAME:
            self.path /= FILE_NAME
        if not self.path.is_file():
            raise StateError(f"{folder} is no run: it holds no {FILE_NAME}")
        with reading(self.path) as database:
            version = check_format(database, self.path)
            if version == 0:
                raise StateError(f"{self.path} is empty: the run has not begun; resume it")
            sealed = version != UNSEALED
            if sealed:
                _require_sound(database, self.path)

            def every(query: str) -> list[tuple[Any, ...]]:
                return database.execute(f"SELECT {query}").fetchall()

            def only(query: str) -> Any:
                return next((row[0] for row in every(query)), None)

            rows = every("* FROM rounds ORDER BY round")
            clients = only("npz FROM clients")
            starts = every("versions FROM starts ORDER BY start")
            ending, identity = only("reason FROM ending"), only("run FROM identity")
            checkpointed = only("budget FROM checkpoint")
            scores = every("round, npz FROM scores ORDER BY round")
            network = every("npz FROM network ORDER BY round")
            known = only("count(*) FROM sqlite_master WHERE name = 'jobs'")  # of older journals not
            jobs = every("round, npz FROM jobs ORDER BY round") if known else []
            origins = every("spec, inputs FROM origin") if sealed else []
        try:
            self.columns, self.cohorts, self.rejected = _parse(rows)
        except (ValueError, TypeError) as error:  # a cell that is neither number nor cohort
            raise StateError(f"{self.path} is damaged: {error}") from error
        self.ending: str | None = ending
        """Why the run ended before its horizon, if it did."""
        self.origin: Origin | None = None
        """What the run began with, if the journal keeps that."""
        if origins:
            ((spec, inputs),) = origins
            self.origin = Origin(spec, json.loads(inputs))
        self.holds_budget: bool = checkpointed is not None
        """Whether the run debits from a ledger."""
        self.run: str | None = identity
        """The run's name in ledgers."""
        self.versions: list[dict[str, str]] = [json.loads(text) for (text,) in starts]
        """The versions of what ran, one entry for each time the run was started or continued."""
        self.clients = {} if clients is None else self._arrays(clients)
        """``group`` and ``typical_latency_seconds`` of each client, ``cohort_size``, who was
        ``watched``, and what else the world says of clients."""
        self.score_rounds: IntArray = np.array([number for number, _ in scores], dtype=np.int64)
        """The rounds in which scores were written down."""
        self.scores = _side_by_side([self._arrays(image) for _, image in scores])
        """[score_rounds, watched] by name; NaN where there was none."""
        self.edge_rows: list[EdgeRow] | None = None
        """What happened at the edge servers in each round; None where there are none."""
        if network:
            self.edge_rows = [EdgeRow(**self._arrays(image)) for (image,) in network]

        self.jobs: list[JobRows] | None = None
        """The jobs that ended before each aggregation; None in rounds."""
        if jobs:
            self.jobs = [JobRows(**self._arrays(image)) for _, image in jobs]

    def _arrays(self, image: bytes) -> dict[str, NDArray[Any]]:
        return states.from_bytes(image, source=str(self.path))[0]

    def __len__(self) -> int:
        return len(self.cohorts)

    def digest(self) -> str:
        """A fingerprint of every bit of every round: equal for runs with equal results."""
        fingerprint = hashlib.sha256()
        for name in _COLUMNS:
            fingerprint.update(self.columns[name].tobytes())
        for cohort in (*self.cohorts, *self.rejected):
            fingerprint.update(len(cohort).to_bytes(8, "little"))
            fingerprint.update(cohort.tobytes())
        for name in sorted(self.scores):
            fingerprint.update(name.encode())
            fingerprint.update(self.scores[name].tobytes())
        for row in self.edge_rows or ():
            for name, values in _edge_arrays(row).items():
                fingerprint.update(name.encode())
                fingerprint.update(values.tobytes())
        for jobs in self.jobs or ():
            for name, values in jobs.arrays().items():
                fingerprint.update(name.encode())
                fingerprint.update(values.tobytes())
        return fingerprint.hexdigest()


def check_format(database: sqlite3.Connection, path: Path) -> int:
    """The format of the journal; 0 of a file without tables."""
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if not tables:
        return 0
    if version not in (UNSEALED, _FORMAT):
        raise StateError(
            f"{path} has format {version or 1}, this version reads and writes {_FORMAT}: run it "
            "again in a new folder"
        )
    if version == UNSEALED and "seals" in tables:
        raise StateError(f"{path} is damaged: it has digests, which its format {version} has not")
    return int(version)


def _require_sound(database: sqlite3.Connection, path: Path) -> None:
    """Refuse a journal of which a row does not fit its digest."""
    fault = next(sealing.faults(database), None)
    if fault is not None:
        raise StateError(
            f"{path} is damaged: {fault} (`fedmuster verify` lists all faults); restore it from a "
            "copy, or run it again in a new folder"
        )


def _lay_out(database: sqlite3.Connection) -> None:
    """Make the tables; in a journal of before digests, those that are missing, and the digests."""
    database.execute("BEGIN IMMEDIATE")
    for statement in f"{_SCHEMA}{sealing.SCHEMA}".split(";")[:-1]:
        database.execute(statement)
    database.execute("INSERT OR IGNORE INTO identity VALUES (0, ?)", (uuid4().hex,))
    database.execute("INSERT INTO unlinked SELECT 0, max(round) FROM rounds HAVING count(*) > 0")
    sealing.seal_everything(database)
    database.execute(f"PRAGMA user_version = {_FORMAT}")


def _parse(
    rows: list[tuple[Any, ...]],
) -> tuple[dict[str, FloatArray], list[IntArray], list[IntArray]]:
    columns = {
        name: np.array([row[place] for row in rows], dtype=np.float64)
        for place, name in enumerate(_COLUMNS)
    }
    cohorts, rejected = (
        [np.frombuffer(row[place], dtype="<i4").astype(np.int64) for row in rows]
        for place in (-2, -1)
    )
    return columns, cohorts, rejected


def _edge_arrays(row: EdgeRow) -> dict[str, NDArray[Any]]:
    values = {item.name: getattr(row, item.name) for item in fields(row)}
    return {name: array for name, array in values.items() if array is not None}


def _side_by_side(rounds: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, FloatArray]:
    names = sorted({name for scores in rounds for name in scores})
    width = max((len(values) for scores in rounds for values in scores.values()), default=0)
    absent = np.empty(0)
    return {
        name: np.stack([_widened(scores.get(name, absent), width) for scores in rounds])
        for name in names
    }


def _widened(scores: NDArray[Any], width: int) -> NDArray[Any]:
    """Scores of all clients that joined by the end; NaN for clients that joined later."""
    if len(scores) == width:
        return scores
    return np.concatenate([scores, np.full(width - len(scores), np.nan)])


class Standing(NamedTuple):
    """How far a run is, and why it is over before its horizon, if it is."""

    rounds: int
    elapsed_seconds: float
    ending: str | None = None


def standing(folder: str | Path) -> Standing:
    """What is committed of a run; nothing before it started."""
    path = Path(folder) / FILE_NAME
    if not path.is_file():
        return Standing(0, 0.0)
    with reading(path) as database:
        check_format(database, path)
        try:
            row = database.execute(
                "SELECT round, elapsed_seconds, reason FROM checkpoint LEFT JOIN ending USING (id)"
            ).fetchone()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            row = None  # created a moment ago
    return Standing(0, 0.0) if row is None else Standing(*row)


def rounds_done(folder: str | Path) -> int:
    """How many rounds of a run are committed."""
    return standing(folder).rounds


def _plain(value: Any) -> Any:
    """Of numpy's and others' numbers what JSON knows, and of anything else its text."""
    tolist = None if isinstance(value, type) else getattr(value, "tolist", None)
    return str(value) if tolist is None else tolist()

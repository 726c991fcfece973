"""Whatever was changed in a ledger is found, by us and by a verifier that knows only the docs."""

import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fedmuster.core.errors import LedgerError
from fedmuster.privacy.ledger import Ledger, verify
from fedmuster.privacy.ledger.chain import link

DOCS = Path(__file__).parents[2] / "docs" / "ledger.md"
CLIENTS = [f"client-{k}" for k in range(8)]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two batches of clients, two runs, eleven debits; entries 1 … 15."""
    path = tmp_path_factory.mktemp("original") / "ledger.sqlite"
    with Ledger.open(path, currency="epsilon", kind="simulated") as ledger:
        accounts = ledger.register(CLIENTS[:5], 1_000)
        for number in (1, 2):
            cohort = accounts[number : number + 3]
            ledger.debit(run="a", round=number, accounts=cohort, units=np.array([10, 20, 30]))
        accounts = ledger.register(CLIENTS, 1_000)
        cohort, units = accounts[3:], np.arange(1, 6)
        ledger.debit(run="b", round=1, accounts=cohort, units=units)
        assert ledger.head.sequence == 15
    return path


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    for name in (original.name, f"{original.name}.head"):
        shutil.copy(original.parent / name, tmp_path / name)
    return tmp_path / original.name


def independent(path: Path) -> subprocess.CompletedProcess[str]:
    """The verifier that docs/ledger.md prints."""
    (code,) = re.findall(r"```python\n(import hashlib.*?)```", DOCS.read_text(), re.DOTALL)
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.run(command, capture_output=True, text=True)


def tamper(path: Path, *statements: str) -> None:
    """As somebody with SQLite at hand would: triggers go and come back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        triggers = database.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid"
        ).fetchall()
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        database.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            database.execute(statement)
        for _, sql in triggers:
            database.execute(sql)


def test_a_good_ledger_is_found_good(path: Path) -> None:
    found = verify(path)
    assert (found.faults, found.remarks) == ([], [])
    assert (found.clients, found.debits) == (8, 11)
    assert found.head is not None
    done = independent(path)
    assert done.stdout == f"good: 15 entries, head {found.head.digest}\n", done.stderr


SWAP = "(SELECT {0} FROM entries WHERE sequence = {1})"
TAMPERINGS = {
    "a debit made smaller": (
        ["UPDATE entries SET units = 9 WHERE sequence = 3"],
        r"entry 3 \(debit\): its digest does not fit",
    ),
    "a debit of somebody else": (
        ["UPDATE entries SET account = 1 WHERE sequence = 4"],
        r"entry 4 \(debit\): its digest does not fit",
    ),
    "another time": (
        ["UPDATE entries SET time_us = time_us + 1 WHERE sequence = 15"],
        r"entry 15 \(debit\): its digest does not fit",
    ),
    "another digest": (
        ["UPDATE entries SET digest = zeroblob(32) WHERE sequence = 7"],
        r"entry 7 \(debit\): its digest does not fit",
    ),
    "another run": (
        ["UPDATE entries SET text = 'c' WHERE sequence = 2"],
        r"entry 2 \(run\): its digest does not fit",
    ),
    "another kind": (
        ["UPDATE entries SET kind = 'gift' WHERE sequence = 15"],
        r"entry 15 \(gift\): no such kind of entry",
    ),
    "an entry in the middle is gone": (
        ["DELETE FROM entries WHERE sequence = 5"],
        "entries 5 … 5 are missing",
    ),
    "the first entry is gone": (
        ["DELETE FROM entries WHERE sequence = 1"],
        "entries 1 … 1 are missing",
    ),
    "the last entry is gone": (
        ["DELETE FROM entries WHERE sequence = 15"],
        r"account 8 \(client-7\): the balance says 5 units spent, the entries say 0",
    ),
    "the last entry is gone with its balance": (
        [
            "DELETE FROM entries WHERE sequence = 15",
            "UPDATE accounts SET spent_units = 0, debits = 0 WHERE account = 8",
        ],
        "old backup: 1 entries are missing",
    ),
    "all entries are gone": (
        ["DELETE FROM entries", "UPDATE accounts SET spent_units = 0, debits = 0"],
        "8 accounts are there, the entries registered 0",
    ),
    "two entries changed places": (
        [
            "UPDATE entries SET sequence = 100 WHERE sequence = 6",
            "UPDATE entries SET sequence = 6 WHERE sequence = 7",
            "UPDATE entries SET sequence = 7 WHERE sequence = 100",
        ],
        r"entry 6 \(debit\): its digest does not fit",
    ),
    "an entry was doubled": (
        [
            "INSERT INTO entries SELECT 16, time_us, kind, run, round + 7, account, clients, "
            "units, text, digest FROM entries WHERE sequence = 15"
        ],
        r"entry 16 \(debit\): its digest does not fit",
    ),
    "an entry was doubled without an index to forbid it": (
        [
            "DROP INDEX one_debit_a_round",
            "INSERT INTO entries SELECT 16, time_us, kind, run, round, account, clients, "
            "units, text, digest FROM entries WHERE sequence = 15",
        ],
        "its tables are not those of a ledger",
    ),
    "a balance made smaller": (
        ["UPDATE accounts SET spent_units = spent_units - 1 WHERE account = 3"],
        r"account 3 \(client-2\): the balance says 29 units spent, the entries say 30",
    ),
    "a count made smaller": (
        ["UPDATE accounts SET debits = 0 WHERE account = 3"],
        r"account 3 \(client-2\): the balance says 0 debits, the entries say 2",
    ),
    "a cap made larger": (
        ["UPDATE accounts SET cap_units = 2000 WHERE account = 4"],
        r"account 4 \(client-3\): its cap is 2,000 units, but entry 1 promised 1,000",
    ),
    "a client renamed": (
        ["UPDATE accounts SET identity = 'eve' WHERE account = 7"],
        r"entry 9 \(accounts 6 … 8\): its clients' identities were changed",
    ),
    "two clients swapped": (
        [
            "UPDATE accounts SET identity = 'x' WHERE account = 1",
            "UPDATE accounts SET identity = 'client-0' WHERE account = 2",
            "UPDATE accounts SET identity = 'client-1' WHERE account = 1",
        ],
        r"entry 1 \(accounts 1 … 5\): its clients' identities were changed",
    ),
    "a client added": (
        ["INSERT INTO accounts VALUES (9, 'eve', 1000, 0, 0)"],
        "9 accounts are there, the entries registered 8",
    ),
    "a client deleted": (["DELETE FROM accounts WHERE account = 1"], "account 1 is missing"),
    "a simulated ledger made real": (
        ["UPDATE ledger SET kind = 'real'"],
        r"entry 1 \(accounts\): its digest does not fit",
    ),
    "another currency": (
        ["UPDATE ledger SET currency = 'rho'"],
        r"entry 1 \(accounts\): its digest does not fit",
    ),
    "no ledger row": (["DELETE FROM ledger"], "0 rows say what it is"),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_found(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMUSTER_STATE", str(path.parent / "state"))
    statements, message = TAMPERINGS[name]
    tamper(path, *statements)
    faults = verify(path).faults
    assert re.search(message, "\n".join(faults)), faults
    # Who knows only the docs finds the same, but for what is missing at the end.
    done = independent(path)
    if "old backup" in message:
        assert "good: 14 entries" in done.stdout
    else:
        assert done.returncode != 0, done.stdout


@pytest.mark.parametrize(
    "name",
    [
        "another digest",
        "another run",
        "the last entry is gone",
        "the last entry is gone with its balance",
        "all entries are gone",
        "an entry was doubled",
        "a count made smaller",
        "no ledger row",
    ],
)
def test_a_tail_that_does_not_fit_is_not_continued(path: Path, name: str) -> None:
    tamper(path, *TAMPERINGS[name][0])
    with pytest.raises(LedgerError):
        Ledger.open(path, currency="epsilon", kind="simulated")


def test_a_chain_forged_anew_does_not_fit_the_head_outside(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT * FROM entries ORDER BY sequence").fetchall()
        digest = rows[11][-1]
    statements = []
    for row in rows[12:]:
        entry = (*row[:7], 1, row[8])  # everybody paid one unit only
        digest = link(digest, entry)
        statements.append(
            f"UPDATE entries SET units = 1, digest = x'{digest.hex()}' WHERE sequence = {row[0]}"
        )
        statements.append(
            f"UPDATE accounts SET spent_units = spent_units - {row[7] - 1} WHERE account = {row[5]}"
        )
    tamper(path, *statements)
    assert independent(path).returncode == 0  # the file by itself is consistent
    (fault,) = verify(path).faults
    assert "entry 15 is another one" in fault
    with pytest.raises(LedgerError, match="15"):
        Ledger.open(path, currency="epsilon", kind="simulated")


def test_an_index_that_forgot_a_debit_is_found(path: Path) -> None:
    """The entries are as they were, but the same debit could be written twice."""
    find = "FROM sqlite_master WHERE name = 'one_debit_a_round'"
    with closing(sqlite3.connect(path)) as database:
        row = database.execute("SELECT * FROM entries WHERE sequence = 15").fetchone()
        hidden = database.execute(f"SELECT rowid, * {find}").fetchone()
    tamper(path, "DELETE FROM entries WHERE sequence = 15")
    for statement, values in (
        (f"DELETE {find}", ()),
        ("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row),
        (
            "INSERT INTO sqlite_master (rowid, type, name, tbl_name, rootpage, sql) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            hidden,
        ),
    ):
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("PRAGMA writable_schema = ON")
            database.execute(statement, values)
    faults = verify(path).faults
    assert any("integrity check" in fault and "one_debit_a_round" in fault for fault in faults)


def test_the_ledger_itself_forbids_changes(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        for statement, message in {
            "DELETE FROM entries WHERE sequence = 15": "never deleted",
            "UPDATE entries SET units = 1": "never changed",
            "DELETE FROM accounts": "never deleted",
            "UPDATE accounts SET cap_units = 10000": "never changed",
            "UPDATE accounts SET spent_units = 1001": "CHECK constraint failed",
        }.items():
            with pytest.raises(sqlite3.IntegrityError, match=message):
                database.execute(statement)


def contents(path: Path) -> object:
    """All that SQLite reads out of the file."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        tables = ("sqlite_master", "ledger", "entries", "accounts")
        pragmas = ("application_id", "user_version", "encoding")
        return [
            *(
                database.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()
                for table in tables
            ),
            *(database.execute(f"PRAGMA {pragma}").fetchone() for pragma in pragmas),
        ]


def test_any_flipped_byte_is_found_or_means_nothing(path: Path) -> None:
    image, before = path.read_bytes(), contents(path)
    rng = np.random.default_rng(1)
    places = [*range(100), *rng.choice(np.arange(100, len(image)), 200, replace=False).tolist()]
    found = 0
    for place in places:
        damaged = bytearray(image)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        if verify(path).faults:
            found += 1
        else:
            assert contents(path) == before, f"byte {place}"
    assert found > 50  # most of so small a file is empty pages' ends


def test_a_ledger_with_a_flipped_byte_is_refused_plainly_or_works(path: Path) -> None:
    image, head = path.read_bytes(), path.with_name(f"{path.name}.head").read_bytes()
    rng = np.random.default_rng(2)
    places = [*range(0, 100, 4), *rng.choice(len(image), 50, replace=False).tolist()]
    refused = 0
    for place in places:
        damaged = bytearray(image)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        path.with_name(f"{path.name}.head").write_bytes(head)
        for suffix in ("-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        try:
            with Ledger.open(path, currency="epsilon", kind="simulated") as ledger:
                accounts = ledger.register(CLIENTS, 1_000)
                ledger.debit(run="c", round=1, accounts=accounts, units=np.full(8, 1))
        except LedgerError:
            refused += 1
    assert refused > 10


def test_every_byte_of_the_entries_means_something(path: Path) -> None:
    """Where an entry's columns and digest stand, no byte can be flipped unnoticed."""
    image = path.read_bytes()
    with closing(sqlite3.connect(path)) as database:
        (digest,) = database.execute("SELECT digest FROM entries WHERE sequence = 8").fetchone()
    end = image.index(digest) + 32
    assert image.count(digest) == 1
    for place in range(end - 32 - 20, end):  # time, 'debit', numbers, digest
        damaged = bytearray(image)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert verify(path).faults, f"byte {place - end}"


def test_verify_does_not_change_the_file(path: Path) -> None:
    image = path.read_bytes()
    verify(path)
    assert path.read_bytes() == image
    with pytest.raises(LedgerError):
        verify(path.with_name("nothing"))

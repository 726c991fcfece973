"""What happens to runs and ledgers: refused in one clear line before anything is released, and
continued bit for bit when it is mended."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple

import pytest
from tests.faults import children
from tests.faults.auditor import audit_ledger, audit_run
from tests.faults.children import Child, Fault, Outcome, released
from tests.faults.scenarios import private_run
from tests.faults.watching import RELEASES

from fedmuster import PAUSE
from fedmuster.experiments.journal import JournalReader, rounds_done
from fedmuster.experiments.run import SPEC_NAME, prepare
from fedmuster.experiments.spec import LEDGER_NAME, Experiment
from fedmuster.privacy.budget import Privacy
from fedmuster.worlds import PauseGroups

ROUNDS, COHORT, DIES_IN = 26, 15, 22
"""So many debits that the oldest are no longer among those which every start looks at."""


def experiment(**changes: Any) -> Experiment:
    return private_run(
        PAUSE(),
        replace(Privacy(epsilon=40.0), **changes),
        rounds=ROUNDS,
        world=PauseGroups(num_clients=30, cohort_size=COHORT),
    )


class Killed(NamedTuple):
    """A run that was killed, what it would have come to, and its ledger from before."""

    run: Path
    digest: str
    backup: Path


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    base = tmp_path_factory.mktemp("killed")
    whole, run, backup = base / "whole", base / "run", base / "backup"
    for folder in (whole, run):
        prepare(folder, experiment())
    assert Child(whole).wait().code == 0
    assert Child(run, partial(children.die, nth=DIES_IN // 2)).wait().code == -9
    shutil.copytree(run, backup)
    assert Child(run, partial(children.die, nth=DIES_IN // 2)).wait().code == -9
    assert 0 < rounds_done(backup) < rounds_done(run) < ROUNDS
    return Killed(run, JournalReader(whole).digest(), backup)


@pytest.fixture
def run(killed: Killed, tmp_path: Path) -> Path:
    """A copy of the run that was killed."""
    return Path(shutil.copytree(killed.run, tmp_path / "run"))


def put_back(killed: Killed, run: Path) -> None:
    """The ledger as it was when the run was killed."""
    for file in run.glob(f"{LEDGER_NAME}*"):
        file.unlink()
    for file in killed.run.glob(f"{LEDGER_NAME}*"):
        shutil.copy(file, run)


def require_refusal(outcome: Outcome, released_before: bytes, *words: str) -> None:
    """One line that says what is wrong, and nothing has left anybody."""
    assert outcome.code == 2, outcome.said
    assert len(outcome.said.splitlines()) == 1
    for word in words:
        assert word in outcome.said
    assert outcome.released == released_before


def require_same_end(killed: Killed, run: Path) -> None:
    outcome = Child(run).wait()
    assert outcome.code == 0, outcome.said
    assert JournalReader(run).digest() == killed.digest


def edit(run: Path, *statements: str) -> None:
    """Change a ledger as somebody would who knows SQLite: triggers are put back afterwards."""
    with closing(sqlite3.connect(run / LEDGER_NAME)) as database, database:
        triggers = database.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid"
        ).fetchall()
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            database.execute(statement)
        for _, sql in triggers:
            database.execute(sql)


def forget_last_round(run: Path) -> None:
    edit(
        run,
        "CREATE TEMP TABLE gone AS SELECT account, units FROM entries "
        "WHERE kind = 'debit' AND round = (SELECT max(round) FROM entries)",
        "DELETE FROM entries WHERE kind = 'debit' AND round = (SELECT max(round) FROM entries)",
        "UPDATE accounts SET debits = debits - 1, spent_units = spent_units - "
        "(SELECT units FROM gone WHERE gone.account = accounts.account) "
        "WHERE account IN (SELECT account FROM gone)",
    )


TAMPERED: dict[str, Callable[[Path], None]] = {
    "a balance": lambda run: edit(run, "UPDATE accounts SET spent_units = 0 WHERE account = 3"),
    "two balances, same sum": lambda run: edit(
        run,
        "UPDATE accounts SET spent_units = spent_units - 5 WHERE account = 3",
        "UPDATE accounts SET spent_units = spent_units + 5 WHERE account = 4",
    ),
    "a cap": lambda run: edit(run, "UPDATE accounts SET cap_units = 2 * cap_units"),
    "an old digest": lambda run: edit(
        run, "UPDATE entries SET digest = zeroblob(32) WHERE sequence = 5"
    ),
    "the newest digest": lambda run: edit(
        run,
        "UPDATE entries SET digest = zeroblob(32) "
        "WHERE sequence = (SELECT max(sequence) FROM entries)",
    ),
    "an old amount and its balance": lambda run: edit(
        run,
        "UPDATE accounts SET spent_units = spent_units - 7 "
        "WHERE account = (SELECT account FROM entries WHERE sequence = 5)",
        "UPDATE entries SET units = units - 7 WHERE sequence = 5",
    ),
    "an identity": lambda run: edit(
        run, "UPDATE accounts SET identity = 'client-99' WHERE identity = 'client-9'"
    ),
    "an old debit deleted": lambda run: edit(
        run,
        "UPDATE accounts SET debits = debits - 1, spent_units = spent_units - "
        "(SELECT units FROM entries WHERE sequence = 5) "
        "WHERE account = (SELECT account FROM entries WHERE sequence = 5)",
        "DELETE FROM entries WHERE sequence = 5",
    ),
    "the last round": forget_last_round,
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_ledger_that_was_tampered_with_is_refused(killed: Killed, run: Path, what: str) -> None:
    TAMPERED[what](run)
    assert audit_ledger(run / LEDGER_NAME, run / SPEC_NAME, run).faults  # the auditor sees it, too
    require_refusal(Child(run).wait(), released(run), LEDGER_NAME)
    put_back(killed, run)
    require_same_end(killed, run)


@pytest.mark.parametrize(
    "size",
    [
        lambda whole: 0,
        lambda whole: 99,
        lambda whole: 1024,
        lambda whole: whole // 2,
        lambda whole: whole - 1024,
        lambda whole: whole - 1,
    ],
    ids=["empty", "header", "a page", "half", "but a page", "but a byte"],
)
def test_a_truncated_ledger_is_refused(
    killed: Killed, run: Path, size: Callable[[int], int]
) -> None:
    edit(run)  # closing it moves the log into the file
    path = run / LEDGER_NAME
    os.truncate(path, size(path.stat().st_size))
    require_refusal(Child(run).wait(), released(run), LEDGER_NAME)
    put_back(killed, run)
    require_same_end(killed, run)


def lose(run: Path, *endings: str) -> None:
    for ending in endings:
        (run / f"{LEDGER_NAME}{ending}").unlink()


def lose_half_the_log(run: Path, backup: Path) -> None:
    del backup
    log = run / f"{LEDGER_NAME}-wal"
    os.truncate(log, log.stat().st_size // 2)


def restore(run: Path, backup: Path, *, with_head: bool) -> None:
    for file in backup.glob(f"{LEDGER_NAME}*"):
        if with_head or not file.name.endswith(".head"):
            shutil.copy(file, run)
    (run / f"{LEDGER_NAME}-shm").unlink(missing_ok=True)


LOST: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "half the log": (lose_half_the_log, "restored from an old backup"),
    "the log": (lambda run, _: lose(run, "-wal"), "restored from an old backup"),
    "the ledger": (lambda run, _: lose(run, ""), "is gone"),
    "ledger and log": (lambda run, _: lose(run, "", "-wal", "-shm"), "is gone"),
    "the head": (lambda run, _: lose(run, ".head"), "fedmuster ledger adopt"),
    "everything": (lambda run, _: lose(run, "", "-wal", "-shm", ".head"), "is gone"),
    "the newest debits": (partial(restore, with_head=False), "restored from an old backup"),
    "the newest debits and head": (partial(restore, with_head=True), "the run knows entry"),
}


@pytest.mark.parametrize("what", LOST)
def test_a_ledger_that_is_lost_or_old_is_refused(killed: Killed, run: Path, what: str) -> None:
    happen, words = LOST[what]
    happen(run, killed.backup)
    require_refusal(Child(run).wait(), released(run), LEDGER_NAME, words)
    put_back(killed, run)
    require_same_end(killed, run)


def test_a_real_ledger_from_an_old_backup_is_refused_by_a_new_run(tmp_path: Path) -> None:
    """Restored with its head, and nobody has seen the newest debits but the user's state folder."""
    shared = experiment(noise="secure", ledger=str(tmp_path / LEDGER_NAME))
    for name in ("first", "second"):
        prepare(tmp_path / name, replace(shared, rounds=4))
    assert Child(tmp_path / "first", partial(children.die, nth=2)).wait().code == -9
    backup = tmp_path / "backup"
    backup.mkdir()
    restore(backup, tmp_path, with_head=True)
    assert Child(tmp_path / "first").wait().code == 0
    lose(tmp_path, "")
    restore(tmp_path, backup, with_head=True)
    outcome = Child(tmp_path / "second").wait()
    require_refusal(outcome, b"", "restored from an old backup", str(tmp_path / "state"))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (partial(children.fill_disk_of_ledger, nth=3), "disk"),
        (partial(children.fill_disk_of_journal, nth=3), "disk"),
        (partial(children.step_clock_back, nth=1), "the clock says"),
        (partial(children.step_clock_back, nth=6), "the clock says"),
        (partial(children.move_ledger_away, nth=3), "was replaced or deleted"),
    ],
    ids=["disk of the ledger", "disk of the journal", "clock", "clock later", "moved away"],
)
def test_what_goes_wrong_on_the_way(killed: Killed, run: Path, fault: Fault, words: str) -> None:
    outcome = Child(run, fault).wait()
    require_refusal(outcome, outcome.released, words)
    if (run / "away").exists():
        (run / "away").rename(run / LEDGER_NAME)
    # What was released before has its debit, and nothing was after.
    ledger = audit_ledger(run / LEDGER_NAME, run / SPEC_NAME, run)
    assert not ledger.faults
    assert not audit_run(run, run / RELEASES, ledger).faults
    require_same_end(killed, run)


def can_mount() -> bool:
    unshare = shutil.which("unshare")
    trial = ("--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt")
    return unshare is not None and subprocess.run([unshare, *trial]).returncode == 0


@pytest.mark.parametrize("kib", [120, 300] if can_mount() else [])
def test_a_disk_that_is_really_full(killed: Killed, tmp_path: Path, kib: int) -> None:
    prepare(tmp_path / "run", experiment())
    unshare = ("unshare", "--map-root-user", "--mount", sys.executable)
    program = (*unshare, "-m", "tests.faults.small_disk", tmp_path / "run", str(kib))
    found = json.loads(subprocess.run(program, check=True, capture_output=True).stdout)
    assert "disk" in found["said"], found["said"]
    assert len(found["said"].splitlines()) == 1
    assert found["digest"] == killed.digest


@pytest.mark.parametrize("what", [LEDGER_NAME, f"{LEDGER_NAME}.head", "."])
def test_what_is_read_only_is_refused(killed: Killed, run: Path, what: str) -> None:
    edit(run)
    closed = run / what
    mode = closed.stat().st_mode
    closed.chmod(mode & ~0o222)
    try:
        outcome = Child(run, children.give_up_privileges).wait()
    finally:
        closed.chmod(mode)
    require_refusal(outcome, released(run), str(run))
    require_same_end(killed, run)


def wait_until(file: Path) -> None:
    for _ in range(12_000):
        if file.exists():
            return
        sleep(0.01)
    raise AssertionError(f"{file} never came")


def test_two_runs_at_once(tmp_path: Path) -> None:
    """On one ledger the second is refused, in one folder as well; the first does not notice."""
    shared = experiment(ledger=str(tmp_path / LEDGER_NAME))
    whole, first, second = (tmp_path / name for name in ("whole", "first", "second"))
    prepare(whole, experiment())
    prepare(first, shared)
    prepare(second, replace(shared, rounds=5))
    alive = Child(first, partial(children.hold, nth=5))
    wait_until(first / "held")
    before = released(first)
    require_refusal(Child(second).wait(), b"", "is in use by run", JournalReader(first).run or "")
    require_refusal(Child(first).wait(), before, "is in use")
    (first / "go").touch()
    assert alive.wait().code == 0
    assert Child(whole).wait().code == 0
    assert JournalReader(first).digest() == JournalReader(whole).digest()
    assert Child(second).wait().code == 0


def test_the_auditor_sees_releases_without_debit_and_other_ones(run: Path) -> None:
    ledger = audit_ledger(run / LEDGER_NAME, run / SPEC_NAME, run)
    assert not audit_run(run, run / RELEASES, ledger).faults
    round_, client, _ = json.loads(released(run).splitlines()[0])
    for line in ([ROUNDS, client, "new"], [round_, client, "another"]):
        log = run / "log"
        log.write_bytes(released(run) + json.dumps(line).encode())
        assert len(audit_run(run, log, ledger).faults) == 1
    ledger.debits.popitem()
    assert audit_run(run, run / RELEASES, ledger).faults


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_the_command_line_tells_it_in_one_line(killed: Killed, run: Path) -> None:
    command = [sys.executable, "-m", "fedmuster", "resume", str(run), "--processes", "1"]

    def resume(*before: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*before, *command], capture_output=True, text=True)

    TAMPERED["a balance"](run)
    tampered = resume()
    put_back(killed, run)
    full = resume(sys.executable, "-c", LIMITED)
    for process, words in ((tampered, "was tampered with"), (full, "disk")):
        assert process.returncode == 2
        assert words in process.stderr
        assert len(process.stderr.splitlines()) == 1
        assert process.stderr.startswith("fedmuster: ")
    mended = resume()
    assert mended.returncode == 0, mended.stderr
    assert JournalReader(run).digest() == killed.digest

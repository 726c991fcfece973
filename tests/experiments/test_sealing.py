"""Whatever row of a journal is changed, added or lost: readers, writers and ``verify`` notice."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.experiments.tampering import make_old

from fedmuster.cli import cli
from fedmuster.core.errors import StateError
from fedmuster.experiments import sealing
from fedmuster.experiments.journal import FILE_NAME, Journal, JournalReader
from fedmuster.experiments.run import SPEC_NAME, execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import lay_out
from fedmuster.experiments.verification import verify_runs
from fedmuster.flower.run_record import Record

SPEC = {
    "rounds": 6,
    "world": {"name": "edge-network", "num_clients": 8},
    "watch": {"every": 2},
    "training": {"model": {"name": "logistic"}, "data": {"name": "digits", "train_limit": 300}},
    "policy": ["cocs"],
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    prepare(folder, Experiment.from_table(SPEC))
    execute(folder)
    with Journal(folder) as journal:
        journal.note(6, "after", {"n": 4})
        journal.note(8, "too early", {"n": 4})
        journal.keep_afterwards(6, b"something")
        journal.evaluated(6, loss=0.25)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    for name in (FILE_NAME, SPEC_NAME):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    return tmp_path


def verify(folder: Path) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["verify", str(folder)])
    return result.exit_code, result.output


def test_a_sound_run(run: Path) -> None:
    assert verify(run)[0] == 0
    assert verify_runs(run)[0].rounds == 6
    with Journal(run) as journal:
        assert journal.noted("after") == {6: {"n": 4}}


CHANGES = {
    "a number": "UPDATE rounds SET seconds = seconds * 1.0000001 WHERE round = 3",
    "a cohort": "UPDATE rounds SET clients = x'01000000' WHERE round = 3",
    "its kind": "UPDATE rounds SET reward = CAST(reward AS TEXT) || '' WHERE round = 3",
    "a null": "UPDATE rounds SET loss = NULL WHERE round = 5",
    "a score": "UPDATE scores SET npz = x'00' WHERE round = 3",
    "a score elsewhere": "UPDATE scores SET round = 4 WHERE round = 3",
    "a network": "DELETE FROM network WHERE round = 3",
    "a metric": "UPDATE metrics SET json = '{}' WHERE round = 6",
    "a metric to come": "DELETE FROM metrics WHERE round = 8",
    "a lost round": "DELETE FROM rounds WHERE round = 3",
    "the last round": "DELETE FROM rounds WHERE round = 6",
    "a round too many": "INSERT INTO scores VALUES (7, x'00')",
    "two rounds exchanged": "UPDATE rounds SET round = CASE round WHEN 2 THEN -3 WHEN 3 THEN -2 "
    "ELSE round END; UPDATE rounds SET round = abs(round)",
    "a digest": "UPDATE chain SET digest = x'00' WHERE round = 3",
    "a lost digest": "DELETE FROM chain WHERE round = 3",
    "rounds and their digests": "DELETE FROM chain WHERE round >= 4; "
    "DELETE FROM rounds WHERE round >= 4; DELETE FROM scores WHERE round >= 4; "
    "DELETE FROM network WHERE round >= 4; DELETE FROM metrics",
    "the checkpoint": "UPDATE checkpoint SET round = 5",
    "no checkpoint": "DELETE FROM checkpoint",
    "the clients": "DELETE FROM clients",
    "the name": "UPDATE identity SET run = 'another'",
    "the versions": "UPDATE starts SET after_round = 2",
    "an ending": "INSERT INTO ending VALUES (0, 'over')",
    "the origin": "UPDATE origin SET inputs = '{}'",
    "afterwards": "DELETE FROM afterwards",
    "a seal": "DELETE FROM seals WHERE name = 'clients'",
    "a seal too many": "INSERT INTO seals VALUES ('more', x'00')",
    "all digests": "DROP TABLE seals; DROP TABLE chain",
    "the format": "PRAGMA user_version = 7",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_change_is_noticed(run: Path, change: str) -> None:
    with closing(sqlite3.connect(run / FILE_NAME)) as database:
        database.executescript(change)
    code, output = verify(run)
    assert (code, "FAULT" in output) == (1, True)
    attempts: list[Callable[[Path], Any]] = [JournalReader, Journal]
    for attempt in attempts:
        with pytest.raises(StateError):
            attempt(run)


def test_the_first_bad_row_is_named(run: Path) -> None:
    with closing(sqlite3.connect(run / FILE_NAME)) as database:
        with database:
            database.execute("UPDATE rounds SET seconds = 1.0 WHERE round IN (3, 5)")
        first, second = sealing.faults(database)
    assert "round 3:" in first
    assert "round 5:" in second
    assert "round 3:" in verify(run)[1]


def test_a_run_without_digests_says_so(run: Path) -> None:
    before = JournalReader(run).digest()
    make_old(run)
    assert JournalReader(run).digest() == before
    (found,) = verify_runs(run)
    assert (len(found.remarks), found.faults) == (1, [])
    assert verify(run)[0] == 0
    prepare(run, Experiment.from_table({**SPEC, "rounds": 8}))
    execute(run)  # from now on it has digests
    (found,) = verify_runs(run)
    assert (found.rounds, len(found.remarks), found.faults) == (8, 1, [])
    assert "1 … 6" in found.remarks[0]


def test_an_experiment_and_what_is_none(tmp_path: Path) -> None:
    cells = lay_out(tmp_path, Experiment.from_table({**SPEC, "seeds": [0, 1]}))
    first, second = cells
    execute(first)
    assert verify(tmp_path)[0] == 0  # the second has not begun
    (second / SPEC_NAME).write_text("rounds = ")
    assert verify(tmp_path)[0] == 1
    (tmp_path / "nothing").mkdir()
    with pytest.raises(StateError):
        verify_runs(tmp_path / "nothing")


def test_the_ledger_belongs_to_it(tmp_path: Path) -> None:
    table = {
        "rounds": 3,
        "world": {"name": "bsfl-rates", "num_clients": 6, "cohort_size": 2},
        "training": SPEC["training"],
        "privacy": {"epsilon": 40.0, "noise": "seeded"},
        "policy": "random",
    }
    prepare(tmp_path, Experiment.from_table(table))
    execute(tmp_path)
    assert verify(tmp_path)[0] == 0
    ledger = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(ledger)) as database, database:
        database.execute("UPDATE accounts SET spent_units = 0 WHERE account = 1")
    assert verify(tmp_path)[0] == 1
    ledger.unlink()
    assert verify(tmp_path)[0] == 1


def test_the_model_of_a_federation_belongs_to_it(tmp_path: Path) -> None:
    from tests.flower.test_record import CELL, MODEL, commit

    with Record.open(tmp_path, CELL) as record:
        commit(record, 1)
    assert verify(tmp_path)[0] == 0
    image = bytearray((tmp_path / MODEL).read_bytes())
    image[len(image) // 2] ^= 1
    (tmp_path / MODEL).write_bytes(image)
    assert verify(tmp_path)[0] == 1

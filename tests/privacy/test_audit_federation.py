"""An audit of a federation: its journal says what its clients are called."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from fedmuster.cli.ledger import ledger as ledger_command
from fedmuster.core import state as states
from fedmuster.core.errors import StateError
from fedmuster.privacy.ledger import ChainHead, Ledger, audit

NAMES = ["key-07", "ward-7", "ann"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def write(path: Path, rounds: Mapping[int, Sequence[str]]) -> ChainHead:
    """Debits of one unit each of run "a", by round."""
    with Ledger.open(path, currency="epsilon", kind="simulated") as ledger:
        for number, names in rounds.items():
            accounts = ledger.register(names, 4)
            ones = np.ones(len(accounts), dtype=np.int64)
            ledger.debit(run="a", round=number, accounts=accounts, units=ones)
        return ledger.head


def write_journal(
    folder: Path,
    cohorts: Mapping[int, Sequence[int]],
    clients: Mapping[str, NDArray[Any]],
    head: ChainHead | None = None,
) -> Path:
    """As a run keeps it, but for what no auditor needs."""
    folder.mkdir()
    budget = None if head is None else json.dumps(head._asdict()).encode()
    with closing(sqlite3.connect(folder / "journal.sqlite")) as journal, journal:
        journal.execute("CREATE TABLE identity (id INTEGER PRIMARY KEY, run TEXT NOT NULL)")
        journal.execute("CREATE TABLE rounds (round INTEGER PRIMARY KEY, clients BLOB NOT NULL)")
        journal.execute("CREATE TABLE checkpoint (id INTEGER PRIMARY KEY, budget BLOB)")
        journal.execute("CREATE TABLE clients (id INTEGER PRIMARY KEY, npz BLOB NOT NULL)")
        journal.execute("INSERT INTO identity VALUES (0, 'a')")
        journal.executemany(
            "INSERT INTO rounds VALUES (?, ?)",
            ((n, np.array(chosen, dtype="<i4").tobytes()) for n, chosen in cohorts.items()),
        )
        journal.execute("INSERT INTO checkpoint VALUES (0, ?)", (budget,))
        journal.execute("INSERT INTO clients VALUES (0, ?)", (states.to_bytes(clients, {}),))
    return folder


def named(*names: str) -> dict[str, NDArray[Any]]:
    return {"identity": np.array(names, dtype=np.str_), "group": np.zeros(len(names))}


def test_a_federation_that_debited_all_it_asked(path: Path, tmp_path: Path) -> None:
    head = write(path, {1: ["ann", "key-07"], 2: ["ward-7"]})
    run = write_journal(tmp_path / "run", {1: [0, 2], 2: [1]}, named(*NAMES), head)
    found = audit(path, [run])
    assert (found.faults, found.remarks) == ([], [])
    told = CliRunner().invoke(ledger_command, ["audit", str(path), "--journal", str(run)])
    assert told.exit_code == 0, told.output


def test_who_was_asked_without_a_debit_is_called_by_name(path: Path, tmp_path: Path) -> None:
    write(path, {1: ["ann"], 2: ["ward-7"]})
    run = write_journal(tmp_path / "run", {1: [0, 2], 2: [1, 2]}, named(*NAMES))
    first, second = audit(path, [run]).faults
    assert first.endswith("round 1: asked without a debit: key-07")
    assert second.endswith("round 2: asked without a debit: ann")
    told = CliRunner().invoke(ledger_command, ["audit", str(path), "--journal", str(run)])
    assert told.exit_code == 1
    assert "asked without a debit: key-07" in told.output


def test_a_client_that_the_journal_does_not_name_has_not_paid(path: Path, tmp_path: Path) -> None:
    write(path, {1: ["ann", "client-3"]})
    run = write_journal(tmp_path / "run", {1: [2, 3]}, named(*NAMES))
    (fault,) = audit(path, [run]).faults
    assert "a client 3 that it does not name" in fault


def test_two_clients_of_one_name_are_not_paid_for_by_one_debit(path: Path, tmp_path: Path) -> None:
    write(path, {1: ["ann"]})
    run = write_journal(tmp_path / "run", {1: [0, 1]}, named("ann", "ann"))
    (fault,) = audit(path, [run]).faults
    assert fault.endswith("it calls several clients the same: ann")


def test_simulations_and_their_names_stay(path: Path, tmp_path: Path) -> None:
    write(path, {1: ["client-0", "client-2"]})
    run = write_journal(tmp_path / "run", {1: [0, 2]}, {"group": np.zeros(3)})
    assert audit(path, [run]).faults == []
    assert len(audit(path, [run], client_name="c{}").faults) == 1


@pytest.mark.parametrize(
    "names", [np.array([1, 2, 3]), np.array([["a", "b"]])], ids=["numbers", "a table"]
)
def test_names_that_are_none_are_refused(path: Path, tmp_path: Path, names: NDArray[Any]) -> None:
    write(path, {1: ["ann"]})
    run = write_journal(tmp_path / "run", {1: [0]}, {"identity": names})
    with pytest.raises(StateError):
        audit(path, [run])


def test_names_that_cannot_be_read_are_refused(path: Path, tmp_path: Path) -> None:
    write(path, {1: ["ann"]})
    run = write_journal(tmp_path / "run", {1: [0]}, named(*NAMES))
    with closing(sqlite3.connect(run / "journal.sqlite")) as journal, journal:
        journal.execute("UPDATE clients SET npz = x'00'")
    with pytest.raises(StateError, match="damaged"):
        audit(path, [run])

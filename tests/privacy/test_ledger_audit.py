"""What an audit finds beyond broken digests: oddities, and runs that do not agree."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmuster.core.errors import StateError
from fedmuster.privacy.ledger import ChainHead, Ledger, accept_clock, adopt, audit
from fedmuster.privacy.ledger.guards import beside
from fedmuster.privacy.ledger.reading import Payment, history, summarise


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


class TickingClock:
    """A second later every time, if not told otherwise."""

    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0
        self.step = 1.0

    def __call__(self) -> int:
        self.seconds += self.step
        return int(self.seconds * 1e9)


def write(path: Path, *rounds: tuple[str, int, Sequence[int]], clock: Any = None) -> ChainHead:
    """Debits of one unit each by (run, round, clients)."""
    with Ledger.open(
        path, currency="epsilon", kind="simulated", clock=clock or TickingClock()
    ) as ledger:
        accounts = ledger.register([f"client-{k}" for k in range(10)], 4)
        for run, number, clients in rounds:
            cohort = accounts[list(clients)]
            ledger.debit(run=run, round=number, accounts=cohort, units=np.ones(len(cohort), int))
        return ledger.head


def write_journal(
    folder: Path, run: str, cohorts: Mapping[int, Sequence[int]], head: ChainHead | None = None
) -> Path:
    """As a run keeps it, but for what no auditor needs."""
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / "journal.sqlite")) as journal, journal:
        journal.execute("CREATE TABLE identity (id INTEGER PRIMARY KEY, run TEXT NOT NULL)")
        journal.execute("CREATE TABLE rounds (round INTEGER PRIMARY KEY, clients BLOB NOT NULL)")
        journal.execute("CREATE TABLE checkpoint (id INTEGER PRIMARY KEY, budget BLOB)")
        journal.execute("INSERT INTO identity VALUES (0, ?)", (run,))
        journal.executemany(
            "INSERT INTO rounds VALUES (?, ?)",
            ((n, np.array(clients, dtype="<i4").tobytes()) for n, clients in cohorts.items()),
        )
        budget = (
            None if head is None else json.dumps({**head._asdict(), "standing": "abc"}).encode()
        )
        journal.execute("INSERT INTO checkpoint VALUES (0, ?)", (budget,))
    return folder


def test_a_plain_ledger_has_nothing_odd(path: Path) -> None:
    write(path, ("a", 1, [0, 1]), ("a", 2, [2, 1]), ("b", 1, [3]))
    found = audit(path)
    assert (found.verification.faults, found.faults, found.remarks) == ([], [], [])


def test_oddities_are_remarked(path: Path) -> None:
    write(
        path,
        *[("a", 1, [0, 1]), ("a", 4, [2]), ("a", 3, [2]), ("b", 1, [3]), ("a", 6, [4])],
        *[("a", 1, [0, 1, 2]), ("b", 2, [3])],
    )
    remarks = audit(path).remarks
    assert remarks == [
        "run a: nobody was debited in rounds 2, 5",
        "run a: round 1 came in parts, with other entries in between",
        "run a: round 4 came before the round that precedes it",
        "runs a and b debited in turns, from entry 8 on",
    ]


def test_what_the_clock_did_is_remarked(path: Path) -> None:
    clock = TickingClock()
    clock.step = 0.0
    write(path, ("a", 1, [0]), ("a", 2, [0]), ("a", 3, [1]), clock=clock)
    clock.seconds -= 1000
    accept_clock(path, clock=clock)
    beside(path).path.unlink()
    adopt(path, clock=clock)
    stood, accepted, adopted = sorted(audit(path).remarks, key=lambda remark: remark[-3:] != "nds")
    assert "stood still or went back a little before 2 of the rounds" in stood
    assert "entry 6, 2023-11-14 21:56:40 UTC: the ledger accepted an earlier clock:" in accepted
    assert "entry 7, 2023-11-14 21:56:40 UTC: the ledger was adopted by" in adopted


def test_entries_of_the_future_are_remarked(path: Path) -> None:
    write(path, ("a", 1, [0]), clock=lambda: 4 * 10**18)
    assert "2096-10-02 07:06:40 UTC, which is yet to come" in audit(path).remarks[0]


def test_a_run_that_debited_all_it_asked(path: Path, tmp_path: Path) -> None:
    clock = TickingClock()
    head = write(path, ("a", 1, [0, 9]), ("a", 2, [2, 1]), clock=clock)
    write(path, ("a", 3, [5, 6]), clock=clock)  # then it was killed
    run = write_journal(tmp_path / "run", "a", {1: [0, 9], 2: [1, 2]}, head)
    found = audit(path, [run])
    assert found.faults == []
    (remark,) = found.remarks
    assert "2 debits are of rounds that it does not have (yet)" in remark


def test_who_was_asked_without_a_debit_is_found(path: Path, tmp_path: Path) -> None:
    write(path, ("a", 1, [0, 9]), ("a", 2, [2, 1]), ("b", 2, [3]))
    asked = {1: [0, 9], 2: [1, 2, 3], 3: [4], 4: [77]}
    write_journal(tmp_path / "runs/x/seed-0", "a", asked)
    write_journal(tmp_path / "runs/y/seed-0", "never seen", {1: [0]})
    faults = audit(path, [tmp_path / "runs"]).faults
    assert [fault.partition(", ")[2] for fault in faults] == [
        "round 2: asked without a debit: client-3",
        "round 3: asked without a debit: client-4",
        "round 4: asked without a debit: client-77",
        "round 1: asked without a debit: client-0",
    ]
    assert "runs/y/seed-0 (run never seen)" in faults[-1]


def test_a_run_that_saw_more_than_the_ledger_has(path: Path, tmp_path: Path) -> None:
    """An old copy that was adopted: the runs of later days give it away."""
    write(path, ("a", 1, [0]))
    run = write_journal(tmp_path / "run", "a", {1: [0]}, ChainHead(50, "0" * 64))
    (fault,) = audit(path, [run]).faults
    assert "was restored from an old backup: 47 entries are missing" in fault
    assert "(run a) knows entry 50" in fault


def test_clients_by_another_name(path: Path, tmp_path: Path) -> None:
    with Ledger.open(path, currency="rho", kind="simulated") as ledger:
        accounts = ledger.register(["phone 0", "phone 1"], 5)
        ledger.debit(run="a", round=1, accounts=accounts, units=np.array([1, 1]))
    run = write_journal(tmp_path / "run", "a", {1: [0, 1]})
    assert audit(path, [run], client_name="phone {}").faults == []
    assert len(audit(path, [run]).faults) == 1


def test_a_folder_without_a_journal(path: Path, tmp_path: Path) -> None:
    write(path, ("a", 1, [0]))
    with pytest.raises(StateError):
        audit(path, [tmp_path / "nowhere"])
    (tmp_path / "old").mkdir()
    (tmp_path / "old/journal.sqlite").write_bytes(b"")
    with pytest.raises(StateError):
        audit(path, [tmp_path / "old"])


def test_a_damaged_ledger_is_not_compared(path: Path, tmp_path: Path) -> None:
    write(path, ("a", 1, [0]))
    path.write_bytes(b"gone")
    run = write_journal(tmp_path / "run", "a", {1: [0, 1]})
    found = audit(path, [run])
    assert found.verification.faults
    assert found.faults == []


def test_summary_and_history(path: Path) -> None:
    clock = TickingClock()
    head = write(
        path, *[("a", 1, [0, 1]), ("a", 2, [0, 1]), ("b", 1, [0]), ("b", 2, [0, 5])], clock=clock
    )
    summary = summarise(path, top=2)
    assert summary.head == head
    assert (summary.clients, summary.clients_unspent, summary.debits, summary.runs) == (10, 7, 7, 2)
    assert summary.clients_at_least_percent == {50: 2, 90: 1, 99: 1, 100: 1}
    assert [(each.identity, each.spent_units) for each in summary.top] == [
        ("client-0", 4),
        ("client-1", 2),
    ]
    _, standing, payments = history(path, "client-5")
    assert (standing.cap_units, standing.spent_units, standing.debits) == (4, 1, 1)
    assert payments == [Payment(head.sequence, summary.newest_us, "b", 2, 1, 1)]
    _, _, payments = history(path, "client-0")
    assert [(each.run, each.round, each.spent_units) for each in payments] == [
        ("a", 1, 1),
        ("a", 2, 2),
        ("b", 1, 3),
        ("b", 2, 4),
    ]

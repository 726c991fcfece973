"""The attacks of SECURITY.md on a ledger, played by an operator who owns every file and the key.

``forge`` is what such an operator can write: it changes rows and computes every digest, balance and
head anew. ``verify`` alone is content with that; clients, witnesses and auditors are not.
"""

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.privacy.forgery import forge

from fedmuster.core.errors import DataError, LedgerError
from fedmuster.privacy.ledger import (
    Evidence,
    Ledger,
    Receipt,
    VerifierKey,
    Witness,
    WitnessRequest,
    accept_clock,
    adopt,
    audit,
    verify,
)
from fedmuster.privacy.ledger.log import checkpoint_request, public_key_file
from fedmuster.privacy.ledger.receipts import MissingProofError

CAP = 1_000_000
NAMES = [f"client-{number}" for number in range(6)]
TEN_YEARS_NS = 10 * 365 * 24 * 3600 * 10**9


class Client:
    """Keeps its newest receipt, and accepts only what follows from it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / f"{name}.receipt"
        self.held: Receipt | None = None

    def accept(self, receipt: Receipt) -> None:
        receipt = Receipt.of_json(receipt.to_json())  # as it travels
        receipt.statement()
        if self.held is not None:
            receipt.require_follows(self.held)
        self.held = receipt.kept(time.time_ns() // 1000)
        self.file.write_text(self.held.to_json())


class Scene:
    """A ledger with its operator, and the clients and the witness that watch it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.state = folder, folder / "state"
        (folder / "project").mkdir()
        self.path = folder / "project" / "ledger.sqlite"
        (folder / "clients").mkdir()
        self.clients = {name: Client(folder / "clients", name) for name in NAMES}
        self.round = 0
        self.witness: Witness
        self.notes: list[Path] = []

    def play(
        self,
        names: list[str] = NAMES,
        *,
        path: Path | None = None,
        run: str = "run",
        clock: Callable[[], int] = time.time_ns,
        receive: bool = True,
        cap: int = CAP,
    ) -> dict[str, str]:
        """One round: clients pay and get receipts; by name, why a client refuses its own."""
        self.round += 1
        refusals = {}
        with Ledger.open(path or self.path, currency="rho", kind="real", clock=clock) as ledger:
            accounts = ledger.register(names, cap)
            units = np.full(len(names), 1_000)
            ledger.debit(run=run, round=self.round, accounts=accounts, units=units)
            held = {
                account: [] if client.held is None else [client.held.state.size]
                for account, client in zip(
                    accounts.tolist(), (self.clients[name] for name in names), strict=True
                )
            }
            receipts = ledger.receipts(run=run, round=self.round, accounts=accounts, held=held)
        for name, receipt in zip(names, receipts if receive else [], strict=receive):
            try:
                self.clients[name].accept(receipt)
            except (LedgerError, DataError) as error:
                refusals[name] = type(error).__name__
        return refusals

    def ask_witness(self) -> None:
        since = len(self.notes) and int(self.notes[-1].read_text().split("\n")[1])
        request = WitnessRequest.parse(str(checkpoint_request(self.path, since=since)))
        note = self.witness.cosign(request)
        self.notes.append(self.folder / f"note-{len(self.notes)}")
        self.notes[-1].write_text(str(note))

    def faults(self, *, receipts: bool = True, notes: bool = True) -> list[str]:
        """What an auditor finds who has what clients and the witness hold."""
        files = [client.file for client in self.clients.values() if client.held is not None]
        evidence = Evidence(
            receipts=files if receipts else [],
            checkpoints=self.notes if notes else [],
            witnesses=[self.witness.verifier],
        )
        return audit(self.path, evidence=evidence).faults

    def accusers(self) -> set[str]:
        """The clients whose receipts show the auditor that something is wrong."""
        faults = self.faults(notes=False)
        return {name for name in NAMES if any(f"{name}.receipt" in fault for fault in faults)}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))
    scene = Scene(tmp_path)
    for _ in range(4):
        assert scene.play() == {}
    scene.witness = Witness(tmp_path / "witness", name="example.org/witness")
    scene.witness.trust(VerifierKey.of(public_key_file(scene.path).read_text()))
    scene.ask_witness()
    assert scene.play() == {}
    scene.ask_witness()
    assert scene.faults() == []
    return scene


FIRST, LAST = "sequence = 3", "sequence = 32"
FORGERIES = {
    "every debit divided by ten": ["UPDATE entries SET units = units / 10 WHERE kind = 'debit'"],
    "one old debit made smaller": [f"UPDATE entries SET units = units - 1 WHERE {FIRST}"],
    "a debit of somebody else": ["UPDATE entries SET account = 1, round = 77 WHERE sequence = 8"],
    "two debits in another order": [
        "UPDATE entries SET account = account + 100 WHERE sequence = 4",
        "UPDATE entries SET account = account - 1 WHERE sequence = 5",
        "UPDATE entries SET account = account - 99 WHERE sequence = 4",
    ],
    "caps raised": [
        "UPDATE entries SET units = units * 2 WHERE kind = 'accounts'",
        "UPDATE accounts SET cap_units = cap_units * 2",
    ],
    "the last entries cut off": ["DELETE FROM entries WHERE sequence > 20"],
    "a client erased": [
        "DELETE FROM entries WHERE kind = 'debit' AND account = 6",
        "UPDATE entries SET sequence = -(SELECT count(*) FROM entries AS e "
        "WHERE e.sequence <= entries.sequence)",
        "UPDATE entries SET sequence = -sequence",
    ],
    "an entry moved to another time": [f"UPDATE entries SET time_us = time_us + 1 WHERE {LAST}"],
    "another run": ["UPDATE entries SET text = 'other' WHERE kind = 'run'"],
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_is_forged_whole_is_found_by_everybody_outside(scene: Scene, name: str) -> None:
    forge(scene.path, scene.state, *FORGERIES[name])
    assert verify(scene.path).faults == []  # nothing inside the ledger and its heads shows it
    assert scene.accusers() == set(NAMES)
    assert scene.faults(receipts=False) != []
    with pytest.raises(LedgerError):
        scene.ask_witness()
    # The operator goes on; clients refuse the next grant, and so release nothing.
    cap = 2 * CAP if name == "caps raised" else CAP
    refusals = scene.play(NAMES[:5], cap=cap)
    assert set(refusals) == set(NAMES[:5])


BALANCES = ["UPDATE accounts SET spent_units = 0", "UPDATE accounts SET cap_units = 9e8"]


@pytest.mark.parametrize("change", BALANCES)
def test_balances_and_caps_without_entries_are_found_by_the_auditor(
    scene: Scene, change: str
) -> None:
    with closing(sqlite3.connect(scene.path, isolation_level=None)) as database:
        (sql,) = database.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'accounts_stay_the_same'"
        ).fetchone()
        database.execute("DROP TRIGGER accounts_stay_the_same")
        database.execute(change)
        database.execute(sql)
    assert audit(scene.path).verification.num_faults >= len(NAMES)


def image(scene: Scene, target: Path) -> None:
    """Everything that an operator has: ledger, heads, key, state."""
    for part in ("project", "state"):
        shutil.rmtree(target / part, ignore_errors=True)
        shutil.copytree(scene.folder / part, target / part)


def test_a_rollback_of_everything_is_found(scene: Scene, tmp_path: Path) -> None:
    image(scene, tmp_path / "backup")
    assert scene.play() == {}
    scene.ask_witness()
    for part in ("project", "state"):
        shutil.rmtree(tmp_path / part)
        shutil.copytree(tmp_path / "backup" / part, tmp_path / part)
    assert verify(scene.path).faults == []
    assert scene.accusers() == set(NAMES)
    assert scene.faults(receipts=False) != []
    with pytest.raises(LedgerError):
        scene.ask_witness()
    # Whatever is debited now, also beyond the length that the ledger once had, is another history.
    for _ in range(3):
        assert set(scene.play()) == set(NAMES)
    assert scene.accusers() == set(NAMES)


def test_a_copy_cannot_spend_a_cap_again(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the operator's key, on a machine of its own; it is adopted there or knows its heads."""
    second = tmp_path / "second"
    image(scene, second)
    assert scene.play() == {}
    scene.ask_witness()
    monkeypatch.setenv("FEDMUSTER_STATE", str(second / "state"))
    (second / "project" / "ledger.sqlite.head").unlink()
    copied = second / "project" / "ledger.sqlite"
    adopt(copied)
    scene.path = copied
    assert verify(copied).faults == []
    assert set(scene.play(NAMES[:3], run="second")) == set(NAMES[:3])
    assert scene.accusers() == set(NAMES)
    with pytest.raises(LedgerError):
        scene.ask_witness()


def test_a_ledger_that_moves_with_its_key_is_accepted(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an honest operator does: the newest copy, nothing else in use, adopted."""
    second = tmp_path / "second"
    image(scene, second)
    monkeypatch.setenv("FEDMUSTER_STATE", str(second / "state"))
    for head in (second / "state").glob("*.head"):
        head.unlink()
    scene.path = second / "project" / "ledger.sqlite"
    adopt(scene.path)
    assert scene.play() == {}
    assert scene.faults() == []
    scene.ask_witness()


def test_a_copy_that_asks_other_clients_is_found_by_a_witness_and_the_auditor(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client sees one history only, so no client can tell, and no cap is spent twice."""
    second = tmp_path / "second"
    image(scene, second)
    assert scene.play(NAMES[:3]) == {}
    monkeypatch.setenv("FEDMUSTER_STATE", str(second / "state"))
    copied = second / "project" / "ledger.sqlite"
    assert scene.play(NAMES[3:], path=copied) == {}
    scene.path = copied
    assert scene.accusers() == set(NAMES[:3])
    scene.ask_witness()
    scene.path = tmp_path / "project" / "ledger.sqlite"
    monkeypatch.setenv("FEDMUSTER_STATE", str(tmp_path / "state"))
    with pytest.raises(LedgerError):
        scene.ask_witness()


def test_a_copy_without_the_key_has_none_and_a_new_key_is_refused(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = tmp_path / "second"
    image(scene, second)
    shutil.rmtree(second / "state")
    monkeypatch.setenv("FEDMUSTER_STATE", str(second / "state"))
    scene.path = second / "project" / "ledger.sqlite"
    adopt(scene.path)
    with pytest.raises(LedgerError, match=r"\.key is missing"):
        scene.play()
    public_key_file(scene.path).unlink()
    assert set(scene.play()) == set(NAMES)
    assert scene.accusers() == set(NAMES)  # by the key
    with pytest.raises(LedgerError):
        scene.ask_witness()


def test_a_clock_ten_years_ahead_is_found(scene: Scene) -> None:
    def clock() -> int:
        return time.time_ns() + TEN_YEARS_NS

    assert scene.play(clock=clock) == {}  # a client's own clock may be wrong: it goes on
    assert scene.accusers() == set(NAMES)
    assert any("yet to come" in remark for remark in audit(scene.path).remarks)
    with pytest.raises(LedgerError):  # the right clock is refused now ...
        scene.play()
    accept_clock(scene.path)  # ... until the operator signs for it, which stays in the log
    assert scene.play() == {}
    assert any("clock" in remark for remark in audit(scene.path).remarks)


def test_deleted_heads_are_found(scene: Scene) -> None:
    forge(scene.path, scene.state, "DELETE FROM entries WHERE sequence > 20")
    for head in (*scene.state.glob("*.head"), scene.path.with_name("ledger.sqlite.head")):
        head.unlink()
    with pytest.raises(LedgerError):
        scene.play()
    adopt(scene.path)
    assert scene.accusers() == set(NAMES)
    assert scene.faults(receipts=False) != []
    assert set(scene.play()) == set(NAMES)
    assert any("adopted" in remark for remark in audit(scene.path).remarks)


def test_a_new_ledger_under_the_old_name_is_found(scene: Scene) -> None:
    """All budgets would be fresh."""
    shutil.rmtree(scene.state)
    shutil.rmtree(scene.path.parent)
    scene.path.parent.mkdir()
    assert set(scene.play()) == set(NAMES)
    assert scene.accusers() == set(NAMES)
    with pytest.raises(LedgerError):
        scene.ask_witness()


def test_a_client_cannot_blame_an_honest_operator(scene: Scene, tmp_path: Path) -> None:
    held = scene.clients["client-0"].held
    assert held is not None
    table = json.loads(held.to_json())
    ledger, debit = table["ledger"], table["debit"]
    lies: list[dict[str, Any]] = [
        table | {"debit": [debit[0], debit[1].replace("1000", "9000"), debit[2]]},
        table | {"checkpoint": table["checkpoint"].replace("\n33\n", "\n34\n")},
        table | {"debit": [debit[0], debit[1], ledger[2]]},
        table | {"run": table["debit"]},
        table | {"key": str(scene.witness.verifier)},
    ]
    for lie in lies:
        assert lie != table
        with pytest.raises(DataError):
            Receipt.of_json(json.dumps(lie)).statement()


def test_a_proof_that_is_missing_is_no_evidence(scene: Scene) -> None:
    client = scene.clients["client-0"]
    old = client.held
    assert scene.play(receive=False) == {}
    assert scene.play() == {}
    assert client.held is not None
    assert old is not None
    with pytest.raises(MissingProofError):
        client.held.require_follows(old)


def test_files_are_for_their_owner_alone(scene: Scene) -> None:
    os.umask(0o022)
    with Ledger.open(scene.path, currency="rho", kind="real"):
        files = [*scene.path.parent.iterdir(), *scene.state.iterdir()]
        files += list((scene.folder / "witness").glob("*.key"))
        modes = {file.name: file.stat().st_mode & 0o777 for file in files if file.is_file()}
    public = {"ledger.sqlite.vkey"}
    assert {mode for name, mode in modes.items() if name not in public} == {0o600}
    assert modes.keys() >= {"ledger.sqlite", "ledger.sqlite-wal", "witness.key", *public}


def test_a_key_that_others_may_read_is_refused(scene: Scene) -> None:
    (key,) = scene.state.glob("*.key")
    key.chmod(0o640)
    with pytest.raises(LedgerError, match="others may read"):
        scene.play()

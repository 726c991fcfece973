"""Kill -9 in real federations: of the ServerApp, of the SuperLink, of a SuperNode."""

import os
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from tests.deployment.harness import Federation, federation, wait_until
from tests.faults.auditor import audit_ledger

from fedmuster import Selector
from fedmuster.experiments.journal import JournalReader
from fedmuster.policies.pause import PAUSE

APP = Path(__file__).parent / "app"


def start_supernodes(fed: Federation, *, slowness: float) -> None:
    """Four plain ones, who are who their node config says."""
    for number in range(4):
        fed.start_supernode(f"node-{number}", client_id=f"client-{number}", slowness=slowness)
    fed.wait_for_supernodes()


def wait_for_log(fed: Federation, run: int, text: str, *, seconds: float = 120.0) -> None:
    """Wait until the ServerApp has logged this."""
    wait_until(lambda: text in fed.run_log(run), seconds=seconds, what=f"{text!r} in the log")


def participations(folder: Path) -> list[int]:
    """How often the selector's saved state has seen each client take part."""
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database:
        (image,) = database.execute("SELECT selector FROM checkpoint").fetchone()
    selector = Selector.from_bytes(image, PAUSE(), source=str(folder))
    return [int(count) for count in selector.state.speed.inverse.count]


def test_serverapp_killed_in_the_middle_of_a_private_round(tmp_path: Path) -> None:
    with federation(tmp_path / "fed") as fed:
        start_supernodes(fed, slowness=1.0)
        settings = {"epsilon": 10.0, "participations": 10, "min_nodes": 4, "policy": "pause"}
        first = fed.submit(APP, rounds=4, **settings)
        wait_for_log(fed, first, "round 3: pause chose")
        os.kill(fed.serverapp(), signal.SIGKILL)
        folder = fed.folder / "run"
        before = JournalReader(folder)
        second = fed.submit(APP, rounds=4, **settings)
        assert fed.wait_for_run(second, seconds=120) == "finished:completed", fed.run_log(second)
        said = fed.run_log(second)
    assert len(before) == 2
    assert f"2 rounds are on record in {folder}" in said
    journal = JournalReader(folder)
    assert len(journal) == 4
    for name, column in before.columns.items():  # what was over stays as it was, to the bit
        assert journal.columns[name][:2].tobytes() == column.tobytes(), name
    assert [c.tolist() for c in journal.cohorts[:2]] == [c.tolist() for c in before.cohorts]
    names = [f"client-{number}" for number in range(4)]
    assert journal.clients["identity"].tolist() == names
    asked = Counter(client for cohort in journal.cohorts for client in cohort.tolist())
    assert participations(folder) == [asked[client] for client in range(4)]
    audit = audit_ledger(folder / "ledger.sqlite", folder / "spec.toml", fed.folder / "state")
    assert audit.faults == []
    debited = {(round_, client) for _, round_, client in audit.debits}
    assert len(debited) == len(audit.debits)  # one run, nobody twice in a round
    in_journal = {(1 + at, names[k]) for at, cohort in enumerate(journal.cohorts) for k in cohort}
    assert in_journal <= debited
    # Round 3 was debited before the kill; who was asked then is not asked again in that round.
    assert {round_ for round_, _ in debited - in_journal} <= {3}


def test_superlink_killed_and_started_on_its_database(tmp_path: Path) -> None:
    with federation(tmp_path / "fed") as fed:
        start_supernodes(fed, slowness=0.5)
        first = fed.submit(APP, rounds=4, min_nodes=4)
        wait_for_log(fed, first, "round 2: bsfl chose")
        fed.kill_superlink()  # its ServerApp ends itself when it notices
        folder = fed.folder / "run"
        before = JournalReader(folder)
        fed.start_superlink()
        assert fed.wait_for_run(first, seconds=120) == "finished:failed"
        second = fed.submit(APP, rounds=4, min_nodes=4)
        assert fed.wait_for_run(second, seconds=120) == "finished:completed", fed.run_log(second)
    journal = JournalReader(folder)
    assert 1 <= len(before) <= len(journal) == 4
    assert journal.columns["seconds"][: len(before)].tolist() == before.columns["seconds"].tolist()
    assert journal.clients["identity"].tolist() == [f"client-{number}" for number in range(4)]


def test_supernode_killed_comes_back_as_the_same_client(tmp_path: Path) -> None:
    with federation(tmp_path / "fed") as fed:
        start_supernodes(fed, slowness=0.2)
        run = fed.submit(APP, rounds=60, min_nodes=4, cohort_size=3, deadline_seconds=4.0)
        wait_for_log(fed, run, "round 2: bsfl chose")
        fed.kill_supernode("node-1")
        fed.start_supernode("node-1", client_id="client-1", slowness=0.2)
        wait_for_log(fed, run, "came back: client-1")
        wait_for_log(fed, run, "left: client-1")
        fed.flwr("stop", str(run), "here")
    journal = JournalReader(fed.folder / "run")
    assert journal.clients["identity"].tolist() == [f"client-{number}" for number in range(4)]
    assert journal.columns["seconds"].max() < 10  # nobody waited for the dead beyond the deadline

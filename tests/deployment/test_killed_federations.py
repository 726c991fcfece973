"""Kill -9 in real federations: of the ServerApp, of the SuperLink.

That of a SuperNode is in test_flower_examples.py.
"""

import os
import re
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.harness import Federation, federation, wait_until
from tests.faults.auditor import audit_ledger

from fedmuster import Selector
from fedmuster.experiments.journal import JournalReader
from fedmuster.flower.client_vault import VaultContents
from fedmuster.policies.pause import PAUSE

APP = Path(__file__).parent / "app"
CLIENTS = [f"client-{number}" for number in range(4)]

pytestmark = [pytest.mark.flower, pytest.mark.slow]


def start_supernodes(fed: Federation, *clients: str, slowness: float, **limits: Any) -> None:
    """Plain ones, who are who their node config says."""
    for client in clients:
        file = {"release_notes": f"{fed.folder}/{client}.json"} if limits else {}
        fed.start_supernode(client, client_id=client, slowness=slowness, **limits, **file)
    fed.wait_for_supernodes()


def trainings(fed: Federation) -> int:
    """How often somebody has begun to train."""
    return sum(fed.log(client).count("counting: training") for client in CLIENTS)


def participations(folder: Path) -> list[int]:
    """How often the selector's saved state has seen each client take part."""
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database:
        (image,) = database.execute("SELECT selector FROM checkpoint").fetchone()
    selector = Selector.from_bytes(image, PAUSE(), source=str(folder))
    return [int(count) for count in selector.state.speed.inverse.count]


def test_serverapp_killed_in_a_private_round(tmp_path: Path) -> None:
    with federation(tmp_path / "fed") as fed:
        limits = {"privacy_mechanism": "laplace:clip=1.0", "privacy_max_epsilon": 10.0}
        start_supernodes(fed, *CLIENTS, slowness=3.0, **limits)
        settings: dict[str, str | float] = {"policy": "pause", "epsilon": 10.0, "cohort_size": 3}
        first = fed.submit(APP, rounds=4, min_nodes=4, **settings)
        fed.wait_for_log(first, "round 3: pause chose")
        # All three train. (If it dies while it sends, Flower blocks these nodes for a minute.)
        wait_until(lambda: trainings(fed) == 9, seconds=60, what="training in round 3")
        os.kill(fed.serverapp(), signal.SIGKILL)
        (lost_cohort,) = re.findall("round 3: pause chose 3 of 4 nodes: (.*)", fed.run_log(first))
        folder = fed.folder / "run"
        before = JournalReader(folder)
        fed.stop_supernode(CLIENTS[3])
        start_supernodes(fed, CLIENTS[3], slowness=3.0, **limits)  # with another key and node id
        second = fed.submit(APP, rounds=4, min_nodes=1, **settings)
        assert fed.wait_for_run(second, seconds=300) == "finished:completed", fed.run_log(second)
        said = fed.run_log(second)
    assert len(before) == 2
    assert f"2 rounds are on record in {folder}" in said
    journal = JournalReader(folder)
    assert len(journal) == 4
    for name, column in before.columns.items():  # what was over stays as it was, to the bit
        assert journal.columns[name][:2].tobytes() == column.tobytes(), name
    assert [c.tolist() for c in journal.cohorts[:2]] == [c.tolist() for c in before.cohorts]
    assert journal.clients["identity"].tolist() == CLIENTS
    asked = Counter(client for cohort in journal.cohorts for client in cohort.tolist())
    assert participations(folder) == [asked[client] for client in range(4)]
    audit = audit_ledger(folder / "ledger.sqlite", folder / "spec.toml", fed.folder / "state")
    assert audit.faults == []
    debited = {(round_, client) for _, round_, client in audit.debits}
    assert len(debited) == len(audit.debits)  # one run, nobody twice in a round
    in_journal = {
        (number, CLIENTS[client])
        for number, cohort in enumerate(journal.cohorts, start=1)
        for client in cohort
    }
    # Who was asked in round 3 before the kill may have sent its update: it has paid, and is not
    # asked a second time.
    lost = {(3, client) for client in lost_cohort.split(", ")}
    assert len(lost) == 3
    assert debited - in_journal == lost
    paid = Counter(client for _, client in debited)
    for client in CLIENTS:  # the client's own total, in all processes that it had
        total = VaultContents.of((fed.folder / f"{client}.json").read_bytes()).released
        assert total.keys() == {"epsilon"}
        assert asked[CLIENTS.index(client)] <= total["epsilon"] / 1e9 <= paid[client]


def test_superlink_killed_and_started_on_its_database(tmp_path: Path) -> None:
    with federation(tmp_path / "fed") as fed:
        start_supernodes(fed, *CLIENTS, slowness=0.5)
        first = fed.submit(APP, rounds=4, min_nodes=4)
        fed.wait_for_log(first, "round 2: bsfl chose")
        fed.kill_superlink()  # its ServerApp ends itself when it notices
        folder = fed.folder / "run"
        before = JournalReader(folder)
        fed.start_superlink()
        assert fed.wait_for_run(first, seconds=300) == "finished:failed"
        second = fed.submit(APP, rounds=4, min_nodes=4)
        assert fed.wait_for_run(second, seconds=300) == "finished:completed", fed.run_log(second)
    journal = JournalReader(folder)
    assert 1 <= len(before) <= len(journal) == 4
    assert journal.columns["seconds"][: len(before)].tolist() == before.columns["seconds"].tolist()
    assert journal.clients["identity"].tolist() == CLIENTS

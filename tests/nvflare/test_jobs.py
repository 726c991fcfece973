"""Jobs in FLARE's simulator, with real processes that hang, die, lie, and are killed."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare.apis")  # "nvflare" is also the name of this folder

from tests.nvflare.simulator import running

from fedmuster.privacy.ledger import audit
from fedmuster.privacy.ledger.reading import summarise

pytestmark = [pytest.mark.nvflare, pytest.mark.slow]


def test_clients_that_hang_die_and_send_nonsense(tmp_path: Path) -> None:
    faults = "--faults=site-1=hang,site-2=die,site-3=nan,site-4=shape,site-5=raise"
    with running(
        tmp_path, clients=7, num_clients=7, num_rounds=3, deadline_seconds=12, script_args=faults
    ) as job:
        journal = job.wait_for_rounds(3)
        names = journal.clients["identity"].tolist()
        assert set(np.array(names)[journal.clients["answered"]]) == {"site-6", "site-7"}
        refused = {names[client] for rejected in journal.rejected for client in rejected.tolist()}
        assert {"site-3", "site-4"} <= refused <= {"site-3", "site-4", "site-5"}
        # The hanging and the dead client are asked once each, and cost one deadline.
        for site in ("site-1", "site-2"):
            client = names.index(site)
            assert sum(client in cohort for cohort in journal.cohorts) == 1
        assert journal.columns["seconds"].max() < 30


def test_a_killed_server_goes_on(tmp_path: Path) -> None:
    settings = {"clients": 3, "num_clients": 2, "num_rounds": 4, "deadline_seconds": 20}
    with running(tmp_path, **settings) as job:
        before = job.wait_for_rounds(2)
        job.kill()
    with running(tmp_path, **settings) as job:
        after = job.wait_for_rounds(4)
    assert len(after.versions) == 2
    assert [cohort.tolist() for cohort in after.cohorts[:2]] == [
        cohort.tolist() for cohort in before.cohorts[:2]
    ]
    assert after.columns["round"].tolist() == [1, 2, 3, 4]
    # A step of a half towards 1 in each round: the loss before round t is 4 ** -(t - 1).
    assert after.columns["train_loss"] == pytest.approx(4.0 ** -np.arange(4))


def test_scaffold_goes_on_with_its_control_terms(tmp_path: Path) -> None:
    settings = {
        "workflow": "MusterScaffold",
        "script_args": "--scaffold --faults=site-3=nan",
        "clients": 3,
        "num_clients": 3,
        "num_rounds": 4,
        "deadline_seconds": 20,
    }
    with running(tmp_path, **settings) as job:
        job.wait_for_rounds(2)
        job.kill()
    with running(tmp_path, **settings) as job:
        journal = job.wait_for_rounds(4)
    assert journal.columns["num_aggregated"].tolist() == [2, 2, 2, 2]
    # The model moves by the control terms c = 0, 1, 2, … of each round: 0, 0, 1, 3, …
    assert journal.columns["train_loss"] == pytest.approx([0.0, 0.0, 1.0, 9.0])


def test_without_rounds(tmp_path: Path) -> None:
    settings = {
        "workflow": "MusterFedBuff",
        "clients": 5,
        "num_clients": 4,
        "buffer": 2,
        "num_rounds": 4,
        "deadline_seconds": 10,
        "script_args": "--faults=site-1=hang,site-2=nan",
    }
    with running(tmp_path, **settings) as job:
        job.wait_for_rounds(2)
        job.kill()
    with running(tmp_path, **settings) as job:
        journal = job.wait_for_rounds(4)
    names = np.array(journal.clients["identity"])
    assert journal.jobs is not None
    for row in journal.jobs:
        assert row.used.sum() == 2
        assert not set(names[row.client[row.used]]) & {"site-1", "site-2"}
        assert (row.age >= 0).all()
    assert "were lost with the server that died" in job.log
    assert journal.columns["train_loss"][-1] < journal.columns["train_loss"][0]


def test_updates_are_paid_for_before_they_leave(tmp_path: Path) -> None:
    settings = {
        "clients": 3,
        "num_clients": 2,
        "num_rounds": 4,
        "deadline_seconds": 20,
        "privacy": 'epsilon=8,mechanism={name="gaussian", clip=1.0, delta=1e-6}',
        "private": {
            "mechanism": "gaussian:clip=1.0,delta=1e-6",
            "max_epsilon": 8.0,
            "ledger": str(tmp_path / "{site}.sqlite"),
        },
    }
    with running(tmp_path, **settings) as job:
        job.wait_for_rounds(2)
        job.kill()
    with running(tmp_path, **settings) as job:
        journal = job.wait_for_rounds(4)
    completed = journal.columns["num_completed"].tolist()
    # Clients that had paid for round 3 when the server died may not send for it again.
    assert completed[:2] + completed[3:] == [2, 2, 2]
    assert completed[2] in (1, 2)
    assert np.isnan(journal.columns["train_loss"]).all()  # nothing was paid for metrics
    assert journal.columns["spent_max"][-1] > 0
    ledger = job.folder / "ledger.sqlite"
    assert audit(ledger, [job.folder]).faults == []
    for account in summarise(ledger).top:
        (own,) = summarise(tmp_path / f"{account.identity}.sqlite").top
        # Debited first: a kill between the debit and the release costs budget, never the reverse.
        assert 0 < own.spent_units <= account.spent_units

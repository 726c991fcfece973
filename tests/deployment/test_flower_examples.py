"""The examples, as their READMEs say: every one is run to its end."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from claims.flower.loopback import kill_all
from click.testing import CliRunner
from tests.deployment.harness import EXAMPLES, Simulator, environment

from fedmuster.cli import cli
from fedmuster.experiments.journal import JournalReader

pytestmark = [pytest.mark.flower, pytest.mark.ray, pytest.mark.slow]


def fedmuster(*arguments: str | Path, folder: Path) -> str:
    """Run fedmuster's command line; what it printed."""
    state = environment(folder / "home")["FEDMUSTER_STATE"]
    done = CliRunner().invoke(
        cli, [str(each) for each in arguments], env={"FEDMUSTER_STATE": state}
    )
    assert done.exit_code == 0, done.output
    return done.stdout


def test_quickstart_and_privacy_with_simulated_nodes(tmp_path: Path) -> None:
    with closing(Simulator(tmp_path)) as simulator:
        quickstart = simulator.run(EXAMPLES / "flower-quickstart", nodes=8, seconds=240)
        check_quickstart(tmp_path, quickstart)
        private = simulator.run(EXAMPLES / "flower-privacy", nodes=8, seconds=240)
        check_privacy_with_a_ledger(tmp_path, private)


def check_quickstart(tmp_path: Path, said: str) -> None:
    run = tmp_path / "runs" / "quickstart"
    journal = JournalReader(run)
    assert journal.ending is None, said
    assert [len(cohort) for cohort in journal.cohorts] == [3] * 5, said
    assert sorted(journal.clients["identity"]) == [f"partition-{number}" for number in range(8)]
    assert len(np.unique(np.concatenate(journal.cohorts))) > 6  # BSFL meets those it has not seen
    assert journal.columns["num_completed"].tolist() == [3.0] * 5
    assert journal.columns["accuracy"][-1] > 0.8  # of the clients' evaluation, as FedAvg does it
    assert said.count("configure_evaluate: Sampled 8 nodes") == 5
    assert "bsfl" in fedmuster("report", run, folder=tmp_path)


def check_privacy_with_a_ledger(tmp_path: Path, said: str) -> None:
    run, ledger = tmp_path / "runs" / "private", tmp_path / "runs" / "clients.sqlite"
    journal = JournalReader(run)
    assert journal.ending is not None, said
    assert "0 of 8 clients have budget left" in journal.ending
    times = np.bincount(np.concatenate(journal.cohorts), minlength=8)
    assert times.tolist() == [3] * 8  # participations that the budget is split into
    assert journal.columns["num_completed"].tolist() == [4.0] * 6
    assert np.isnan(journal.columns["train_loss"]).all()  # losses do not leave the clients
    assert "8 clients, 24 debits by 1 runs" in fedmuster("ledger", "show", ledger, folder=tmp_path)
    assert ": good." in fedmuster("ledger", "audit", ledger, "--journal", run, folder=tmp_path)
    assert "ε ≤ 40" in fedmuster("report", run, folder=tmp_path)


def test_deployment_with_a_killed_supernode(tmp_path: Path) -> None:
    folder = tmp_path / "federation"
    surroundings = environment(tmp_path / "home")
    try:
        done = subprocess.run(
            [sys.executable, EXAMPLES / "flower-deployment" / "deploy.py", folder],
            env=surroundings,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    finally:
        kill_all(folder / "flwr")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    journal = JournalReader(folder / "run")
    assert [len(cohort) for cohort in journal.cohorts] == [2] * 4, said
    names = journal.clients["identity"].tolist()
    assert len(names) == 3, said  # the node that came back is no new client
    assert all(name.startswith("key-") for name in names), said
    logs = [path.read_text() for path in folder.glob("node-*.log")]
    assert sorted(log.count("SuperNode ID") for log in logs) == [1, 1, 2], said
    assert journal.columns["accuracy"][-1] > 0.8
    assert "bsfl" in said[said.index("the run is in") :]

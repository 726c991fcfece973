"""Privacy where there are edge servers: one exhausted client does not end a run."""

from pathlib import Path

import numpy as np

from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import Experiment

SPEC = """
rounds = 12
seeds = [1]

[world]
name = "edge-network"
num_clients = 20

[privacy]
epsilon = 4.0
schedule = { name = "uniform", participations = 4 }

[training]
model = "logistic"

[[policy]]
name = "cocs"
"""


def test_a_run_goes_on_with_those_who_have_budget_left(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC)
    prepare(tmp_path / "run", Experiment.load(tmp_path / "spec.toml"))
    execute(tmp_path / "run")
    journal = JournalReader(tmp_path / "run")
    times = np.bincount(np.concatenate(journal.cohorts), minlength=20)
    assert len(journal) == 12
    assert times.max() == 4  # somebody has spent everything, nobody more than that
    assert journal.ending is None

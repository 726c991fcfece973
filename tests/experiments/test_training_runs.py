"""Runs that train: specs, ends by simulated time, and kill -9 in the middle of training."""

import textwrap
import time
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults import children
from tests.forks import FORKS

from fedmuster import BSFL, SAFA, FedCS, PowerOfChoice, Random
from fedmuster.core.config import to_table
from fedmuster.core.errors import ConfigError
from fedmuster.core.policy import Policy
from fedmuster.experiments.journal import JournalReader, rounds_done
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.report.runs import load
from fedmuster.training.aggregation import FedAdam
from fedmuster.training.local_sgd import LocalSGD
from fedmuster.training.models import MLP, Model
from fedmuster.training.networks import OwnModel
from fedmuster.training.partition import DirichletLabels
from fedmuster.training.training import Training
from fedmuster.worlds import BSFLRates, ExponentialSizes, LTECell

SPEC = """\
rounds = 40
seconds = 12.5
seeds = [0, 1]
regret = false

[world]
name = "bsfl-rates"
num_clients = 20

[training]
min_answers = 2
evaluate_every = 4
data = { name = "digits" }
partition = { name = "dirichlet-labels", alpha = 0.3 }
model = { name = "mlp", hidden = [16] }
server = { name = "fedadam", learning_rate = 0.01 }

[training.local]
learning_rate = 0.1
epochs = 2
schedule = { name = "step", every = 10 }

[[policy]]
name = "bsfl"

[[policy]]
name = "power-of-choice"
variant = "pow-d"
"""


def cell(model: Model | None = None, rounds: int = 60) -> Experiment:
    return Experiment(
        policies={"bsfl": BSFL()},
        world=BSFLRates(dropout=0.1, deadline_seconds=0.9, over_selection=1.4),
        rounds=rounds,
        seeds=(3,),
        regret=False,
        training=Training(
            partition=DirichletLabels(alpha=0.5),
            model=MLP(hidden=(16,)) if model is None else model,
            local=LocalSGD(learning_rate=0.05, epochs=3, momentum=0.5, measure_gain=True),
            server=FedAdam(learning_rate=0.01),
        ),
    )


def load_text(tmp_path: Path, text: str) -> Experiment:
    path = tmp_path / "spec.toml"
    path.write_text(textwrap.dedent(text))
    return Experiment.load(path)


def test_a_spec_with_training_is_read_written_and_read_back(tmp_path: Path) -> None:
    experiment = load_text(tmp_path, SPEC)
    assert experiment.training is not None
    assert experiment.training.model == MLP(hidden=(16,))
    assert experiment.training.local.epochs == 2
    assert experiment.seconds == 12.5
    assert load_text(tmp_path, experiment.to_toml()) == experiment


def test_full_batches_are_written_as_0_and_nothing_unwritable_is_left_out() -> None:
    full = replace(cell(), training=Training(local=LocalSGD(batch_size=0)))
    assert Experiment.from_table(tomllib.loads(full.to_toml())) == full

    @dataclass(frozen=True, kw_only=True)
    class Odd:
        size: int | None = 20

    with pytest.raises(ConfigError):
        to_table(Odd(size=None))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("seconds = 12.5", "seconds = -1", 2, "expected a number > 0"),
        ("min_answers = 2", "min_answers = 0", 11, "min_answers"),
        ('"digits"', '"digit"', 13, "did you mean 'digits'"),
        ("alpha = 0.3", "alpha = -1", 14, "alpha"),
        ("hidden = [16]", "hiden = [16]", 15, "did you mean 'hidden'"),
        ("epochs = 2", "epochs = 2\nsteps = 3", 21, "epochs or steps, not both"),
    ],
)
def test_errors_in_training_name_their_line(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert SPEC.count(old) == 1
    with pytest.raises(ConfigError, match=f"line {line}: .*{message}"):
        load_text(tmp_path, SPEC.replace(old, new))


def test_runs_end_with_the_round_that_reaches_the_time(tmp_path: Path) -> None:
    experiment = replace(load_text(tmp_path, SPEC), rounds=10_000)
    experiment.rehearse()
    for path, one in experiment.cells().items():
        prepare(tmp_path / path, one)
        execute(tmp_path / path)
        journal = JournalReader(tmp_path / path)
        elapsed = np.cumsum(journal.columns["seconds"])
        assert elapsed[-1] >= 12.5 > elapsed[-2]
        evaluated = np.isfinite(journal.columns["accuracy"])
        assert evaluated[-1]
        np.testing.assert_array_equal(evaluated[:-1], journal.columns["round"][:-1] % 4 == 0)
        before = journal.digest()
        execute(tmp_path / path)  # a finished run is left alone
        assert JournalReader(tmp_path / path).digest() == before
    comparison = load([tmp_path / path for path in experiment.cells()])
    assert comparison.by_time
    assert comparison.classifies
    assert comparison.notes == ()
    assert {run.rounds for runs in comparison.runs.values() for run in runs} != {comparison.rounds}


def test_the_world_may_not_speak_of_data_too() -> None:
    experiment = replace(cell(), world=BSFLRates(data=ExponentialSizes()))
    with pytest.raises(ConfigError):
        experiment.rehearse()


def test_over_selection_has_no_regret(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="regret = false"):
        replace(cell(), regret=True).rehearse()
    where_defined = replace(cell(), regret=None).simulation(tmp_path, run="run")
    assert np.isnan(where_defined.step().regret)


def test_nor_have_uploads_in_turn_and_rounds_with_a_quota(tmp_path: Path) -> None:
    in_turn = Experiment(policies={"fedcs": FedCS()}, world=LTECell(num_clients=9), rounds=3)
    assert np.isnan(in_turn.simulation(tmp_path, run="run").step().regret)
    with pytest.raises(ConfigError):
        replace(in_turn, regret=True).rehearse()
    quota = Experiment(policies={"safa": SAFA()}, world=BSFLRates(), rounds=3, regret=True)
    assert np.isnan(quota.simulation(tmp_path, run="run").step().regret)
    usual = replace(quota, policies={"random": Random()})
    assert not np.isnan(usual.simulation(tmp_path, run="run").step().regret)


def test_policies_hear_the_losses(tmp_path: Path) -> None:
    """Power-of-Choice on observed losses asks those who did worst; random ones do not matter."""
    chosen = {}
    policies: dict[str, Policy[Any]] = {"rpow-d": PowerOfChoice(), "random": Random()}
    for label, policy in policies.items():
        simulation = replace(cell(), policies={label: policy}).simulation(tmp_path, run="run")
        rows = [simulation.step() for _ in range(20)]
        chosen[label] = np.mean([row.learning.train_loss for row in rows[6:]])
    assert chosen["rpow-d"] > chosen["random"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "rounds"),
    [(None, 20), (OwnModel(factory="tests.experiments.tiny_network:make"), 6)],
    ids=["numpy", "torch"],
)
def test_kill_9_in_the_middle_of_training_changes_no_bit(
    tmp_path: Path, model: Model | None, rounds: int
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        prepare(folder, cell(model, rounds))
    execute(whole)
    kills = 0
    while rounds_done(killed) < rounds:
        begun = rounds_done(killed)
        process = FORKS.Process(target=children.execute, args=(killed, 0.0))
        process.start()
        while process.is_alive() and rounds_done(killed) <= begun:
            time.sleep(0.01)
        time.sleep(0.05 * kills)  # so that not all die right after a commit
        process.kill()
        process.join()
        kills += 0 < rounds_done(killed) < rounds
    assert kills > 0
    assert JournalReader(killed).digest() == JournalReader(whole).digest()

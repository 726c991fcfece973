"""``kill -9`` in runs without rounds: each goes on, and ends as if nobody had killed it."""

import random
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tests.faults import children
from tests.faults.auditor import audit_ledger
from tests.faults.children import Child
from tests.forks import FORKS

from fedmuster import COCS, PAUSE, Oort, Random
from fedmuster.experiments.journal import JournalReader, rounds_done
from fedmuster.experiments.run import SPEC_NAME, execute, prepare
from fedmuster.experiments.spec import LEDGER_NAME, Experiment
from fedmuster.federation import Federation
from fedmuster.federation.triggers import Pace
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.schedules import Uniform
from fedmuster.training.aggregation import FedAdam
from fedmuster.training.data.built_in import Digits
from fedmuster.training.models import MLP, Logistic
from fedmuster.training.networks import OwnModel
from fedmuster.training.training import Training
from fedmuster.worlds import BSFLRates, DeviceWorld, EdgeNetwork, LTECell, OnOff
from fedmuster.worlds.layout import Alike

ROWS = 100
MOST_KILLS = 6
DATA = Digits(train_limit=240, test_limit=40)
TRAINING = Training(data=DATA, model=Logistic(), evaluate_every=4)
SLEEPY = OnOff(share=0.4, intervals_per_period=30.0, period_seconds=4000.0)


def run(policy: Any = None, **changes: Any) -> Experiment:
    chosen = Random() if policy is None else policy
    settings: dict[str, Any] = {
        "policies": {chosen.name: chosen},
        "world": BSFLRates(num_clients=20, dropout=0.1, deadline_seconds=2.0),
        "federation": Federation(concurrency=5, buffer=2),
        "rounds": ROWS,
        "seeds": (3,),
        "regret": False,
    }
    return Experiment(**{**settings, **changes})


RUNS: Final = {
    "selection": run(Oort()),
    "training": run(Oort(), training=replace(TRAINING, model=MLP(hidden=(16,)))),
    "fedadam": run(training=replace(TRAINING, server=FedAdam())),
    "privacy": run(
        PAUSE(),
        training=TRAINING,
        privacy=Privacy(epsilon=30.0, schedule=Uniform(participations=6)),
    ),
    "queueing uploads": run(
        world=LTECell(num_clients=12, deadline_seconds=250.0, data=Alike()), training=TRAINING
    ),
    "edges": run(
        COCS(),
        world=EdgeNetwork(num_clients=14, num_edges=2),
        federation=Federation(concurrency=4, buffer=2),
        training=replace(TRAINING, global_every=2),
    ),
    "devices on the clock": run(
        world=DeviceWorld(num_clients=12, cohort_size=3, availability=SLEEPY), training=TRAINING
    ),
    "pace": run(Oort(), federation=Federation(concurrency=5, trigger=Pace()), training=TRAINING),
}


@pytest.fixture(params=RUNS)
def experiment(request: pytest.FixtureRequest) -> Experiment:
    return RUNS[request.param]


def require_same_end(killed: Path, whole: Path) -> None:
    one, two = JournalReader(killed), JournalReader(whole)
    assert one.jobs is not None
    assert sum(len(jobs.client) for jobs in one.jobs) >= len(one)
    assert (one.digest(), one.ending) == (two.digest(), two.ending)
    if (killed / LEDGER_NAME).exists():
        audits = [
            audit_ledger(folder / LEDGER_NAME, folder / SPEC_NAME, folder)
            for folder in (killed, whole)
        ]
        assert not audits[0].faults
        debits = [
            {(number, client): units for (_, number, client), units in audit.debits.items()}
            for audit in audits
        ]
        assert debits[0] == debits[1]


def test_kills_after_a_commit_and_between_two(tmp_path: Path, experiment: Experiment) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        prepare(folder, experiment)
    execute(whole)
    done = [0]
    for fault in (
        partial(children.die_after_commit, nth=2),
        partial(children.die_when_asking, nth=8),
        partial(children.die_when_asking, nth=1),
    ):
        assert Child(killed, fault).wait().code == -9
        done.append(rounds_done(killed))
    assert 0 < done[1] <= done[2] == done[3] < ROWS
    assert Child(killed).wait().code == 0
    require_same_end(killed, whole)


def test_a_run_with_a_later_end_goes_on_with_its_open_jobs(
    tmp_path: Path, experiment: Experiment
) -> None:
    whole, extended = tmp_path / "whole", tmp_path / "extended"
    prepare(whole, replace(experiment, rounds=20))
    execute(whole)
    for rounds in (7, 8, 20):
        prepare(extended, replace(experiment, rounds=rounds))
        execute(extended)
        assert rounds_done(extended) == rounds
    require_same_end(extended, whole)


@pytest.mark.slow
@pytest.mark.parametrize("commit_seconds", [0.0, 0.1])
def test_kills_at_any_moment(tmp_path: Path, experiment: Experiment, commit_seconds: float) -> None:
    experiment, rng = replace(experiment, rounds=6 * ROWS), random.Random(commit_seconds)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        prepare(folder, experiment)
    execute(whole)
    codes: list[int | None] = []
    while not codes or codes[-1] != 0:
        begun = rounds_done(killed)
        process = FORKS.Process(target=children.execute, args=(killed, commit_seconds))
        process.start()
        while process.is_alive() and (rounds_done(killed) == begun or len(codes) == MOST_KILLS):
            time.sleep(0.002)
        process.join(rng.uniform(0.0, 0.06))
        process.kill()
        process.join()
        codes.append(process.exitcode)
        assert codes[-1] in (0, -9)
    assert codes.count(-9) > 0
    require_same_end(killed, whole)


@pytest.mark.slow
def test_a_network_in_worker_processes_goes_on_bit_for_bit(tmp_path: Path) -> None:
    network = OwnModel(factory="tests.experiments.tiny_network:make")
    experiment = run(training=replace(TRAINING, model=network, workers=2), rounds=6)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        prepare(folder, experiment)
    execute(whole)
    assert Child(killed, partial(children.die_after_commit, nth=2)).wait().code == -9
    assert 0 < rounds_done(killed) < 6
    assert Child(killed).wait().code == 0
    require_same_end(killed, whole)

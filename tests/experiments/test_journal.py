import random
import signal
import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest
from tests.faults import children
from tests.forks import FORKS

from fedmuster import BSFL
from fedmuster.core.errors import StateError
from fedmuster.experiments.journal import FILE_NAME, Journal, JournalReader, rounds_done
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Simulation
from fedmuster.worlds import BSFLRates, Markov

ROUNDS = 600


def cell(rounds: int = ROUNDS) -> Experiment:
    return Experiment(
        policies={"bsfl": BSFL()},
        world=BSFLRates(availability=Markov(up=0.3, down=0.1), dropout=0.1, deadline_seconds=0.9),
        rounds=rounds,
        seeds=(3,),
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("undisturbed")
    prepare(folder, cell())
    execute(folder)
    return JournalReader(folder).digest()


def test_the_journal_holds_what_the_simulation_did(tmp_path: Path) -> None:
    prepare(tmp_path, cell(50))
    execute(tmp_path)
    simulation = Simulation(BSFL(), cell().world, seed=3, genie=cell().genie)
    rows = [simulation.step() for _ in range(50)]
    journal = JournalReader(tmp_path)
    assert len(journal) == 50
    for name in ("round", "seconds", "reward", "regret", "num_completed"):
        assert journal.columns[name].tolist() == [getattr(row, name) for row in rows]
    for cohort, row in zip(journal.cohorts, rows, strict=True):
        np.testing.assert_array_equal(cohort, row.clients)
    assert journal.versions[0]["numpy"] == np.__version__
    known = ["cohort_size", "group", "num_edges", "typical_latency_seconds"]
    assert sorted(journal.clients) == known


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(4))
def test_kill_9_at_random_moments_changes_no_bit(
    tmp_path: Path, undisturbed: str, attempt: int
) -> None:
    """A real process, killed again and again, ends with the journal of one left in peace."""
    prepare(tmp_path, cell())
    moments = random.Random(attempt)
    kills = kills_between_rounds = 0
    while rounds_done(tmp_path) < ROUNDS:
        before = rounds_done(tmp_path)
        process = FORKS.Process(target=children.execute, args=(tmp_path, 0.02))
        process.start()
        # Every second time not before the first commit: to kill only earlier tests nothing.
        while kills % 2 and process.is_alive() and rounds_done(tmp_path) == before:
            time.sleep(0.01)
        process.join(moments.uniform(0.0, 0.1))
        if process.exitcode is None:
            process.kill()
            process.join()
            kills += 1
            kills_between_rounds += 0 < rounds_done(tmp_path) < ROUNDS
        assert process.exitcode in (0, -signal.SIGKILL)
    assert kills_between_rounds > 0
    assert JournalReader(tmp_path).digest() == undisturbed


def test_a_run_that_was_killed_has_only_whole_commits(tmp_path: Path) -> None:
    prepare(tmp_path, cell(1_000_000))
    process = FORKS.Process(target=execute, args=(tmp_path,))
    process.start()
    while rounds_done(tmp_path) == 0:
        assert process.is_alive()
        time.sleep(0.05)
    process.kill()
    process.join()
    with Journal(tmp_path) as journal:
        checkpoint = journal.checkpoint()
    assert checkpoint is not None
    assert checkpoint.round == rounds_done(tmp_path) == len(JournalReader(tmp_path))


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path), pytest.raises(StateError):
        Journal(tmp_path)
    with Journal(tmp_path):
        pass


def test_a_finished_run_is_left_alone(tmp_path: Path) -> None:
    prepare(tmp_path, cell(20))
    execute(tmp_path)
    before = JournalReader(tmp_path)
    execute(tmp_path)
    after = JournalReader(tmp_path)
    assert after.digest() == before.digest()
    assert len(after.versions) == 1


def test_damaged_and_missing_journals(tmp_path: Path) -> None:
    with pytest.raises(StateError):
        JournalReader(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(b"no database at all" * 100)
    with pytest.raises(StateError):
        JournalReader(tmp_path)
    with pytest.raises(StateError):
        Journal(tmp_path)


def test_a_damaged_checkpoint_is_noticed(tmp_path: Path) -> None:
    prepare(tmp_path, cell(20))
    execute(tmp_path)
    prepare(tmp_path, cell(30))
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        database.execute("UPDATE checkpoint SET selector = substr(selector, 1, 500)")
    with pytest.raises(StateError, match="damaged"):
        execute(tmp_path)

"""The jobs of runs without rounds, as reports read them."""

from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.report.roundless_runs import Job, cell, job_rows, play

from fedmuster.core import state as states
from fedmuster.core.errors import StateError
from fedmuster.experiments.database import connect
from fedmuster.experiments.journal import JournalReader
from fedmuster.report.job_history import JobHistory, read_jobs
from fedmuster.report.runs import load

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

ROUNDS = 30


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("jobs"), "bsfl", rounds=ROUNDS)


def history(folder: Path, rounds: int = ROUNDS) -> JobHistory:
    jobs = read_jobs(JournalReader(folder), rounds)
    assert jobs is not None
    return jobs


def test_every_job_is_there_also_those_that_are_open(run: Path, tmp_path: Path) -> None:
    jobs = history(run)
    simulation = cell("bsfl", rounds=ROUNDS).simulation(tmp_path, run="again")
    rows = [simulation.step() for _ in range(ROUNDS)]
    ended = [client for row in rows for client in row.clients.tolist()]
    assert jobs.client[~jobs.open].tolist() == ended
    assert np.count_nonzero(jobs.given_up) > 0
    still_open = sorted(simulation.agenda.jobs, key=lambda job: job.identity)
    assert len(still_open) > 0
    assert jobs.client[jobs.open].tolist() == [job.client for job in still_open]
    asked = [job.decision.asked_at_seconds for job in still_open]
    assert jobs.asked_at_seconds[jobs.open].tolist() == asked
    assert not jobs.answered[jobs.open].any()


EDGES: dict[str, Any] = {
    "world": {"name": "edge-network", "num_clients": 12},
    "federation": {"concurrency": 3, "buffer": 2},
}


@pytest.mark.parametrize("aggregations", [1, 7, ROUNDS - 1])
@pytest.mark.parametrize(("label", "more"), [("bsfl", {}), ("random", EDGES)])
def test_a_cut_run_is_a_shorter_run(
    tmp_path: Path, aggregations: int, label: str, more: dict[str, Any]
) -> None:
    short, long = tmp_path / "short", tmp_path / "long"
    shorter = history(play(short, label, rounds=aggregations, **more), aggregations)
    cut = history(play(long, label, rounds=ROUNDS, **more)).until(aggregations)
    order = [np.lexsort((jobs.client, jobs.decision)) for jobs in (shorter, cut)]
    for item in fields(JobHistory):
        one, two = (
            getattr(jobs, item.name)[slice(None) if item.name == "servers" else by]
            for jobs, by in zip((shorter, cut), order, strict=True)
        )
        np.testing.assert_array_equal(one, two, err_msg=item.name)


def test_open_jobs_that_another_version_wrote_are_refused(tmp_path: Path) -> None:
    reader = JournalReader(play(tmp_path, "bsfl", rounds=3))
    with closing(connect(reader.path)) as database, database:
        (image,) = database.execute("SELECT npz FROM loop").fetchone()
        arrays, meta = states.from_bytes(image, source="here")
        del arrays["decision.0.selection.round"]
        database.execute("UPDATE loop SET npz = ?", (states.to_bytes(arrays, meta),))
    with pytest.raises(StateError, match=r"journal\.sqlite"):
        read_jobs(reader, 3)


def test_a_run_that_goes_on_while_it_is_read(tmp_path: Path) -> None:
    """Open jobs of a later checkpoint, and the rows that were read before."""
    folder = play(tmp_path, "bsfl", rounds=12)
    reader, before = JournalReader(folder), history(folder, 12)
    play(tmp_path, "bsfl", rounds=ROUNDS)
    after = read_jobs(reader, 12)
    assert after is not None
    assert sorted(after.client.tolist()) == sorted(before.client.tolist())
    assert after.open.sum() == before.open.sum() > 0


def test_of_each_job_one_thing_becomes(run: Path) -> None:
    jobs = history(run)
    marks = np.stack([jobs.used, jobs.lost, jobs.given_up, jobs.open])
    assert (marks.sum(axis=0) == 1).all()
    assert (jobs.row[jobs.open] == ROUNDS + 1).all()


def test_jobs_by_hand(write_run: "WriteRun") -> None:
    first = [Job(0, 0.0, 1.0), Job(3, 0.0, 0.5, answered=False, used=False)]
    second = [Job(1, 0.5, 2.0, age=1, used=False, decision=2)]
    folder = write_run("random", seconds=[1.0, 1.5], jobs=job_rows([first, second]))
    (run,) = load([folder]).every_run
    assert run.jobs is not None
    assert run.slots == 2
    assert run.jobs.worked_seconds(9.0).tolist() == [1.0, 0.5, 1.5]
    assert run.jobs.lost.tolist() == [False, False, True]
    assert run.jobs.given_up.tolist() == [False, True, False]
    cut = run.jobs.until(1)  # the third job was asked for before the first aggregation
    assert cut.open.tolist() == [False, False, True]
    assert cut.worked_seconds(1.0).tolist() == [1.0, 0.5, 0.5]
    assert cut.age.tolist() == [0, 0, 1]
    assert run.jobs.of_decision(2).client.tolist() == [1]


def test_rounds_have_no_jobs(write_run: "WriteRun") -> None:
    assert read_jobs(JournalReader(write_run()), 3) is None

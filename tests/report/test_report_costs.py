"""What runs cost: numbers that can be counted by hand."""

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
from tests.report.roundless_runs import BUFFERED, SLOTS, TRAINING, Job, job_rows, play

from fedmuster.experiments.journal import JournalReader
from fedmuster.report.costs import (
    costs,
    costs_to_target,
    end_mean,
    end_swing,
    end_values,
    started_updates,
)
from fedmuster.report.runs import Comparison, Run, load
from fedmuster.report.summary import summarise
from fedmuster.report.target import Target
from fedmuster.report.write import write_csv, write_parquet

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

PARAMETERS = 10
MODEL = {"num_parameters": np.array(PARAMETERS)}
TARGET = Target(column="accuracy", value=0.5)


@pytest.fixture
def by_hand(write_run: "WriteRun") -> Comparison:
    rows = [
        [Job(0, 0.0, 1.0), Job(1, 0.0, 0.5, answered=False, used=False)],
        [Job(2, 0.5, 2.0, age=1, decision=2)],
        [Job(3, 1.0, 2.5, age=1, used=False, decision=3), Job(0, 2.0, 4.0, decision=4)],
    ]
    without = write_run(
        "without",
        seconds=[1.0, 1.0, 2.0],
        jobs=job_rows(rows),
        loss=[3.0, 2.0, 1.0],
        accuracy=[0.3, 0.6, 0.7],
        clients=MODEL,
    )
    in_rounds = write_run(
        "random",
        seconds=[1.0, 3.0, 4.0],
        cohorts=[[0, 1, 2], [0, 1], [1]],
        num_completed=1,
        loss=[3.0, 2.0, 1.0],
        accuracy=[0.1, 0.2, 0.5],
        clients=MODEL,
    )
    return load([without, in_rounds])


def only_run(comparison: Comparison, label: str) -> Run:
    (run,) = comparison.runs[label]
    return run


def test_without_rounds(by_hand: Comparison) -> None:
    spent = costs(only_run(by_hand, "without"))
    assert (spent.started, spent.answered, spent.used) == (5, 4, 3)
    assert (spent.wasted, spent.open, spent.server_updates) == (2, 0, 3)
    assert spent.bytes_down == 4 * PARAMETERS * 5
    assert spent.bytes_up == 4 * PARAMETERS * 4
    assert spent.client_seconds == 1.0 + 0.5 + 1.5 + 1.5 + 2.0
    assert spent.lost_client_seconds == 0.5 + 1.5
    assert spent.mean_concurrency == 6.5 / 4.0


def test_until_the_target(by_hand: Comparison) -> None:
    spent = costs_to_target(only_run(by_hand, "without"), TARGET)
    assert spent is not None
    # At 2 s: the client that answered nothing is lost, and client 3 works.
    assert (spent.seconds, spent.server_updates) == (2.0, 2)
    assert (spent.started, spent.used, spent.wasted, spent.open) == (4, 2, 1, 1)
    assert spent.client_seconds == 1.0 + 0.5 + 1.5 + 1.0
    assert spent.lost_client_seconds == 0.5
    assert spent.bytes_up == 4 * PARAMETERS * 2
    assert costs_to_target(only_run(by_hand, "without"), Target(column="loss", value=0.1)) is None
    assert costs_to_target(only_run(by_hand, "without"), None) is None


def test_in_rounds(by_hand: Comparison) -> None:
    spent = costs(only_run(by_hand, "random"))
    # write_run lets all of a cohort enter the model, as late answers may.
    assert (spent.started, spent.used, spent.answered) == (6, 6, 6)
    assert math.isnan(spent.client_seconds)
    assert math.isnan(spent.lost_client_seconds)
    assert spent.mean_concurrency == (3 * 1.0 + 2 * 3.0 + 1 * 4.0) / 8.0


def test_without_a_model_answers_are_used(write_run: "WriteRun") -> None:
    (run,) = load([write_run(cohorts=[[0, 1, 2]] * 3, num_completed=2)]).every_run
    spent = costs(run)
    assert (spent.started, spent.answered, spent.used, spent.wasted) == (9, 6, 6, 3)
    assert math.isnan(spent.bytes_down)


@pytest.mark.parametrize(
    ("label", "staleness"),
    [("random", {"name": "polynomial"}), ("oort", {"name": "hinge", "max_age": 1})],
)
def test_against_the_journal(tmp_path: Path, label: str, staleness: dict[str, Any]) -> None:
    federation = {**BUFFERED, "staleness": staleness}
    folder = play(tmp_path, label, rounds=25, training=TRAINING, federation=federation)
    journal = JournalReader(folder)
    assert journal.jobs is not None
    started = used = wasted = 0
    work = lost = 0.0
    for row in journal.jobs:
        for place in range(len(row.client)):
            seconds = float(row.ended_at_seconds[place] - row.asked_at_seconds[place])
            started, work = started + 1, work + seconds
            used += bool(row.used[place])
            if not row.used[place]:
                wasted, lost = wasted + 1, lost + seconds
    spent = costs(only_run(load([folder]), label))
    assert wasted > 0
    assert (spent.answered > spent.used) == ("max_age" in staleness)
    assert spent.started - spent.open == started
    assert 0 < spent.open < SLOTS
    assert (spent.used, spent.wasted) == (used, wasted)
    assert used == journal.columns["num_aggregated"].sum()
    assert spent.lost_client_seconds == pytest.approx(lost)
    assert work < spent.client_seconds < work + spent.open * 0.8  # the deadline
    assert 0 < spent.mean_concurrency < SLOTS + 1e-9


def test_started_updates_are_those_at_each_aggregation(by_hand: Comparison) -> None:
    for run in by_hand.every_run:
        counted = [costs(run, count).started for count in range(1, run.rounds + 1)]
        assert started_updates(run).tolist() == counted
    assert started_updates(only_run(by_hand, "without")).tolist() == [3, 4, 5]


def test_the_last_tenth(write_run: "WriteRun") -> None:
    nan = math.nan
    accuracy = [0.9, nan, 0.2, nan, 0.4, 0.6]
    folder = write_run(
        seconds=[50.0, 30.0, 9.0, 2.0, 4.0, 5.0], loss=accuracy, accuracy=accuracy, clients=MODEL
    )
    (run,) = load([folder]).every_run
    assert end_values(run, "accuracy").tolist() == [0.4, 0.6]
    assert end_mean(run, "accuracy") == 0.5
    assert end_swing(run, "accuracy") == pytest.approx(np.std([0.4, 0.6], ddof=1))


def test_the_last_evaluation_where_the_last_tenth_has_none(write_run: "WriteRun") -> None:
    accuracy = [0.9, 0.3, math.nan]
    folder = write_run(seconds=[1.0, 1.0, 8.0], loss=accuracy, accuracy=accuracy, clients=MODEL)
    (run,) = load([folder]).every_run
    assert end_mean(run, "accuracy") == 0.3
    assert math.isnan(end_swing(run, "accuracy"))


def test_metrics_and_what_cannot_be_known(by_hand: Comparison) -> None:
    summary = summarise(by_hand, target=0.5)
    without, in_rounds = summary.policies
    assert without.means["costs_started"].mean == 5
    assert without.means["costs_to_target_started"].mean == 4
    assert without.means["costs_megabytes_down"].mean == pytest.approx(4e-6 * PARAMETERS * 5)
    assert without.means["answers_a_second"].mean == 3 / 4.0
    assert without.absent.keys() == set()
    assert in_rounds.absent.keys() == {
        f"{table}_{name}"
        for table in ("costs", "costs_to_target")
        for name in ("client_seconds", "lost_client_seconds")
    }
    assert math.isnan(in_rounds.means["costs_client_seconds"].mean)
    assert in_rounds.means["end_accuracy_percent"].mean == 50.0


def test_files(by_hand: Comparison, tmp_path: Path) -> None:
    texts = {path.stem: path for path in write_csv(by_hand, tmp_path, TARGET)}
    with texts["costs"].open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["policy"], line["until"], line["started"]) for line in lines] == [
        ("without", "end", "5"),
        ("without", "target", "4"),
        ("random", "end", "6"),
        ("random", "target", "6"),
    ]
    assert [line["client_seconds"] for line in lines] == ["6.5", "4.0", "", ""]
    with texts["jobs"].open(encoding="utf-8", newline="") as file:
        jobs = list(csv.DictReader(file))
    assert jobs[1] == {
        "policy": "without",
        "seed": "0",
        "client": "1",
        "edge": "0",
        "decision": "1",
        "asked_at": "0.0",
        "ended_at": "0.5",
        "answered": "False",
        "used": "False",
        "version": "0",
        "age": "0",
    }
    assert len(jobs) == 5
    tables = {path.stem: path for path in write_parquet(by_hand, tmp_path, TARGET)}
    for name, rows in (("costs", lines), ("jobs", jobs)):
        read = parquet.read_table(tables[name]).to_pylist()
        told = [{k: "" if v is None else str(v) for k, v in row.items()} for row in read]
        assert told == rows


def test_a_job_that_is_open_has_no_end(tmp_path: Path) -> None:
    comparison = load([play(tmp_path, "random", rounds=10)])
    texts = {path.stem: path for path in write_csv(comparison, tmp_path)}
    with texts["jobs"].open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    spent = costs(only_run(comparison, "random"))
    assert len(lines) == spent.started
    assert sum(line["ended_at"] == "" for line in lines) == spent.open > 0

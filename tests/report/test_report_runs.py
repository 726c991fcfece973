import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.experiments.tampering import changing

from fedmuster import BSFL, Random
from fedmuster.bandits.rewards import CohortReward
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.experiments.journal import FILE_NAME, Journal
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import lay_out, run_cells
from fedmuster.report.runs import load
from fedmuster.worlds import BSFLRates

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun


def test_runs_by_label_and_seed(write_run: "WriteRun") -> None:
    folders = [
        write_run("bsfl", 1, seconds=[1.0, 2.0], cohorts=[[0, 3], [2]]),
        write_run("random", 0, seconds=[5.0, 6.0]),
        write_run("bsfl", 0, seconds=[3.0, 4.0]),
        write_run("random", 1, seconds=[7.0, 8.0]),
    ]
    comparison = load(folders)
    assert comparison.labels == ("bsfl", "random")
    assert comparison.seeds == (0, 1)
    assert (comparison.rounds, comparison.num_clients, comparison.cohort_size) == (2, 4, 2)
    assert comparison.notes == ()
    np.testing.assert_array_equal(comparison.column("bsfl", "seconds"), [[3.0, 4.0], [1.0, 2.0]])
    run = comparison.runs["bsfl"][1]
    np.testing.assert_array_equal(run.selection_counts(), [1, 0, 1, 1])
    np.testing.assert_array_equal(run.chosen_rounds(), [0, 0, 1])


def test_an_experiment_that_really_ran(tmp_path: Path) -> None:
    experiment = Experiment(
        policies={"bsfl": BSFL(), "random": Random()}, world=BSFLRates(), rounds=20, seeds=(3, 5)
    )
    cells = lay_out(tmp_path / "runs", experiment)
    run_cells(cells, processes=1, progress=lambda _: None)
    comparison = load([tmp_path / "runs"])
    assert (comparison.labels, comparison.seeds) == (("bsfl", "random"), (3, 5))
    assert all(comparison.judged(label) for label in comparison.labels)
    assert all((run.cohort_sizes == 5).all() for run in comparison.runs["bsfl"])
    # The same folders once more, by another way, are the same runs.
    assert load([tmp_path / "runs", next(iter(cells))]).seeds == (3, 5)


def test_unfinished_runs_are_cut_and_it_is_said(write_run: "WriteRun") -> None:
    whole = write_run("bsfl", seconds=[1.0, 2.0, 3.0])
    short = write_run("random", seconds=[4.0], cohorts=[[1, 2]], planned=3)
    comparison = load([whole, short])
    assert comparison.rounds == 1
    np.testing.assert_array_equal(comparison.column("bsfl", "seconds"), [[1.0]])
    assert comparison.runs["bsfl"][0].chosen.tolist() == [0, 1]
    (note,) = comparison.notes
    assert "1 of 2 runs unfinished" in note
    assert "first 1 of 3 rounds" in note
    assert "random, seed 0" in note


def test_seeds_that_not_all_have_are_left_out_and_it_is_said(write_run: "WriteRun") -> None:
    folders = [write_run("bsfl", seed) for seed in (0, 1, 2)]
    folders += [write_run("random", seed) for seed in (1, 2, 7)]
    comparison = load(folders)
    assert comparison.seeds == (1, 2)
    assert comparison.notes == ("Seeds that not every policy has are left out: 0, 7.",)


def test_no_common_seed(write_run: "WriteRun") -> None:
    with pytest.raises(ConfigError, match=r"0.*1"):
        load([write_run("bsfl", 0), write_run("random", 1)])


def test_runs_without_rounds_ask_to_be_resumed(write_run: "WriteRun", tmp_path: Path) -> None:
    empty = write_run(seconds=[])
    with pytest.raises(StateError, match=f"no rounds yet.*fedmuster resume {empty}"):
        load([empty])
    (empty / FILE_NAME).unlink()
    with pytest.raises(StateError):
        load([empty])
    (empty / FILE_NAME).touch()
    with pytest.raises(StateError):
        load([empty])
    experiment = Experiment(policies={"random": Random()}, world=BSFLRates(), rounds=5)
    lay_out(tmp_path / "new", experiment)
    with pytest.raises(StateError, match=f"no rounds yet.*fedmuster resume {tmp_path / 'new'}`"):
        load([tmp_path / "new"])


def test_runs_that_cannot_be_compared(write_run: "WriteRun") -> None:
    here = write_run("bsfl")
    other_world = write_run("random", world=BSFLRates(num_clients=4, cohort_size=1))
    with pytest.raises(ConfigError, match=r"cohort_size.*2.*1"):
        load([here, other_world])
    other_reward = write_run("genie", reward=CohortReward(alpha=7.0))
    with pytest.raises(ConfigError, match=r"2\.0.*7\.0"):
        load([here, other_reward])
    longer = write_run("pause", planned=1_000)
    with pytest.raises(ConfigError, match=r"3.*1,000"):
        load([here, longer])


def test_one_name_for_two_things(write_run: "WriteRun", tmp_path: Path) -> None:
    here = write_run("bsfl", 0)
    again = write_run("bsfl", 0, folder=tmp_path / "again")
    with pytest.raises(ConfigError, match=r"'bsfl'.*0"):
        load([here, again])
    different = write_run("bsfl", 1, policy=BSFL(alpha=9.0))
    with pytest.raises(ConfigError, match="'bsfl'"):
        load([here, different])


def test_nothing_to_report_on(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load([])
    with pytest.raises(StateError):
        load([tmp_path / "nowhere"])


def test_unknown_baseline(write_run: "WriteRun") -> None:
    bsfl, random, pause = (write_run(label) for label in ("bsfl", "random", "pause"))
    comparison = load([bsfl, random])
    assert comparison.baseline() == "random"
    assert comparison.baseline("bsfl") == "bsfl"
    assert load([pause, bsfl]).baseline() == "pause"
    with pytest.raises(ConfigError, match="'best'"):
        comparison.baseline("best")


def test_damaged_journals_are_refused(write_run: "WriteRun", tmp_path: Path) -> None:
    whole = write_run()

    def copy(name: str) -> Path:
        shutil.copytree(whole, tmp_path / name)
        return tmp_path / name

    garbage = copy("garbage")
    (garbage / FILE_NAME).write_bytes(b"no database at all" * 100)
    with pytest.raises(StateError):
        load([garbage])

    gap = copy("gap")
    with changing(gap) as database:
        database.execute("DELETE FROM rounds WHERE round = 2")
    with pytest.raises(StateError, match=r"1.*2"):
        load([gap])

    stranger = copy("stranger")
    with changing(stranger) as database:
        cohort = np.array([1, 4], dtype="<i4").tobytes()
        database.execute("UPDATE rounds SET clients = ? WHERE round = 1", (cohort,))
    with pytest.raises(StateError, match="4"):
        load([stranger])

    torn = copy("torn")
    with changing(torn) as database:
        database.execute("UPDATE rounds SET clients = x'010203' WHERE round = 1")
    with pytest.raises(StateError, match=f"{torn / FILE_NAME} is damaged"):
        load([torn])

    nobody = copy("nobody")
    with changing(nobody) as database:
        database.execute("DELETE FROM clients")
    with pytest.raises(StateError, match=r"cohort_size.*typical_latency_seconds"):
        load([nobody])


def test_a_world_that_changed_between_runs(write_run: "WriteRun") -> None:
    here, there = write_run("bsfl"), write_run("random")
    with changing(there) as database:
        database.execute("DELETE FROM clients")
    with Journal(there) as journal:
        clients = {"group": np.zeros(9, int), "typical_latency_seconds": np.ones(9)}
        journal.begin({}, {**clients, "cohort_size": np.array(2)})
    with pytest.raises(StateError, match=r"has 4 clients and .* has 9"):
        load([here, there])

"""The journal and spec of a federation, whose clients join as it goes on and which none repeats."""

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.experiments.tampering import make_old

from fedmuster import BSFL, COCS
from fedmuster.bandits.rewards import CohortReward
from fedmuster.bandits.utility import EdgeUtility
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.core.records import FloatArray
from fedmuster.experiments.journal import FILE_NAME, Journal, JournalReader, standing
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Checkpoint, RoundRow
from fedmuster.worlds import WORLDS, BSFLRates
from fedmuster.worlds.real_federation import RealFederation

CELL = Experiment(
    policies={"bsfl": BSFL()}, world=RealFederation(cohort_size=2), rounds=3, regret=False
)


def row(number: int, scores: dict[str, FloatArray] | None = None) -> RoundRow:
    return RoundRow(
        round=number,
        seconds=1.0,
        reward=np.nan,
        regret=np.nan,
        num_available=2,
        num_completed=2,
        num_refused=0,
        clients=np.array([0, 1]),
        scores=scores,
    )


def checkpoint(number: int) -> Checkpoint:
    return Checkpoint(number, float(number), b"", None, None, None)


def test_the_newest_table_of_clients_counts(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.begin({}, {})
        for count in (2, 3):
            journal.know_clients({"identity": np.array([f"node-{i}" for i in range(count)])})
    with Journal(tmp_path) as journal:
        journal.begin({}, {"identity": np.array(["somebody else"])})  # who continues knows no more
    assert JournalReader(tmp_path).clients["identity"].tolist() == ["node-0", "node-1", "node-2"]


def test_scores_grow_with_the_clients(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        rows = [
            row(1, {"index": np.array([0.1, 0.2])}),
            row(2),
            row(3, {"index": np.array([0.3, 0.4, 0.5]), "bonus": np.array([1.0, 2.0, 3.0])}),
        ]
        journal.append(rows, checkpoint(3))
    reader = JournalReader(tmp_path)
    assert reader.score_rounds.tolist() == [1, 3]
    np.testing.assert_array_equal(reader.scores["index"], [[0.1, 0.2, np.nan], [0.3, 0.4, 0.5]])
    np.testing.assert_array_equal(reader.scores["bonus"], [[np.nan] * 3, [1.0, 2.0, 3.0]])


def write_round_twice(journal: Journal) -> None:
    with journal.together():
        journal.know_clients({"identity": np.array(["a", "b"])})
        journal.note(1, "train", {"loss": 1.0})
        journal.append([row(1), row(1)], checkpoint(1))


def test_what_is_written_together_counts_as_one(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.begin({}, {"identity": np.array(["a"])})
        with pytest.raises(StateError, match="damaged"):
            write_round_twice(journal)
        assert journal.noted("train") == {}
        assert journal.checkpoint() is None
        with journal.together():
            journal.note(1, "train", {"loss": 1.0})
            assert standing(tmp_path).rounds == 0
            journal.append([row(1)], checkpoint(1))
            assert standing(tmp_path).rounds == 0  # not yet
        assert standing(tmp_path).rounds == 1
    assert JournalReader(tmp_path).clients["identity"].tolist() == ["a"]


def test_a_round_is_evaluated_after_it_is_written(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.append([row(1), row(2)], checkpoint(2))
        journal.evaluated(2, loss=0.5, accuracy=0.5)
        journal.evaluated(2, loss=0.25)
        journal.evaluated(2, accuracy=0.75)
        journal.evaluated(3, loss=9.0)  # of which nothing is known
    columns = JournalReader(tmp_path).columns
    np.testing.assert_array_equal(columns["loss"], [np.nan, 0.25])
    np.testing.assert_array_equal(columns["accuracy"], [np.nan, 0.75])


def test_notes_by_stage_and_round(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.note(2, "train", {"loss": 0.5, "sizes": [1, 2]})
        journal.note(1, "train", {"loss": float("nan")})
        journal.note(2, "evaluate", {"n": 3})
        journal.note(2, "evaluate", {"n": 4})
    with Journal(tmp_path) as journal:
        assert list(journal.noted("train")) == [1, 2]
        assert journal.noted("train")[2] == {"loss": 0.5, "sizes": [1, 2]}
        assert np.isnan(journal.noted("train")[1]["loss"])
        assert journal.noted("evaluate") == {2: {"n": 4}}


def test_journals_from_before_there_were_notes_are_read_and_continued(tmp_path: Path) -> None:
    cell = Experiment(policies={"bsfl": BSFL()}, world=BSFLRates(), rounds=5)
    prepare(tmp_path, replace(cell, rounds=3))
    execute(tmp_path)
    make_old(tmp_path)
    database = sqlite3.connect(tmp_path / FILE_NAME)
    database.execute("DROP TABLE metrics")
    database.close()
    assert len(JournalReader(tmp_path)) == 3
    prepare(tmp_path, cell)
    execute(tmp_path)
    assert len(JournalReader(tmp_path)) == 5


def test_the_spec_of_a_federation_is_read_back(tmp_path: Path) -> None:
    prepare(tmp_path, CELL)
    assert Experiment.load(tmp_path / "spec.toml") == CELL
    assert isinstance(CELL.reward, CohortReward)
    edges = RealFederation(
        cohort_size=9, edges=("north", "south"), deadline_seconds=3.0, over_selection=1.3
    )
    at_edges = replace(CELL, policies={"cocs": COCS()}, world=edges, reward=None)
    prepare(tmp_path, at_edges)
    assert Experiment.load(tmp_path / "spec.toml") == at_edges
    assert isinstance(at_edges.reward, EdgeUtility)


def test_nothing_simulates_a_federation(tmp_path: Path) -> None:
    assert "federation" not in WORLDS
    prepare(tmp_path, CELL)
    with pytest.raises(ConfigError, match=r"spec\.toml"):
        Experiment.load(tmp_path / "spec.toml", rehearse=True)
    with pytest.raises(ConfigError):
        execute(tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {"cohort_size": 0},
        {"cohort_size": 1, "over_selection": 0.5},
        {"cohort_size": 1, "over_selection": float("nan")},
        {"cohort_size": 1, "deadline_seconds": 0.0},
        {"cohort_size": 1, "edges": ("north", "north")},
    ],
)
def test_odd_federations_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        RealFederation(**settings)
    assert caught.value.key == (list(settings)[-1],)


def test_only_what_is_worth_it_waits_for_the_disk(tmp_path: Path) -> None:
    def level(database: sqlite3.Connection) -> int:
        (found,) = database.execute("PRAGMA synchronous").fetchone()
        return int(found)

    normal, full = 1, 2
    with Journal(tmp_path) as journal:
        with journal.together() as database:
            assert level(database) == normal
        journal.sync_every_commit()
        with journal.together() as database, journal.together(synced=False):
            assert level(database) == full
        with journal.together(synced=False) as database:
            assert level(database) == normal
        with journal.together() as database:
            assert level(database) == full

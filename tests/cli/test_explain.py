"""``fedmuster explain`` as people use it: what it says, what it plays again, what it refuses."""

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedmuster import BSFL
from fedmuster.cli.explain import explain
from fedmuster.core.errors import ConfigError, FedmusterError, StateError
from fedmuster.experiments.journal import FILE_NAME, Journal, JournalReader
from fedmuster.experiments.run import SPEC_NAME, execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import lay_out
from fedmuster.federation import Checkpoint, RoundRow
from fedmuster.worlds.real_federation import RealFederation

WORLD = {"name": "bsfl-rates", "num_clients": 8, "cohort_size": 3}


def experiment(*policies: str, seeds: tuple[int, ...] = (0,), **more: Any) -> Experiment:
    table = {"rounds": 12, "seeds": list(seeds), "world": WORLD, "regret": False, **more}
    return Experiment.from_table({**table, "policy": [{"name": name} for name in policies]})


def played(folder: Path, cell: Experiment) -> Path:
    prepare(folder, cell)
    execute(folder)
    return folder


def told(*arguments: str | Path) -> str:
    done = CliRunner().invoke(explain, [str(a) for a in arguments])
    if isinstance(done.exception, FedmusterError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())  # wherever the terminal breaks lines


def test_a_run_is_played_again_and_left_as_it_was(tmp_path: Path) -> None:
    run = played(tmp_path / "run", experiment("bsfl"))
    before = JournalReader(run).digest()
    cohort = JournalReader(run).cohorts[9].tolist()
    others = sorted(set(range(8)) - set(cohort))
    out = told(run, "--round", "10", "--client", str(others[0]))
    assert "Played 10 rounds again" in out
    assert "Round 10: 3 chosen of 8 that were available, of 8 clients." in out
    for word in ("mean_speed", "+ confidence_bonus", "The cohort is worth", "The terms of"):
        assert word in out
    assert f"Client {others[0]} was not chosen: its score" in out
    assert JournalReader(run).digest() == before
    assert sorted(path.name for path in run.iterdir() if "lock" not in path.name) == [
        FILE_NAME,
        SPEC_NAME,
    ]


def test_a_watched_run_is_not_played_again(tmp_path: Path) -> None:
    run = played(tmp_path, experiment("bsfl", watch={"every": 5, "clients": 8}))
    out = told(run, "--round", "6", "--client", "2")
    assert "again" not in out
    assert "Client 2 was" in out
    assert "mean_speed" in out


def test_a_journal_alone_says_what_it_has(tmp_path: Path) -> None:
    run = played(tmp_path, experiment("bsfl", watch={"every": 5, "clients": 4}))
    out = told(run, "--round", "6", "--client", "0", "--from", "journal")
    assert "4 of 8 clients were watched" in out
    assert "of 4 that are written down" in out
    cohort = JournalReader(run).cohorts[1].tolist()
    out = told(run, "--round", "2", "--client", str(cohort[0]), "--from", "journal")
    assert "Nobody was watched in this round" in out
    assert f"Client {cohort[0]} was chosen: the journal does not say why" in out


def test_luck_needs_no_terms(tmp_path: Path) -> None:
    out = told(played(tmp_path, experiment("random")), "--round", "3", "--client", "1")
    assert "3 of 8 are drawn, a chance of 38 %" in out
    assert "again" not in out


def test_an_experiment_asks_which_run(tmp_path: Path) -> None:
    for cell in lay_out(tmp_path / "both", experiment("random", "all-clients", seeds=(0, 4))):
        execute(cell)
    with pytest.raises(ConfigError, match=r"holds 4 runs.*random, all-clients.*0, 4"):
        told(tmp_path / "both", "--round", "3")
    with pytest.raises(ConfigError):
        told(tmp_path / "both", "--round", "3", "--policy", "bsfl")
    out = told(tmp_path / "both", "--round", "3", "--policy", "all-clients", "--seed", "4")
    assert "all-clients: every available client" in out


def test_what_does_not_exist_is_told(tmp_path: Path) -> None:
    run = played(tmp_path, experiment("random"))
    for wrong in ("0", "13", "-1"):
        with pytest.raises(ConfigError, match=rf"--round {wrong}: .* rounds 1 … 12; give one"):
            told(run, "--round", wrong)
    for wrong in ("8", "-1", "x"):
        with pytest.raises(ConfigError, match=rf"--client {wrong}: no such client.* from 0 to 7"):
            told(run, "--round", "2", "--client", wrong)
    with pytest.raises(StateError):
        told(tmp_path / "nowhere", "--round", "1")
    (tmp_path / "empty").mkdir()
    prepare(tmp_path / "empty", experiment("random"))
    with pytest.raises(StateError):
        told(tmp_path / "empty", "--round", "1")


def test_another_run_is_not_passed_off_as_this_one(tmp_path: Path) -> None:
    run = played(tmp_path, experiment("bsfl"))
    spec = (run / SPEC_NAME).read_text()
    seeds = "seeds = [\n    0,\n]"
    assert seeds in spec
    (run / SPEC_NAME).write_text(spec.replace(seeds, "seeds = [1]"))
    with pytest.raises(StateError, match=r"cannot be played again: round \d+ chose .* spec have"):
        told(run, "--round", "12")
    with sqlite3.connect(run / FILE_NAME) as database:
        database.execute(
            "UPDATE starts SET versions = replace(versions, 'numpy\": \"', 'numpy\": \"0.')"
        )
    database.close()
    with pytest.raises(StateError, match="0"):
        told(run, "--round", "12")


def test_an_edited_rule_explains_nothing(tmp_path: Path) -> None:
    """Also where the edit has not changed a cohort yet, and where the journal is enough."""
    run = played(tmp_path, experiment("bsfl", watch={"every": 1}))
    spec = (run / SPEC_NAME).read_text()
    assert "alpha = 2.0" in spec
    (run / SPEC_NAME).write_text(spec.replace("alpha = 2.0", "alpha = 2.0000001"))
    for source in ("journal", "replay"):
        with pytest.raises(StateError, match="alpha"):
            told(run, "--round", "1", "--from", source)


class TestFederations:
    """Whose journals hold all that is known, for nothing can be played again."""

    NAMES = ("key-aa", "key-bb", "phone-3", "late")

    def written(self, folder: Path, **marks: list[float]) -> Path:
        nan = np.nan
        cell = Experiment(
            policies={"bsfl": BSFL()}, world=RealFederation(cohort_size=1), rounds=9, regret=False
        )
        prepare(folder, cell)
        scores = {
            "available": np.array([1.0, 1.0, 0.0]),
            "score": np.array([0.9, 0.5, 0.7]),
            "mean_speed": np.array([0.5, 0.3, 0.2]),
            "confidence_bonus": np.array([0.4, 0.2, 0.5]),
            "generalisation": np.array([0.1, 0.2, nan]),
            "times_asked": np.array([2.0, 3.0, 0.0]),
            **{name: np.array(values) for name, values in marks.items()},
        }
        row = RoundRow(
            round=1,
            seconds=1.0,
            reward=nan,
            regret=nan,
            num_available=2,
            num_completed=1,
            num_refused=0,
            clients=np.array([0]),
            scores=scores,
        )
        with Journal(folder) as journal:
            clients = {
                "group": np.zeros(4, dtype=np.int64),
                "typical_latency_seconds": np.ones(4),
                "cohort_size": np.array(1),
                "identity": np.array(self.NAMES),
                "watched": np.arange(4),
            }
            journal.begin({}, clients)
            journal.append([row], Checkpoint(1, 1.0, b"", None, None, None))
        return folder

    def test_clients_have_names(self, tmp_path: Path) -> None:
        run = self.written(tmp_path)
        out = told(run, "--round", "1", "--client", "key-bb")
        assert "Round 1: 1 chosen of 2 that were available, of 4 clients (1 not joined)." in out
        assert "key-bb (1) was not chosen: its score 0.5" in out
        assert "In place of key-aa (0)" in out
        assert "key-aa (0) was chosen" in told(run, "--round", "1", "--client", "0")
        with pytest.raises(ConfigError, match="key-bb"):
            told(run, "--round", "1", "--client", "key-b")

    def test_who_was_not_there(self, tmp_path: Path) -> None:
        run = self.written(tmp_path)
        assert "the journal does not say why" in told(run, "--round", "1", "--client", "phone-3")
        assert "it had not joined yet" in told(run, "--round", "1", "--client", "late")

    def test_why_somebody_was_not_there(self, tmp_path: Path) -> None:
        run = self.written(tmp_path, busy=[0.0, 0.0, 1.0])
        assert "busy with an earlier round" in told(run, "--round", "1", "--client", "phone-3")

    def test_they_cannot_be_played_again(self, tmp_path: Path) -> None:
        run = self.written(tmp_path)
        with pytest.raises(ConfigError, match="a real federation"):
            told(run, "--round", "1", "--from", "replay")

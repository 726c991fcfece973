"""A run goes on only with the spec, the data and the traces with which it began."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.experiments.tampering import changing, make_old

from fedmuster.core.errors import ConfigError, StateError
from fedmuster.experiments.journal import Journal, JournalReader
from fedmuster.experiments.run import SPEC_NAME, execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import EXPERIMENT_NAME, complete, lay_out
from fedmuster.report.runs import load
from fedmuster.training.training import Training
from fedmuster.training.training_records import FederatedData

Table = dict[str, Any]

SPEC: Table = {
    "rounds": 4,
    "seeds": [3],
    "regret": True,
    "world": {"name": "bsfl-rates", "num_clients": 12, "cohort_size": 3},
    "reward": {"alpha": 1.0},
    "watch": {"every": 2},
    "training": {
        "model": {"name": "logistic"},
        "data": {"name": "digits", "train_limit": 600},
        "partition": {"name": "dirichlet-labels", "alpha": 0.5},
        "local": {"learning_rate": 0.1, "epochs": 1, "batch_size": 10},
        "server": {"name": "fedavg"},
    },
    "privacy": {
        "epsilon": 40.0,
        "noise": "seeded",
        "mechanism": {"name": "laplace", "clip": 1.0},
        "schedule": {"name": "geometric"},
    },
    "policy": [{"name": "bsfl", "alpha": 2.0}],
}

EDITS: dict[str, tuple[Any, ...]] = {
    "seeds": ("seeds", [4]),
    "regret": ("regret", False),
    "cohort size": ("world", "cohort_size", 4),
    "clients": ("world", "num_clients", 13),
    "availability": ("world", "availability", {"name": "markov"}),
    "reward": ("reward", "alpha", 9.0),
    "watch": ("watch", "every", 1),
    "learning rate": ("training", "local", "learning_rate", 0.2),
    "epochs": ("training", "local", "epochs", 2),
    "batch size": ("training", "local", "batch_size", 5),
    "model": ("training", "model", {"name": "mlp"}),
    "data": ("training", "data", "train_limit", 500),
    "partition": ("training", "partition", "alpha", 0.1),
    "server": ("training", "server", "name", "fedavgm"),
    "clip": ("privacy", "mechanism", "clip", 2.0),
    "epsilon": ("privacy", "epsilon", 41.0),
    "schedule": ("privacy", "schedule", {"name": "harmonic"}),
    "policy": ("policy", 0, "alpha", 3.0),
    "another policy": ("policy", 0, {"name": "random"}),
    "without rounds": ("federation", {"concurrency": 3}),
    "no privacy": ("privacy", None),
}


def edited(path: tuple[Any, ...], value: Any, table: Any = SPEC) -> Any:
    """A copy of the table with another value at this path; None removes it."""
    copy = dict(table) if isinstance(table, dict) else list(table)
    if len(path) > 1:
        value = edited(path[1:], value, copy[path[0]])
    copy[path[0]] = value
    return {k: v for k, v in copy.items() if v is not None} if isinstance(copy, dict) else copy


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun")
    prepare(folder, Experiment.from_table(SPEC))
    execute(folder)
    return folder


def copied(begun: Path, folder: Path) -> Path:
    for file in begun.iterdir():
        if not file.name.startswith("lock"):
            (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_an_edited_spec_is_refused_by_its_key(
    begun: Path, tmp_path: Path, edit: tuple[Any, ...]
) -> None:
    *path, value = edit
    folder = copied(begun, tmp_path)
    before = JournalReader(folder).digest()
    table = edited(tuple(path), value)
    prepare(folder, Experiment.from_table({**table, "rounds": 9}))
    key = next(part for part in reversed(path) if isinstance(part, str))
    with pytest.raises(StateError) as error:
        execute(folder)
    assert key in str(error.value)
    with pytest.raises((StateError, ConfigError)):
        load([folder])
    assert JournalReader(folder).digest() == before


def test_both_files_of_an_experiment_edited(tmp_path: Path) -> None:
    cells = lay_out(tmp_path, Experiment.from_table(SPEC))
    for cell in cells:
        execute(cell)
    for path in (tmp_path / EXPERIMENT_NAME, *(cell / SPEC_NAME for cell in cells)):
        text = path.read_text()
        assert "learning_rate = 0.1" in text
        changed = text.replace("learning_rate = 0.1", "learning_rate = 0.3")
        path.write_text(changed.replace("rounds = 4", "rounds = 8"))
    for cell in complete(tmp_path):
        with pytest.raises(StateError, match=r"training\.local\.learning_rate"):
            execute(cell)


@pytest.mark.parametrize("rounds", [4, 6])
def test_a_later_end_is_no_other_run(begun: Path, tmp_path: Path, rounds: int) -> None:
    folder = copied(begun, tmp_path)
    prepare(folder, Experiment.from_table({**SPEC, "rounds": rounds}))
    execute(folder)
    assert len(JournalReader(folder)) == rounds


def test_other_training_data(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copied(begun, tmp_path)
    prepare(folder, Experiment.from_table({**SPEC, "rounds": 6}))
    start: Callable[..., Any] = Training.start

    def with_one_pixel_more(self: Training, **arguments: Any) -> Any:
        trainer = start(self, **arguments)
        data: FederatedData = trainer.data
        data.inputs.flat[5] += np.float32(1e-3)
        return trainer

    monkeypatch.setattr(Training, "start", with_one_pixel_more)
    with pytest.raises(StateError, match="training data"):
        execute(folder)


def test_another_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    lines = ["client,round,latency_seconds"]
    lines += [f"{client},{t},{1 + client + t / 10}" for client in range(5) for t in range(1, 9)]
    trace.write_text("\n".join(lines))
    world = {"name": "trace", "path": str(trace), "cohort_size": 2}
    table = {"rounds": 3, "world": world, "policy": "bsfl"}
    run = tmp_path / "run"
    prepare(run, Experiment.from_table(table))
    execute(run)
    prepare(run, Experiment.from_table({**table, "rounds": 5}))
    whole = trace.read_text()
    trace.write_text(whole.replace("1.1", "1.2"))
    with pytest.raises(StateError, match=r"world\.path"):
        execute(run)
    trace.write_text(whole)
    execute(run)
    assert len(JournalReader(run)) == 5


def test_a_run_from_before_there_were_origins_goes_on(begun: Path, tmp_path: Path) -> None:
    folder = copied(begun, tmp_path)
    before = JournalReader(folder).digest()
    make_old(folder)
    assert JournalReader(folder).origin is None
    assert JournalReader(folder).digest() == before
    prepare(folder, Experiment.from_table({**SPEC, "rounds": 6}))
    execute(folder)
    origin = JournalReader(folder).origin
    assert origin is not None
    assert len(JournalReader(folder)) == 6


def test_a_setting_that_an_older_version_did_not_know_counts_as_its_default(
    begun: Path, tmp_path: Path
) -> None:
    folder = copied(begun, tmp_path)
    origin = JournalReader(folder).origin
    assert origin is not None
    line = "evaluate_every = 5\n"
    assert line in origin.spec
    with changing(folder) as database:
        database.execute("UPDATE origin SET spec = ?", (origin.spec.replace(line, ""),))
    prepare(folder, Experiment.from_table({**SPEC, "rounds": 6}))
    execute(folder)
    with Journal(folder) as journal:
        assert journal.origin is not None
        assert line in journal.origin.spec

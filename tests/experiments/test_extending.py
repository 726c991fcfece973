"""Rounds, seeds and policies are added to an experiment; everything else is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedmuster.cli import cli
from fedmuster.core.errors import ConfigError, StateError
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.run import SPEC_NAME, execute
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import (
    EXPERIMENT_NAME,
    Cells,
    complete,
    find_cells,
    lay_out,
    unfinished,
)

TRAINING = {"model": {"name": "logistic"}, "evaluate_every": 4}
WORLD = {"name": "bsfl-rates", "num_clients": 10, "cohort_size": 3}
EDGES = {"name": "edge-network", "num_clients": 8}


def experiment(
    *policies: str, rounds: int, seeds: tuple[int, ...] = (0,), **more: Any
) -> Experiment:
    table = {"rounds": rounds, "seeds": list(seeds), "world": WORLD, "policy": list(policies)}
    return Experiment.from_table({**table, **more})


def play(cells: Cells) -> None:
    for cell in cells:
        execute(cell)


def digests(cells: Cells) -> dict[str, str]:
    return {f"{c.parent.name}/{c.name}": JournalReader(c).digest() for c in cells}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"training": TRAINING},
        {"training": TRAINING, "privacy": {"epsilon": 40.0}},
        {"watch": {"every": 3}},
        {"world": EDGES, "training": TRAINING},
    ],
    ids=["choice", "training", "privacy", "watch", "edges"],
)
def test_more_of_everything_is_as_if_run_at_once(tmp_path: Path, more: dict[str, Any]) -> None:
    small = experiment("random", rounds=6, **more)  # round 6 is evaluated only as the last
    cells = lay_out(tmp_path / "grown", small)
    play(cells)
    other = "oracle" if "world" in more else "all-clients"
    large = experiment("random", other, rounds=11, seeds=(0, 3), **more)
    grown = lay_out(tmp_path / "grown", large)
    assert len(grown) == 4
    assert Experiment.load(tmp_path / "grown" / EXPERIMENT_NAME) == large
    play(grown)
    at_once = lay_out(tmp_path / "at-once", large)
    play(at_once)
    assert digests(grown) == digests(at_once)
    assert all(len(JournalReader(cell)) == 11 for cell in grown)


def test_more_seconds(tmp_path: Path) -> None:
    play(lay_out(tmp_path / "grown", experiment("bsfl", rounds=500, seconds=2.0)))
    large = experiment("bsfl", rounds=900, seconds=5.0)
    for name in ("grown", "at-once"):
        play(lay_out(tmp_path / name, large))
    assert digests(find_cells(tmp_path / "grown")) == digests(find_cells(tmp_path / "at-once"))


def test_finished_cells_stay(tmp_path: Path) -> None:
    play(lay_out(tmp_path, experiment("random", rounds=5)))
    finished = tmp_path / "random/seed-0"
    before = {path.name: path.stat().st_mtime_ns for path in finished.iterdir()}
    cells = lay_out(tmp_path, experiment("random", "bsfl", rounds=5, seeds=(0, 1)))
    assert set(unfinished(cells)) == set(cells) - {finished}
    play(unfinished(cells))
    assert {path.name: path.stat().st_mtime_ns for path in finished.iterdir()} == before


def test_what_is_not_named_any_more_is_kept(tmp_path: Path) -> None:
    lay_out(tmp_path, experiment("random", rounds=5, seeds=(0, 1)))
    lay_out(tmp_path, experiment("bsfl", rounds=5, seeds=(2,)))
    kept = Experiment.load(tmp_path / EXPERIMENT_NAME)
    assert list(kept.policies) == ["random", "bsfl"]
    assert kept.seeds == (0, 1, 2)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        (("rounds",), {"rounds": 4}),
        (("seconds",), {"seconds": 1.0}),
        (("world", "num_clients"), {"world": {**WORLD, "num_clients": 11}}),
        (("world", "availability", "name"), {"world": {**WORLD, "availability": "markov"}}),
        (("reward", "alpha"), {"reward": {"alpha": 9.0}}),
        (("regret",), {"regret": False}),
        (("training",), {"training": TRAINING}),
        (("privacy",), {"privacy": {"epsilon": 4.0}}),
        (("watch",), {"watch": {"every": 3}}),
        (("policy", "bsfl", "alpha"), {"policy": [{"name": "bsfl", "alpha": 9.0}]}),
    ],
)
def test_other_changes_are_refused(
    tmp_path: Path, key: tuple[str, ...], change: dict[str, Any]
) -> None:
    lay_out(tmp_path, experiment("bsfl", rounds=5))
    before = (tmp_path / EXPERIMENT_NAME).read_bytes()
    with pytest.raises(ConfigError) as caught:
        lay_out(tmp_path, experiment("bsfl", **{"rounds": 5, **change}))
    assert caught.value.key == key
    for word in (".".join(key), "--out", str(tmp_path)):
        assert word in str(caught.value)
    assert (tmp_path / EXPERIMENT_NAME).read_bytes() == before


def test_the_error_has_both_values(tmp_path: Path) -> None:
    lay_out(tmp_path, experiment("bsfl", rounds=5))
    changed = experiment("bsfl", rounds=5, world={**WORLD, "num_clients": 4321})
    with pytest.raises(ConfigError, match=r"num_clients = 10 .*4321"):
        lay_out(tmp_path, changed)


def test_a_single_run_is_not_extended(tmp_path: Path) -> None:
    cells = lay_out(tmp_path, experiment("bsfl", rounds=5))
    with pytest.raises(StateError):
        lay_out(next(iter(cells)), experiment("bsfl", rounds=6))


def test_an_extension_that_was_cut_short_is_completed(tmp_path: Path) -> None:
    cells = lay_out(tmp_path, experiment("bsfl", rounds=5, seeds=(0, 1)))
    play(cells)
    larger = experiment("bsfl", rounds=8, seeds=(0, 1))
    (tmp_path / EXPERIMENT_NAME).write_text(larger.to_toml())  # and no further
    assert all(cell.rounds == 8 for cell in find_cells(tmp_path).values())
    play(complete(tmp_path))
    assert all(len(JournalReader(cell)) == 8 for cell in cells)


def test_an_experiment_that_was_edited_otherwise_is_not_continued(tmp_path: Path) -> None:
    lay_out(tmp_path, experiment("bsfl", rounds=5))
    edited = experiment("bsfl", rounds=5, world={**WORLD, "cohort_size": 4})
    (tmp_path / EXPERIMENT_NAME).write_text(edited.to_toml())
    with pytest.raises(ConfigError) as caught:
        complete(tmp_path)
    assert caught.value.key == ("world", "cohort_size")


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with each table of an experiment that this process reads."""
    count: list[str] = []
    original: Callable[..., Experiment] = vars(Experiment)["from_table"].__func__

    def counted(cls: type[Experiment], *arguments: Any, **more: Any) -> Experiment:
        count.append("parsed")
        return original(cls, *arguments, **more)

    monkeypatch.setattr(Experiment, "from_table", classmethod(counted))
    return count


def command(*arguments: str) -> None:
    assert CliRunner().invoke(cli, arguments, catch_exceptions=False).exit_code == 0


def test_a_spec_is_parsed_once_in_a_process(tmp_path: Path, parses: list[str]) -> None:
    out = str(tmp_path / "out")
    policies = ("compare", "bsfl", "random", "--world", "bsfl-rates", "--seeds", "2")
    command(*policies, "--rounds", "5", "--processes", "1", "--out", out)
    assert len(parses) == 0  # it comes from the command line
    command("resume", out, "--processes", "1")
    assert len(parses) == 1
    command("report", out, "--format", "none")
    assert len(parses) == 2
    (tmp_path / "spec.toml").write_bytes((tmp_path / "out" / EXPERIMENT_NAME).read_bytes())
    command("run", str(tmp_path / "spec.toml"), "--out", str(tmp_path / "two"), "--processes", "1")
    assert len(parses) == 3


def test_a_worker_parses_its_cell_once(tmp_path: Path, parses: list[str]) -> None:
    cells = lay_out(tmp_path, replace(experiment("bsfl", rounds=5)))
    parses.clear()
    play(cells)
    assert len(parses) == len(cells)
    assert (next(iter(cells)) / SPEC_NAME).is_file()

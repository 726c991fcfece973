"""Runs of a policy or world whose class cannot be imported any more."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fedmuster.cli import cli
from fedmuster.core.errors import ConfigError, UnknownNameError
from fedmuster.experiments.journal import JournalReader
from fedmuster.experiments.run import SPEC_NAME, execute
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.spec_tables import UnavailableClass
from fedmuster.experiments.sweep import EXPERIMENT_NAME, complete, lay_out, run_cells

POLICY = """
from dataclasses import dataclass
from typing import ClassVar
from fedmuster import Random

@dataclass(frozen=True, kw_only=True)
class Mine(Random):
    name: ClassVar[str] = "mine"
    epsilon: float = 0.25
"""
CLASS = """
from dataclasses import dataclass
from typing import ClassVar
from {base[0]} import {base[1]}

@dataclass(frozen=True, kw_only=True)
class Mine({base[1]}):
    name: ClassVar[str] = "mine"
"""
BASES = {
    "world": ("fedmuster.worlds", "BSFLRates"),
    "data": ("fedmuster.training.data", "Digits"),
    "partition": ("fedmuster.training.partition", "IID"),
    "model": ("fedmuster.training.models", "Logistic"),
    "server": ("fedmuster.training.aggregation", "FedAvg"),
    "schedule": ("fedmuster.privacy.schedules", "Geometric"),
    "mechanism": ("fedmuster.privacy.mechanisms", "Laplace"),
}
PARTS = ["policy", "world", "data", "partition", "model", "server", "schedule"]


def gone(tmp_path: Path, *, what: str, rounds: int = 6, played: int = 6) -> Path:
    """An experiment that has played some rounds of a class whose file was removed then."""
    file = tmp_path / "mine.py"
    base = BASES.get(what)
    file.write_text(POLICY if base is None else CLASS.format(base=base))
    table: dict[str, Any] = {"rounds": played, "world": "bsfl-rates", "policy": ["random", "bsfl"]}
    if what == "world":
        table["world"] = {"name": f"{file}:Mine"}
    elif what == "policy":
        table["policy"] = ["random", {"name": f"{file}:Mine", "epsilon": 0.5}]
    else:
        table["world"] = {"name": "bsfl-rates", "num_clients": 20, "cohort_size": 4}
        table["training"] = {"data": {"name": "digits"}, "model": {"name": "logistic"}}
        table["privacy"] = {"epsilon": 30.0}
        part = "privacy" if what in ("schedule", "mechanism") else "training"
        table[part][what] = {"name": f"{file}:Mine"}
    folder = tmp_path / "runs"
    for cell in lay_out(folder, Experiment.from_table(table)):
        execute(cell)
    lay_out(folder, Experiment.from_table({**table, "rounds": rounds}))
    file.unlink()
    # As in a new process, which has not imported the file.
    from fedmuster.core import registry

    registry._from_file.cache_clear()
    return folder


def told(*arguments: str | Path) -> str:
    done = CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def told_by_page(folder: Path) -> str:
    page = (folder / "report/report.html").read_text()
    return page[page.index("<title>") : page.index("</h1>")]


@pytest.mark.parametrize("what", PARTS)
def test_it_is_reported_on_and_explained(tmp_path: Path, what: str) -> None:
    folder = gone(tmp_path, what=what)
    told("report", folder, "--format", "none")
    assert (folder / "report/report.html").is_file()
    assert "unavailable" not in told_by_page(folder)
    label = "mine" if what == "policy" else "bsfl"
    out = told("explain", folder / label / "seed-0", "--round", "3", "--client", "1")
    assert out.startswith("Client 1 was")
    assert "mine.py:Mine" in out.replace(" ", "")  # a long path is wrapped
    told("resume", folder)  # there is nothing to continue
    spec = folder / EXPERIMENT_NAME
    assert Experiment.load(spec, reading=True).to_toml() == spec.read_text()


@pytest.mark.parametrize("what", PARTS)
def test_it_is_not_continued(tmp_path: Path, what: str) -> None:
    folder = gone(tmp_path, what=what, rounds=9)
    with pytest.raises(UnknownNameError, match=r"mine\.py:Mine"):
        run_cells(complete(folder), progress=lambda _: None)
    cell = folder / ("mine" if what == "policy" else "bsfl") / "seed-0"
    assert len(JournalReader(cell)) == 6
    with pytest.raises(ConfigError, match=r"mine\.py:Mine"):
        told("explain", cell, "--round", "3", "--from", "replay")
    with pytest.raises(UnknownNameError):
        Experiment.load(cell / SPEC_NAME)


def test_without_the_mechanism_nothing_is_said_of_privacy(tmp_path: Path) -> None:
    folder = gone(tmp_path, what="mechanism", rounds=9)
    for command in ("report", "resume"):
        with pytest.raises(UnknownNameError, match=r"mine\.py:Mine") as found:
            told(command, folder)
        assert found.value.key == ("privacy", "mechanism", "name")


def test_policies_that_are_there_are_added(tmp_path: Path) -> None:
    folder = gone(tmp_path, what="policy")
    wanted = Experiment.from_table({"rounds": 6, "world": "bsfl-rates", "policy": ["bsfl"]})
    cells = lay_out(folder, wanted)
    assert len(cells) == 3
    run_cells(cells, processes=1, progress=lambda _: None)
    assert len(JournalReader(folder / "bsfl/seed-0")) == 6


def test_equal_when_their_tables_are() -> None:
    one, two = (UnavailableClass(table={"name": "a:B"}, reason=why) for why in ("x", "y"))
    assert one == two

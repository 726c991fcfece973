"""What the command line says of runs that privacy ended."""

import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from fedmuster import AllClients, Random
from fedmuster.cli import cli, display
from fedmuster.experiments.journal import JournalReader, Standing, standing
from fedmuster.experiments.run import execute
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import lay_out
from fedmuster.federation import Horizon
from fedmuster.privacy.budget import Privacy
from fedmuster.privacy.schedules import Uniform
from fedmuster.worlds import PauseGroups


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """all-clients, whose clients have three turns each, and random, which is not run yet."""
    experiment = Experiment(
        policies={"all-clients": AllClients(), "random": Random()},
        world=PauseGroups(),
        rounds=7,
        privacy=Privacy(schedule=Uniform(participations=3)),
    )
    execute(next(iter(lay_out(tmp_path / "runs", experiment))))
    return tmp_path / "runs"


def _resume(folder: Path) -> str:
    result = CliRunner().invoke(
        cli, ["resume", str(folder)], catch_exceptions=False, env={"COLUMNS": "300"}
    )
    assert result.exit_code == 0, result.output
    return result.output


def test_resume_says_what_is_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "console", Console(width=300))
    ended = folder / "all-clients" / "seed-0"
    before = JournalReader(ended)
    over = f"{ended} is over: privacy ends the run: 0 of 30 clients have budget left"
    out = _resume(folder)
    assert over in out
    assert "Nothing to continue" not in out  # there was: random
    assert standing(folder / "random" / "seed-0").rounds == 7
    assert "privacy: simulated" in out
    again = _resume(folder)
    assert over in again
    assert "Nothing to continue: every run is over." in again
    after = JournalReader(ended)
    assert (after.digest(), after.versions) == (before.digest(), before.versions)  # not touched


def test_a_bar_is_full_when_its_runs_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(display, "console", Console(file=file, force_terminal=True, width=100))
    with display.progress_shown(Horizon(rounds=1000)) as update:
        cells = [Path(f"all-clients/seed-{seed}") for seed in (0, 1)]
        update({cells[0]: Standing(212, 9.0, "nobody is left"), cells[1]: Standing(300, 9.0)})
        update({cells[0]: Standing(212, 9.0, "nobody is left"), cells[1]: Standing(1000, 9.0)})
    assert "1212/1212" in file.getvalue()


def test_a_bar_by_time_is_full_when_its_runs_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(display, "console", Console(file=file, force_terminal=True, width=100))
    with display.progress_shown(Horizon(rounds=1000, seconds=60.0)) as update:
        cell = Path("all-clients/seed-0")
        update({cell: Standing(212, 25.0, "nobody is left")})
        update({cell.parent / "seed-1": Standing(212, 61.0), cell: Standing(2, 25.0, "nobody")})
    assert "85/85" in file.getvalue()

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from fedmuster.cli import cli
from fedmuster.core.errors import ConfigError

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun


def _report(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["report", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_all_that_can_be_asked_for(write_run: "WriteRun", tmp_path: Path) -> None:
    run = write_run(loss=[1.0, 0.5, 0.4], accuracy=[0.2, 0.7, 0.9])
    options = ["--format", "none", "--target", "0.7", "--parquet", "--tensorboard"]
    shown = _report(str(run), "--out", str(tmp_path / "out"), *options)
    assert "Time to 70 % (s)" in shown
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "report.html",
        "summary.md",
        "summary.csv",
        "rounds.csv",
        "rounds.parquet",
        "clients.csv",
        "clients.parquet",
        "tensorboard",
    }


def test_the_report_stands_beside_the_runs(write_run: "WriteRun") -> None:
    run = write_run()
    _report(str(run), "--format", "none")
    assert (run / "report" / "report.html").is_file()


def test_a_target_that_nobody_can_reach_is_refused(write_run: "WriteRun") -> None:
    run = write_run(loss=[1.0, 0.5, 0.4], accuracy=[0.2, 0.7, 0.9])
    with pytest.raises(ConfigError, match=r"80\.0.*0.*1"):
        _report(str(run), "--format", "none", "--target", "80")


def test_a_target_needs_a_model(write_run: "WriteRun") -> None:
    with pytest.raises(ConfigError, match=r"0\.5"):
        _report(str(write_run()), "--format", "none", "--target", "0.5")

import csv
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fedmuster.core.errors import ConfigError
from fedmuster.report.runs import load
from fedmuster.report.summary import summarise
from fedmuster.report.tables import tables, to_csv, to_markdown
from fedmuster.report.write import write_report

if TYPE_CHECKING:
    from tests.report.conftest import WriteRun

FIGURES = ("overview", "regret", "simulated-time", "selection-by-group", "cohorts")


def test_a_whole_report(write_run: "WriteRun", tmp_path: Path) -> None:
    folders = [
        write_run(label, seed, regret=[0.5, 0.25, 0.125], seconds=[0.1, 0.2, seed + 0.3])
        for label in ("bsfl", "random")
        for seed in (0, 1)
    ]
    out = tmp_path / "deep" / "report"
    written = write_report(folders, out, formats=("svg", "png"), baseline="bsfl")
    names = {f"{name}.{kind}" for name in FIGURES for kind in ("svg", "png")}
    assert {path.name for path in written} == names | {
        "report.html",
        "summary.md",
        "summary.csv",
        "rounds.csv",
        "clients.csv",
    }
    assert set(written) == set(out.iterdir())
    summary = summarise(load(folders), "bsfl")
    assert (out / "summary.md").read_text(encoding="utf-8") == to_markdown(tables(summary))
    assert (out / "summary.csv").read_text(encoding="utf-8") == to_csv(summary)
    with (out / "rounds.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert rows[5] == {
        "policy": "bsfl",
        "seed": "1",
        "round": "3",
        "seconds": "1.3",
        "cumulative_seconds": repr(0.1 + 0.2 + 1.3),
        "reward": "9.875",
        "regret": "0.125",
        "cumulative_regret": "0.875",
        "num_available": "4",
        "num_selected": "2",
        "num_completed": "2",
        "num_refused": "0",
        "loss": "",
        "accuracy": "",
        "train_loss": "",
        "num_aggregated": "0",
        "spent_max": "",
        "spent_mean": "",
        "num_exhausted": "0",
    }


def test_without_a_judge_there_is_no_regret(write_run: "WriteRun", tmp_path: Path) -> None:
    written = write_report([write_run()], tmp_path / "out", formats=("svg",))
    assert "regret.svg" not in {path.name for path in written}
    header, first, *_ = (tmp_path / "out" / "rounds.csv").read_text().splitlines()
    row = dict(zip(header.split(","), first.split(","), strict=True))
    assert row["regret"] == row["cumulative_regret"] == row["reward"] == ""


def test_nothing_is_written_when_something_is_wrong(write_run: "WriteRun", tmp_path: Path) -> None:
    run, out = write_run(), tmp_path / "out"
    with pytest.raises(ConfigError, match="'gif'"):
        write_report([run], out, formats=("svg", "gif"))
    with pytest.raises(ConfigError, match="baseline = 'nobody'"):
        write_report([run], out, baseline="nobody")
    assert not out.exists()
    out.write_text("a file")
    with pytest.raises(ConfigError, match="is a file, expected a folder"):
        write_report([run], out)


def test_tables_do_not_need_matplotlib(write_run: "WriteRun", tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from fedmuster.report.write import write_report; "
        "write_report([Path(sys.argv[1])], Path(sys.argv[2]), formats=()); "
        "sys.exit(any(name in sys.modules for name in ('matplotlib', 'rich', 'click', 'scipy')))"
    )
    command = [sys.executable, "-c", program, str(write_run()), str(tmp_path / "out")]
    assert subprocess.run(command, check=False).returncode == 0
    assert (tmp_path / "out" / "summary.md").is_file()

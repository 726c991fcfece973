"""``fedmuster compare`` and ``report`` with contestants that have rounds and others that do not."""

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from fedmuster.cli import cli, display
from fedmuster.experiments.journal import JournalReader
from fedmuster.report.costs import costs
from fedmuster.report.runs import load

LABELS = ("random:federation=rounds", "random", "bsfl:federation=rounds", "bsfl")


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "console", Console(width=300))


def told(*arguments: str | Path) -> str:
    done = CliRunner().invoke(cli, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def cells_of(out: str, title: str) -> dict[str, list[str]]:
    """The rows of the table whose title begins so, by their first cell."""
    lines = out[out.index(title) :].splitlines()
    table = lines[: next(n for n, line in enumerate(lines) if line.startswith("└"))]
    rows = [line.strip("│").split("│") for line in table if line.startswith("│")]
    return {first.strip(): [cell.strip() for cell in rest] for first, *rest in rows}


@pytest.mark.slow
def test_a_mixed_comparison(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    out = told(
        *(
            "compare",
            *LABELS,
            "--world",
            "bsfl-groups:num_clients=12,dropout=0.1,deadline_seconds=2",
        ),
        *("--federation", "concurrency=4,buffer=2", "--rounds", "100", "--seconds", "9"),
        *("--training", "data={name='digits', train_limit=120},model=logistic"),
        *("--seeds", "1", "--processes", "2", "--out", runs),
    )
    comparison = load([runs])
    assert comparison.round_less == ("random", "bsfl")
    until_end = cells_of(out, "What it cost until the end")
    assert until_end.keys() == set(LABELS)
    for label in LABELS:
        (run,) = comparison.runs[label]
        spent = costs(run)
        started, used, wasted, *_ = (float(cell.replace(",", "")) for cell in until_end[label][:3])
        assert (started, used, wasted) == (spent.started, spent.used, spent.wasted)
    reported = told("report", runs, "--format", "none", "--parquet")
    assert cells_of(reported, "What it cost until the end") == until_end
    with (runs / "report" / "jobs.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["policy"] for line in lines} == {"random", "bsfl"}
    journal = JournalReader(runs / "bsfl" / "seed-0")
    assert journal.jobs is not None
    ended = [line for line in lines if line["policy"] == "bsfl" and line["ended_at"]]
    assert len(ended) == sum(len(row.client) for row in journal.jobs)
    assert (runs / "report" / "costs.parquet").is_file()

"""Progress without a terminal, and what happens on Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedmuster.cli import display
from fedmuster.cli.display import _Lines, counted_in, horizon_in_words, show_table
from fedmuster.experiments import run as run_module
from fedmuster.experiments.journal import Journal, Standing, rounds_done, standing
from fedmuster.experiments.run import execute, prepare
from fedmuster.experiments.spec import Experiment
from fedmuster.federation import Horizon

SPEC = """
rounds = {rounds}
seeds = [0, 1]
world = "bsfl-rates"
policy = "bsfl"
"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_come_every_tenth_or_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock, cell = Clock(), Path("bsfl/seed-0")
    lines = _Lines(Horizon(rounds=1000), "rounds", clock)
    for now, rounds in ((0.2, 50), (0.4, 300), (2.0, 400), (4.0, 450), (12.5, 460), (13.0, 1000)):
        clock.now = now
        lines({cell: Standing(rounds, 1.0)})
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in told] == ["40%", "46%"]
    assert "400 of 1,000 rounds" in told[0]


@pytest.mark.parametrize(
    ("federation", "own", "unit"),
    [
        ({}, {}, "rounds"),
        ({"concurrency": 4}, {}, "rounds"),
        ({"concurrency": 4, "refill": 4, "buffer": 4}, {}, "rounds"),
        ({"refill": 5, "buffer": 5}, {}, "rounds"),  # the world's cohort size
        ({"concurrency": 4, "buffer": 4}, {}, "aggregations"),
        ({"buffer": 2}, {}, "aggregations"),
        ({}, {"buffer": 2}, "aggregations"),
        ({"trigger": "interval"}, {}, "aggregations"),
        ({"buffer": 2}, {"refill": 5, "buffer": 5}, "rounds"),
    ],
)
def test_what_is_counted(federation: dict[str, Any], own: dict[str, Any], unit: str) -> None:
    policy = {"name": "bsfl", **({"federation": own} if own else {})}
    table = {"rounds": 9, "world": "bsfl-rates", "federation": federation, "policy": policy}
    experiment = Experiment.from_table(table)
    assert counted_in([experiment]) == unit
    assert horizon_in_words(experiment) == f"9 {unit}"
    in_rounds = Experiment.from_table({"rounds": 9, "world": "bsfl-rates", "policy": "random"})
    assert counted_in([in_rounds, experiment]) == unit


def test_progress_of_a_run_without_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standing of the run grows while it goes on, and lines say what is counted."""
    monkeypatch.setattr(run_module, "_COMMIT_SECONDS", 0.0)
    cell = Experiment.from_table(
        {"rounds": 40, "world": "bsfl-rates", "policy": "bsfl", "federation": {"buffer": 1}}
    )
    folder = tmp_path / "bsfl" / "seed-0"
    prepare(folder, cell)
    clock, seen = Clock(), list[Standing]()
    lines = _Lines(cell.horizon, counted_in([cell]), clock)

    def watched() -> bool:
        clock.now += 2.0
        seen.append(standing(folder))
        lines({folder: seen[-1]})
        return True

    execute(folder, wanted=watched)
    assert (seen[0].rounds, seen[-1].rounds) == (0, 40)
    assert len(seen) > 2
    for before, after in pairwise(seen):
        assert before.rounds < after.rounds
        assert before.elapsed_seconds < after.elapsed_seconds
    told = capsys.readouterr().err.splitlines()
    assert told
    assert all("aggregations" in line for line in told)


def test_no_word_is_broken_in_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["element-wise-mab-cs", "lifted:policy=power-of-choice"]
    rows = [(name, "0.185 ± 0.006", "no significant difference", "0.1 ± 0.2") for name in names]
    header = ("Policy", "Participants a round", "Simulated time (s)", "Mean reward")
    for width in (40, 60, 80, 120):
        console = Console(width=width)
        monkeypatch.setattr(display, "console", console)
        with console.capture() as printed:
            show_table("Title", header, rows)
        for name in (*names, "Participants", "significant"):
            assert name in printed.get(), (width, printed.get())


def test_a_pipe_is_told_how_far_it_is(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPEC.format(rounds=6_000))
    done = subprocess.run(
        [sys.executable, "-m", "fedmuster", "run", "spec.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0
    assert "of 2 runs" in done.stderr
    assert "of 2 runs" not in done.stdout


@pytest.mark.parametrize("to_the_group", [True, False])
def test_ctrl_c_is_answered_at_once_and_leaves_nothing_behind(
    tmp_path: Path, to_the_group: bool
) -> None:
    (tmp_path / "spec.toml").write_text(SPEC.format(rounds=100_000_000))
    process = subprocess.Popen(
        [sys.executable, "-m", "fedmuster", "run", "spec.toml", "--out=here"],
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Tests may run in the background of a shell, where Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    cell = tmp_path / "here/bsfl/seed-0"
    try:
        while rounds_done(cell) == 0:
            assert process.poll() is None
            time.sleep(0.05)
        before = rounds_done(cell)
        (os.killpg if to_the_group else os.kill)(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=60)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 130
    assert "fedmuster resume here" in error
    assert "Traceback" not in error
    assert rounds_done(cell) >= before
    with Journal(cell):  # no worker holds it
        pass

"""The command line as people use it: real processes, what they print, how they end."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from fedmuster.cli import main
from fedmuster.core.errors import StateError
from fedmuster.experiments.journal import Journal, JournalReader, rounds_done
from fedmuster.experiments.run import execute
from fedmuster.experiments.spec import Experiment
from fedmuster.experiments.sweep import lay_out

SPEC = """
rounds = 60
seeds = [0, 1]
[world]
name = "bsfl-rates"
[[policy]]
name = "bsfl"
[[policy]]
name = "random"
"""


def fedmuster(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fedmuster", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "160"},
        timeout=300,
    )


def succeed(*arguments: str | Path, folder: Path) -> str:
    done = fedmuster(*arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


Main = Callable[..., tuple[object, str]]


@pytest.fixture
def main_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Main:
    """Exit code and words of a command line, without a process that imports for a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # main sets another

    def run(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["fedmuster", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, "".join(capsys.readouterr())

    return run


def test_run_resume_and_report(tmp_path: Path, main_here: Main) -> None:
    (tmp_path / "small.toml").write_text(SPEC)
    out = succeed("run", "small.toml", folder=tmp_path)
    assert "4 runs of 60 rounds" in out
    assert "bsfl" in out
    assert len(JournalReader(tmp_path / "runs/small/bsfl/seed-1")) == 60
    assert main_here("run", "small.toml")[0] == 0  # there is nothing left to do
    assert main_here("resume", "runs/small")[0] == 0
    (tmp_path / "small.toml").write_text(SPEC.replace("[0, 1]", "[0, 1, 2]").replace("60", "70"))
    code, out = main_here("run", "small.toml", "--processes=1")
    assert code == 0
    assert "6 runs of 70 rounds" in out
    for seed in (1, 2):
        assert len(JournalReader(tmp_path / f"runs/small/bsfl/seed-{seed}")) == 70
    (tmp_path / "small.toml").write_text(SPEC.replace("bsfl-rates", "bsfl-groups"))
    code, error = main_here("run", "small.toml")
    assert code == 2
    for word in ("world.name", "bsfl-rates", "bsfl-groups", "--out"):
        assert word in error
    code, out = main_here("report", "runs/small", "--format", "svg")
    assert code == 0
    report = tmp_path / "runs/small/report"
    for name in ("regret.svg", "simulated-time.svg", "summary.csv"):
        assert (report / name).is_file(), sorted(p.name for p in report.iterdir())
        assert name in out


def test_compare_says_who_differs(tmp_path: Path) -> None:
    out = succeed(
        "compare",
        "bsfl:alpha=0.5",
        "random",
        "random:by_data=true",
        "--world",
        "bsfl-groups:num_clients=60,cohort_size=5",
        "--rounds=80",
        "--seeds=4",
        "--reward=alpha=0.5",
        "--out=here",
        folder=tmp_path,
    )
    lines = {line.split("│")[1].strip(): line for line in out.splitlines() if "│" in line}
    assert "bsfl:alpha=0.5" in lines
    assert "faster by" in lines["bsfl:alpha=0.5"]
    # The data are alike, so drawing by data is drawing uniformly: the very same cohorts.
    assert "no significant difference" in lines["random:by_data=true"]
    assert (tmp_path / "here/experiment.toml").is_file()


def test_a_killed_sweep_is_resumed_to_the_same_bits(tmp_path: Path, main_here: Main) -> None:
    text = SPEC.replace("rounds = 60", "rounds = 500")
    (tmp_path / "long.toml").write_text(text)
    for cell in lay_out(tmp_path / "whole", Experiment.load(tmp_path / "long.toml")):
        execute(cell)
    process = subprocess.Popen(
        [sys.executable, "-m", "fedmuster", "run", "long.toml", "--out=cut"],
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    cells = [f"{label}/seed-{seed}" for label in ("bsfl", "random") for seed in (0, 1)]
    while not any(rounds_done(tmp_path / "cut" / cell) for cell in cells):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not all(rounds_done(tmp_path / "cut" / cell) == 500 for cell in cells)
    assert main_here("resume", "cut", "--processes=1")[0] == 0
    for name in cells:
        whole, cut = (JournalReader(tmp_path / folder / name) for folder in ("whole", "cut"))
        assert cut.digest() == whole.digest()


def test_workers_do_not_outlive_their_parent(tmp_path: Path) -> None:
    (tmp_path / "endless.toml").write_text(SPEC.replace("rounds = 60", "rounds = 100_000_000"))
    process = subprocess.Popen(
        [sys.executable, "-m", "fedmuster", "run", "endless.toml", "--out=run"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    cell = tmp_path / "run/bsfl/seed-0"
    while rounds_done(cell) == 0:
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 30
    while True:
        try:
            with Journal(cell):  # the worker has let go of it
                return
        except StateError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "none.toml"], "cannot read none.toml"),
        (["run", "bad.toml"], "bad.toml, line 4: world.name: unknown world 'mars'"),
        (["run", "broken.toml"], "not valid TOML"),
        (["compare", "bsfl"], "Missing option '--world'"),
        (["compare", "bsfll", "--world=bsfl-rates"], "did you mean 'bsfl'"),
        (["compare", "bsfl", "--world=mars"], "unknown world 'mars'"),
        (["compare", "bsfl:alfa=1", "--world=bsfl-rates"], "did you mean 'alpha'"),
        (["compare", "bsfl:alpha", "--world=bsfl-rates"], "'alpha' after 'bsfl'"),
        (["compare", "bsfl:alpha=-1", "--world=bsfl-rates"], "alpha = -1"),
        (["compare", "bsfl", "bsfl", "--world=bsfl-rates"], "'bsfl'"),
        (["compare", "bsfl", "--world=bsfl-rates", "--rounds=0"], "rounds = 0"),
        (["compare", "bsfl", "--world=bsfl-rates", "--baseline=x"], "--baseline x"),
        (["compare", "pause:rho=1", "--world=bsfl-rates", "--rounds=5"], "has no clusters"),
        (["resume", "nowhere"], "nowhere is no run"),
        (["report", "nowhere"], "nowhere is no run"),
        (["claims", "moon"], "unknown claim 'moon'"),
        (["fly"], "No such command 'fly'"),
        (["run", "clusters.toml"], "clusters.toml, line 9: policy.1.rho: rho = 1.0 charges"),
        (["run", "brute.toml"], "brute.toml, line 5: policy.0: BruteForce"),
        (["run", "odd-name.toml"], "line 4: world.name: unknown world list"),
        (["run", "many.toml"], "line 5: world.num_clients: "),
        (["run", "large.toml"], "line 7: policy.0.alpha: alpha is too large"),
        (["run", "endless.toml"], "line 1: rounds: rounds = 1000000000"),
        (["run", "deep.toml"], "nested too deeply"),
        (["run", "good.toml", "--out=good.toml"], "good.toml"),
    ],
)
def test_mistakes_are_told_plainly(
    tmp_path: Path, main_here: Main, arguments: list[str], message: str
) -> None:
    (tmp_path / "bad.toml").write_text(SPEC.replace("bsfl-rates", "mars").strip())
    (tmp_path / "broken.toml").write_text("rounds = [")
    good = SPEC.strip()
    for name, text in {
        "good": good,
        "clusters": good.replace('name = "random"', 'name = "pause"\nrho = 1'),
        "brute": good.replace('name = "bsfl"', 'name = "bsfl"\nsolver = "brute-force"').replace(
            "bsfl-rates", "bsfl-groups"
        ),
        "odd-name": good.replace('"bsfl-rates"', '["bsfl-rates"]'),
        "many": good.replace('"bsfl-rates"', '"bsfl-rates"\nnum_clients = 99999999999999'),
        "large": good.replace('name = "bsfl"', 'name = "bsfl"\nalpha = 1' + 400 * "0"),
        "endless": good.replace("rounds = 60", "rounds = 1" + 400 * "0"),
        "deep": "rounds = " + 3000 * "[" + 3000 * "]",
    }.items():
        (tmp_path / f"{name}.toml").write_text(text)
    code, text = main_here(*arguments)
    assert code == 2
    assert message in text.replace("\n", " ")


def test_claims_are_listed_and_run_alone(tmp_path: Path, main_here: Main) -> None:
    code, listed = main_here("claims")
    assert code == 0
    assert "bsfl-cifar-iid" in listed
    out = succeed("claims", "bsfl-cifar-iid", "--quick", folder=tmp_path)
    pages = tmp_path / "runs/claims/bsfl-cifar-iid"
    findings = json.loads((pages / "bsfl-cifar-iid-quick.json").read_text())["findings"]
    verdicts = [line.split("  ")[1] for line in out.splitlines() if "HOLD" in line]
    assert verdicts == ["HOLDS" if found["holds"] else "DOES NOT HOLD" for found in findings]
    assert (pages / "bsfl-cifar-iid-quick.md").is_file()

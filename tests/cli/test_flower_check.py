"""``fedmuster flower check`` as people use it, with a process of its own for the app."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.flower import flower_apps as apps
from tests.flower.flower_apps import lay_out

from fedmuster.cli import main


class Result(NamedTuple):
    returncode: object
    stdout: str
    stderr: str


def check(*arguments: object) -> Result:
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["fedmuster", "flower", "check", *map(str, arguments)])
        patch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as stop:
            main()
    return Result(stop.value.code, out.getvalue(), err.getvalue())


def words(text: str) -> str:
    """In one line, as it was before it was wrapped."""
    return " ".join(text.split())


def test_what_must_change_is_shown_with_the_lines_to_write(tmp_path: Path) -> None:
    done = check(lay_out(apps.QUICKSTART, tmp_path))
    assert done.returncode == 1, done
    lines = done.stdout.splitlines()
    assert any(line.startswith("must change Muster       small/server_app.py:17") for line in lines)
    muster = 'averaging = Muster(averaging, policy="bsfl", cohort_size=5, folder="runs/small")'
    assert f"{' ' * 25}|     {muster}" in lines
    assert lines[-1].startswith("Not ready: 2 ")
    assert "\x1b" not in done.stdout  # no colours where nobody looks
    assert not list(tmp_path.rglob("__pycache__"))


def test_no_app(tmp_path: Path) -> None:
    done = check(tmp_path / "nowhere")
    assert done.returncode == 2
    assert "nowhere" in done.stderr


def test_a_ready_app_is_rehearsed(tmp_path: Path) -> None:
    folder = lay_out(apps.READY, tmp_path / "app")
    done = check(folder, "--nodes", 6)
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[-1] == "Ready."
    text = words(done.stdout)
    assert "a round with 6 nodes" in text
    assert "4 answers, 0 failures, 0 refused" in text
    assert "latency, loss, num-examples, train_loss" in text
    # The run, and what the app itself saves, went where nobody is disturbed.
    assert sorted(path.name for path in folder.iterdir()) == ["LICENSE", "pyproject.toml", "small"]


def test_an_app_that_ends_the_process(tmp_path: Path) -> None:
    done = check(lay_out(apps.EXITING, tmp_path))
    assert done.returncode == 1
    assert "code 3" in words(done.stdout)
    assert "so long" in words(done.stdout)


def test_a_client_error_is_shown_also_where_the_rehearsal_never_ends(tmp_path: Path) -> None:
    client = apps.REPORTING_CLIENT.replace('["partition-id"]', '["hospital"]')
    endless = apps.READY_SERVER + "    while grid.get_node_ids() and result.arrays:\n"
    endless += "        __import__('time').sleep(0.1)\n"
    endless = endless.replace("result.arrays:", "result.train_metrics_clientapp is not None:")
    endless = endless.replace("    while", "    while getattr(averaging, '_has_played') and")
    files = {**apps.READY, "small/client_app.py": client, "small/server_app.py": endless}
    done = check(lay_out(files, tmp_path), "--seconds", 25)
    assert done.returncode == 1
    text = words(done.stdout)
    assert "longer than 25 s" in text
    assert "KeyError: 'hospital'" in text

"""``fedmuster flower check`` as people use it."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.flower import flower_apps as apps
from tests.flower.flower_apps import Files, lay_out

from fedmuster.flower import readiness
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


@pytest.fixture
def unimported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the source is read: importing takes a second for each component."""
    monkeypatch.setattr(readiness, "check_imports", lambda project, *, seconds: ({}, []))


@pytest.mark.usefixtures("unimported")
def test_what_must_change_is_shown_with_the_lines_to_write(tmp_path: Path) -> None:
    done = check(lay_out(apps.QUICKSTART, tmp_path))
    assert done.returncode == 1, done
    lines = done.stdout.splitlines()
    assert any(line.startswith("must change Muster       small/server_app.py:17") for line in lines)
    muster = 'averaging = Muster(averaging, policy="bsfl", cohort_size=5, folder="runs/small")'
    assert f"{' ' * 25}|     {muster}" in lines
    assert lines[-1] == "Not ready: 2 things must change."
    assert "\x1b" not in done.stdout  # no colours where nobody looks


def test_no_app(tmp_path: Path) -> None:
    done = check(tmp_path / "nowhere")
    assert done.returncode == 2
    assert "is no folder, expected that of a Flower app" in done.stderr


def test_a_ready_app_is_rehearsed(tmp_path: Path) -> None:
    folder = lay_out(apps.READY, tmp_path / "app")
    done = check(folder, "--rehearse", "--nodes", 6)
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[-1] == "Ready."
    text = words(done.stdout)
    assert "A round with 6 nodes:" in text
    assert "fedmuster chose 4 (partition-" in text
    assert "4 completed, 0 were refused" in text
    assert "policies may learn from: latency, loss, num-examples, train_loss" in text
    assert "clients report their time" in text
    assert "6 of 6 nodes evaluated the model" in text
    # The run, and what the app itself saves, went where nobody is disturbed.
    assert sorted(path.name for path in folder.iterdir()) == ["LICENSE", "pyproject.toml", "small"]


def rehearsed(files: Files, folder: Path, *, nodes: int, seconds: float = 60) -> str:
    found = readiness.rehearse(lay_out(files, folder), nodes=nodes, seconds=seconds)
    assert not found.ready
    return words("\n".join(f"{f.about} {f.where} {f.text}" for f in found.must_change))


def test_an_app_that_fails_on_its_clients(tmp_path: Path) -> None:
    client = apps.REPORTING_CLIENT.replace('["partition-id"]', '["hospital"]')
    text = rehearsed({**apps.READY, "small/client_app.py": client}, tmp_path, nodes=4)
    assert "train small/client_app.py:15 4 of 4 nodes failed: KeyError: 'hospital'" in text
    assert "--node-config" in text


def test_an_app_without_muster(tmp_path: Path) -> None:
    assert "no Muster was started" in rehearsed(apps.QUICKSTART, tmp_path, nodes=4)


def test_an_app_with_a_loop_of_its_own(tmp_path: Path) -> None:
    found = readiness.rehearse(lay_out(apps.CUSTOM_START_READY, tmp_path), nodes=9, seconds=60)
    assert found.ready, found
    texts = [finding.text for finding in found.findings]
    assert any(text.startswith("fedmuster chose 8 ") for text in texts)
    # Its loop does not evaluate; and no folder /no/such/place was needed.
    assert not any("evaluated the model" in text for text in texts)


def test_an_app_that_never_ends(tmp_path: Path) -> None:
    endless = apps.READY_SERVER.replace(
        "    arrays =", "    while True:\n        pass\n    arrays ="
    )
    files = {**apps.READY, "small/server_app.py": endless}
    assert "took longer than 4 s" in rehearsed(files, tmp_path, nodes=4, seconds=4)

"""``fedmuster league``: a stranger's file plays, and a changed record is refused."""

import json
from pathlib import Path

import click
import pytest
from claims.league import command
from claims.league import settings as frozen
from claims.league.record import _checksum
from claims.league.tiny import MINE, PLAN
from click.testing import CliRunner

from fedmuster.cli import cli
from fedmuster.core.errors import ConfigError, DataError


def invoke(*words: str) -> str:
    result = CliRunner().invoke(cli, ["league", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_a_stranger_plays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "quick", lambda **_: PLAN)
    monkeypatch.setattr(frozen, "SETTINGS", PLAN.settings)
    mine, out = tmp_path / "mine.py", tmp_path / "out"
    mine.write_text(MINE, encoding="utf-8")
    contestant = f"{mine}:Mine:federation=rounds"
    shown = invoke(contestant, "--quick", "--out", str(out), "--processes", "1")
    assert "Mine, rounds" in shown
    record = out / "league-quick.json"
    before = record.read_bytes()
    invoke(contestant, "--quick", "--out", str(out))  # nothing is left to run
    assert record.read_bytes() == before
    shown = invoke("--verify", str(record), "--rerun", "2", "--processes", "1")
    assert "Mine, rounds: cannot be checked here" in shown
    assert "Mine, rounds: source not here, not checked" in shown
    assert "proves only that the file was not edited" in shown
    shown = invoke(contestant, "--verify", str(record), "--rerun", "99", "--processes", "1")
    assert "not checked" not in shown
    assert "bit for bit" in shown
    record.write_bytes(before.replace(b"0.4", b"0.1"))
    with pytest.raises(DataError):
        invoke("--verify", str(record))
    content = json.loads(before)
    del content["sha256"]
    content["contestants"][0]["runs"]["tiny, groups"]["final_accuracy"][0] += 1e-9
    record.write_text(json.dumps({**content, "sha256": _checksum(content)}), encoding="utf-8")
    invoke("--verify", str(record))  # its checksum is right
    with pytest.raises(DataError):
        invoke("--verify", str(record), "--rerun", "99", "--processes", "1")


def test_who_cannot_play_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        invoke("genie", "--out", str(tmp_path))


def test_rerun_needs_a_record() -> None:
    with pytest.raises(click.UsageError):
        CliRunner().invoke(
            cli, ["league", "--rerun", "2"], catch_exceptions=False, standalone_mode=False
        )
